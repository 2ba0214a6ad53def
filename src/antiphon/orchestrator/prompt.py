"""How much of a conversation the model reads: the budget. Pure.

In this order: system prompt, the user's instructions and memory, the new message whole, recent turns newest first, a summary of what
is older, snippets of it. The window of turns only grows until it is full; then the oldest go in one step until 60 % are left, with one
new summary in their place. Between two such trims the prompt grows at its end alone, so the prefix that the cache holds stays valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from antiphon.core.errors import PromptTooLong
from antiphon.core.ids import MessageId
from antiphon.core.messages import Message, MessageStatus, PromptRecord, Role

SYSTEM_PROMPT = "You are a helpful assistant. Give concise answers."
"""Identical for everybody, so that its cached blocks serve everybody."""

MINIMUM_OUTPUT_TOKENS = 16
"""An answer shorter than this is not worth a prompt; a prompt that leaves less is refused."""

SNIPPET_TOKENS = 600
"""The most that snippets may take in one turn."""

_WINDOW_SHARE = 0.75
"""Part of the context that the prompt may fill; the rest is the answer's."""

_TRIMMED_SHARE = 0.6
"""Part of the window that is left after a trim."""

_SUMMARISED_SHARE = 0.7
"""A trim goes exactly to where a summary ends, if that leaves no more than this part of the window."""

_SUMMARY_PART = 12
"""One in so many tokens of the window may be the summary's."""

_SNIPPETS_PART = 8
"""One in so many tokens of the window may be snippets'."""

