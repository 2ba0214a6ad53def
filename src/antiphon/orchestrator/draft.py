"""One prompt in the making: the end of a branch in exchanges, counted, with what a question leaves room for. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from antiphon.core.ids import ConversationId, MessageId
from antiphon.core.messages import Message, PromptRecord, Role, Snippet
from antiphon.core.prompts import Preamble, Summary
from antiphon.orchestrator.parts import Question, Texts, preamble_parts, snippet_text, summary_part
from antiphon.orchestrator.prompt import SNIPPET_TOKENS, SYSTEM_PROMPT, Budget, Exchange, Lengths, SummaryOffer, Window, exchanges_of
from antiphon.orchestrator.relevance import Room
from antiphon.orchestrator.summary import EXTRACT, extracted

__all__ = ["CountedEnd", "Draft", "Measures", "Question", "branch_draft", "counted_end"]


_NO_MESSAGE = MessageId("")


class Measures:
    """Lengths in one model's tokens: stored ones, else counted now and noted in ``fresh``."""

    def __init__(self, texts: Texts, model: str, stored: Mapping[MessageId, int]) -> None:
        self.texts = texts
        self._model = model
        self._stored = stored
        self.fresh: dict[MessageId, int] = {}
        self.pair = texts.pair
        self.joint = texts.joint

    def knows(self, message: Message) -> bool:
        """Whether the message need not be encoded to be counted."""
        return message.counted_by == self._model or message.id in self._stored

    def of_message(self, message: Message) -> int:
        if message.content_tokens is not None and message.counted_by == self._model:
            return message.content_tokens
        tokens = self._stored.get(message.id)
        if tokens is None:
            tokens = self.fresh[message.id] = self.texts.count(message.content)
        return tokens

    def of_snippets(self, record: PromptRecord | None) -> int:
        if record is None or not record.snippets:
            return 0
        return sum(self.of_snippet(snippet) for snippet in record.snippets)

    def of_snippet(self, snippet: Snippet) -> int:
        return self.texts.count(snippet_text(snippet))

    def of_summary(self, text: str) -> int:
        return self.texts.count(summary_part(text).text)