_ANSWER_PART = 8
"""One in so many tokens of the context is kept for the answer when snippets are added."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Token counts. ``fixed_tokens``: system prompt, instructions, memory, and what the template writes round a lone question."""

    context_tokens: int
    fixed_tokens: int
    question_tokens: int
    standing_tokens: int = 0
    """Those of ``fixed_tokens`` that are instructions and memory."""
    already_tokens: int = 0
    """The beginning of the answer, written by an earlier generation."""

    @property
    def limit(self) -> int:
        """What the prompt may have at most."""
        return self.context_tokens - MINIMUM_OUTPUT_TOKENS

    @property
    def window(self) -> int:
        """What it may have before it is trimmed."""
        return int(self.context_tokens * _WINDOW_SHARE)

    @property
    def answer_tokens(self) -> int:
        """What snippets leave to the answer at least."""
        return self.context_tokens // _ANSWER_PART

    @property
    def snippet_tokens(self) -> int:
        """How long the snippets of all turns in a window may be."""
        return max(self.window // _SNIPPETS_PART, 200)

    @property
    def summary_tokens(self) -> int:
        """How long a summary may be."""
        return max(32, self.window // _SUMMARY_PART)

    @property
    def bare_tokens(self) -> int:
        """A prompt without anything earlier."""
        return self.fixed_tokens + self.question_tokens

    def check(self) -> None:
        """Raises ``PromptTooLong`` where the question fits into no prompt."""
        if self.bare_tokens + self.already_tokens > self.limit:
            raise PromptTooLong(
                prompt_tokens=self.bare_tokens + self.already_tokens, limit_tokens=self.limit, standing_tokens=self.standing_tokens
            )


class Lengths(Protocol):
    """Lengths in the serving model's tokens."""

    @property
    def pair(self) -> int:
        """What the template writes round one question with its answer."""
        ...

    @property
    def joint(self) -> int:
        """What stands between two messages of one role."""
        ...

    def of_message(self, message: Message) -> int:
        """The message's content."""
        ...

    def of_snippets(self, record: PromptRecord | None) -> int:
        """The snippets that came with a turn, as the prompt words them."""
        ...


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question with its answer, or one that was never answered and so joins the next. ``snippet_tokens`` are of its ``tokens``."""

    messages: tuple[Message, ...]
    tokens: int
    snippet_tokens: int = 0


@dataclass(frozen=True, slots=True)
class SummaryOffer:
    """A summary that may stand for what is left out. It speaks of everything before the exchange ``covers`` (an index), the last
    message of it being ``through``.
    """

    covers: int
    tokens: int
    through: MessageId


@dataclass(frozen=True, slots=True)
class Window:
    """What of the earlier exchanges is read: those from index ``start`` on, and ``summary`` for what is before.

    ``tokens`` is the prompt's length without snippets of this turn.
    """

    start: int
    summary: SummaryOffer | None
    tokens: int
    trimmed: bool


def exchanges_of(messages: Sequence[Message], lengths: Lengths) -> tuple[Exchange, ...]:
    """Whole turns, oldest first. Answers that failed or are empty are left out, and so is an answer without a question."""
    groups: list[list[Message]] = []
    for message in messages:
        if message.role is Role.USER:
            groups.append([message])
        elif groups and is_said(message):
            groups[-1].append(message)
    return tuple(_exchange(group, lengths) for group in groups)


def is_said(message: Message) -> bool:
    """Whether later prompts hold this answer."""
    return message.role is Role.ASSISTANT and message.status is not MessageStatus.FAILED and bool(message.content.strip())


def plan_window(
    budget: Budget, exchanges: Sequence[Exchange], held: Window | None, offers: Sequence[SummaryOffer], *, most: int | None = None
) -> Window:
    """The window for a question after ``exchanges``, going on from ``held``, the window of the turn before it on the branch.

    ``offers`` are the summaries of this branch, and are used by a trim alone. ``most`` is a lower bound for trimming than the budget's
    own, to look ahead. Raises ``PromptTooLong``.
    """
    budget.check()
    start = 0 if held is None else held.start
    summary = None if held is None else held.summary
    window = budget.window if most is None else most
    tokens = _tokens(budget, exchanges, start, summary)
    trimmed = start < len(exchanges) and (tokens > window or tokens + budget.already_tokens > budget.limit)
    if trimmed:
        start, summary = _trim(budget, exchanges, start, summary, offers)
        tokens = _tokens(budget, exchanges, start, summary)
    if summary is not None and tokens + budget.already_tokens > budget.limit:
        tokens -= summary.tokens
        summary = None
    return Window(start, summary, tokens, trimmed)


def output_tokens(asked: int, *, context_tokens: int, prompt_tokens: int) -> int:
    """How many tokens the answer may have: what was asked for, or what the context leaves; at least one. 0 tokens of context are not
    known yet, and bound nothing.
    """
    if context_tokens <= 0:
        return asked
    return max(1, min(asked, context_tokens - prompt_tokens))


def _trim(
    budget: Budget, exchanges: Sequence[Exchange], start: int, summary: SummaryOffer | None, offers: Sequence[SummaryOffer]
) -> tuple[int, SummaryOffer | None]:
    """The new start, and of the summaries, given in their order, the one that reaches furthest; the one there was if none does."""
    best = max(reversed(offers), key=lambda offer: offer.covers, default=None)
    if summary is not None and (best is None or best.covers <= summary.covers):
        best = summary
    held, left = start, budget.window * _TRIMMED_SHARE
    reserve = budget.summary_tokens if best is None else 0
    while start < len(exchanges) and _tokens(budget, exchanges, start, best) + reserve > left:
        start += 1
    if best is not None and held < best.covers < start:
        at_summary = _tokens(budget, exchanges, best.covers, best)
        start = best.covers if at_summary <= budget.window * _SUMMARISED_SHARE else start
    while start < len(exchanges) and _tokens(budget, exchanges, start, best) + budget.already_tokens > budget.limit:
        start += 1
    return start, best


def _tokens(budget: Budget, exchanges: Sequence[Exchange], start: int, summary: SummaryOffer | None) -> int:
    kept = sum(exchange.tokens for exchange in exchanges[max(start, 0) :])
    return budget.bare_tokens + kept + (0 if summary is None else summary.tokens)


def _exchange(group: Sequence[Message], lengths: Lengths) -> Exchange:
    """Neighbours of one role become one message with a joint between them; only an answered question has a pair of its own."""
    contents = sum(lengths.of_message(message) for message in group)
    if len(group) == 1:
        return Exchange(tuple(group), contents + lengths.joint)
    snippets = lengths.of_snippets(group[1].prompt)
    return Exchange(tuple(group), contents + lengths.pair + lengths.joint * (len(group) - 2) + snippets, snippets)