@dataclass(frozen=True, slots=True)
class Draft:
    """``path`` are the ids of the whole branch, root first; ``exchanges`` those of its end; ``held`` the window of the turn before."""

    measures: Measures
    budget: Budget
    preamble: Preamble | None
    exchanges: tuple[Exchange, ...]
    path: tuple[MessageId, ...]
    held: Window | None
    held_summary: Summary | None
    question: str = ""
    question_id: MessageId = _NO_MESSAGE
    question_tokens: int = 0

    def asking(self, question: Question, already: str) -> Draft:
        """The same draft with its question, and with the beginning of an answer."""
        tokens = self.measures.texts.count(question.text)
        already_tokens = self.measures.texts.count(already) if already else 0
        budget = replace(self.budget, question_tokens=tokens, already_tokens=already_tokens)
        return replace(self, budget=budget, question=question.text, question_id=question.message_id, question_tokens=tokens)

    def offers(self, summaries: Sequence[Summary]) -> tuple[SummaryOffer, ...]:
        """What the summaries of this branch can stand for, the one that reaches least far first; other branches' are left out."""
        places = {message_id: place for place, message_id in enumerate(self.path)}
        firsts = [places[exchange.messages[0].id] for exchange in self.exchanges]
        ours = [summary for summary in summaries if summary.through in places and summary.text]
        ours.sort(key=lambda summary: places[summary.through])
        return tuple(
            SummaryOffer(
                covers=sum(first <= places[summary.through] for first in firsts),
                tokens=self.measures.of_summary(summary.text),
                through=summary.through,
            )
            for summary in ours
        )

    def extract(self, window: Window, conversation_id: ConversationId, now: datetime) -> Summary | None:
        """A summary of what ``window`` leaves out, made of its sentences; ``None`` where there is nothing to say."""
        dropped = [message for exchange in self.exchanges[: window.start] for message in exchange.messages]
        if not dropped:
            return None
        earlier = "" if self.held_summary is None else self.held_summary.text
        text = extracted(earlier, dropped, at_most=self.budget.summary_tokens, count=self.measures.texts.count)
        return Summary(conversation_id, dropped[-1].id, text, EXTRACT, now) if text else None

    def above(self, window: Window) -> tuple[MessageId, ...]:
        """The messages that ``window`` leaves out, oldest first."""
        if window.start >= len(self.exchanges):
            return self.path
        return self.path[: self.path.index(self.exchanges[window.start].messages[0].id)]

    def room(self, window: Window) -> Room:
        """What snippets may still take: they leave the answer its share, and all of a window's take a small part of it, so that they do
        not bring the next trim near. Where something earlier is plainly meant, half of that part is there in any case, a quarter once
        the part is used up.
        """
        held, share = sum(exchange.snippet_tokens for exchange in self.exchanges[window.start :]), self.budget.snippet_tokens
        left = self.budget.limit - window.tokens - self.budget.already_tokens - self.budget.answer_tokens
        most = min(left, SNIPPET_TOKENS)
        least = share // 2 if held <= share else share // 4
        return Room(min(most, share - held), min(most, max(share - held, least)), self.measures.of_snippet)

    def in_view(self, window: Window) -> frozenset[MessageId]:
        """Messages whose words are in the window: its own, and those that its snippets quote."""
        kept = self._kept(window)
        quoted = (snippet.message_id for message in kept if message.prompt is not None for snippet in message.prompt.snippets)
        return frozenset((*(message.id for message in kept), *quoted))

    def _kept(self, window: Window) -> tuple[Message, ...]:
        return tuple(message for exchange in self.exchanges[window.start :] for message in exchange.messages)

    def record(self, window: Window, above: Sequence[MessageId], snippets: tuple[Snippet, ...], model: str) -> PromptRecord:
        """What is stored of the decision."""
        kept = self.exchanges[window.start :]
        return PromptRecord(
            model=model,
            start=kept[0].messages[0].id if kept else self.question_id,
            omitted=len(above),
            summary=None if window.summary is None else window.summary.through,
            preamble="" if self.preamble is None else self.preamble.digest,
            snippets=snippets,
            tokens=window.tokens + sum(self.measures.of_snippet(snippet) for snippet in snippets),
            trimmed=window.trimmed,
        )


@dataclass(frozen=True, slots=True)
class CountedEnd:
    """``messages``, the end of a branch, in exchanges, with one model's lengths."""

    messages: tuple[Message, ...] = ()
    exchanges: tuple[Exchange, ...] = ()


def counted_end(messages: Sequence[Message], lengths: Lengths, known: CountedEnd) -> CountedEnd:
    """``messages`` counted, ``known`` as far as they go on from it."""
    first = len(known.messages)
    if known.messages != tuple(messages[:first]) or (first < len(messages) and messages[first].role is not Role.USER):
        return CountedEnd(tuple(messages), exchanges_of(messages, lengths))
    return CountedEnd(tuple(messages), (*known.exchanges, *exchanges_of(messages[first:], lengths)))


def branch_draft(
    measures: Measures,
    end: CountedEnd,
    above: Sequence[MessageId],
    *,
    context_tokens: int,
    preamble: Preamble | None,
    held: Summary | None,
) -> Draft:
    """The draft of a branch: its ``end`` from the last window's start on, the ids ``above`` that, that window's summary ``held``."""
    texts = measures.texts
    standing = sum(texts.count(part.text) for part in preamble_parts(preamble))
    fixed = texts.bare + texts.count(SYSTEM_PROMPT) + standing
    offer = None if held is None else SummaryOffer(0, measures.of_summary(held.text), held.through)
    return Draft(
        measures=measures,
        budget=Budget(context_tokens, fixed, 0, standing),
        preamble=preamble,
        exchanges=end.exchanges,
        path=(*above, *(message.id for message in end.messages)),
        held=Window(0, offer, 0, trimmed=False) if offer is not None else None,
        held_summary=held,
    )
