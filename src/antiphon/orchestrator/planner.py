"""What a turn's model is going to read: decided once, when the turn is accepted, and rendered from that decision ever after.

The branch is read from its end up to where the turn before began its window, so a turn costs what it reads, not what was ever said.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

import structlog

from antiphon.core.errors import NotFound
from antiphon.core.ids import ConversationId, MessageId
from antiphon.core.messages import Message, MessageStatus, PromptRecord, Role, Snippet
from antiphon.core.prompts import Preamble, Summary
from antiphon.inference.fleet import ServedPool
from antiphon.orchestrator.draft import CountedEnd, Draft, Measures, Question, branch_draft, counted_end
from antiphon.orchestrator.encoded import EncodedTexts
from antiphon.orchestrator.parts import Part, RenderedPrompt, Stem, compose, grows_into, opening_parts, render, stem_of
from antiphon.orchestrator.ports import Ports
from antiphon.orchestrator.preamble import preamble_of
from antiphon.orchestrator.prompt import Window, plan_window
from antiphon.orchestrator.recall import Recall
from antiphon.stores.conversations.base import Owner

log = structlog.get_logger(__name__)

_FIRST_READ = 64
_FEW = 4
_REMEMBERED = 256
_WINDOWS = 64
_LONG_CHARACTERS = 4000
_CHARACTERS_A_TOKEN = 12
"""Running text makes more tokens than this: so much of a branch is read where no turn says what its window was."""

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a question is asked: under ``leaf`` in a conversation of ``owner``; ``None``: it is the first."""

    owner: Owner
    conversation_id: ConversationId
    leaf: MessageId | None
    temporary: bool = False


@dataclass(frozen=True, slots=True)
class PlannedPrompt:
    """``record``, with the texts it names that are not stored yet. ``tokens`` is all that the engine is going to read."""

    record: PromptRecord
    tokens: int
    question_tokens: int
    preamble: Preamble | None = None
    summary: Summary | None = None
    fresh_counts: Mapping[MessageId, int] = field(default_factory=dict[MessageId, int])


@dataclass(frozen=True, slots=True)
class _BranchEnd:
    """The messages of the last turn's window and after, oldest first, and the ids of those above them."""

    messages: tuple[Message, ...]
    above: tuple[MessageId, ...]
    record: PromptRecord | None


class PromptPlanner:
    """One for a process. All it keeps is made anew from the store at need: ids of texts, paths, summaries, passages."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._texts: dict[str, EncodedTexts] = {}
        self._above: _Remembered[MessageId, tuple[MessageId, ...]] = _Remembered()
        self._summaries: _Remembered[MessageId, Summary] = _Remembered()
        self._windows: _Remembered[tuple[Owner, MessageId], tuple[Message, ...]] = _Remembered(_WINDOWS)
        self._forgotten = 0
        self._ends: _Remembered[tuple[str, MessageId], CountedEnd] = _Remembered(_WINDOWS)
        self._stems: _Remembered[tuple[str, MessageId], Stem] = _Remembered(_WINDOWS)
        self.recall = Recall(ports.embedder)

    async def plan(self, place: Place, question: Question, pool: ServedPool, *, already: str = "") -> PlannedPrompt:
        """Decide what is read for ``question``; ``already`` is the beginning of its answer.

        Raises ``PromptTooLong`` with the numbers, ``NotFound``. Writes nothing.
        """
        draft = await self.draft(place, question, pool, already=already)
        window, made = await self._window(place, draft)
        above = draft.above(window)
        snippets = await self._snippets(place, draft, window) if above else ()
        record = draft.record(window, above, snippets, pool.model)
        tokens = record.tokens + draft.budget.already_tokens
        return PlannedPrompt(record, tokens, draft.question_tokens, draft.preamble, made, draft.measures.fresh)

    async def draft(self, place: Place, question: Question, pool: ServedPool, *, already: str = "") -> Draft:
        """The branch under ``question``, counted. Raises ``NotFound``."""
        texts = await self.texts(pool)
        preamble, end = await self._preamble(place), await self._branch_end(place, pool)
        stored: Mapping[MessageId, int] = {}
        if any(message.counted_by != pool.model for message in end.messages):
            stored = await self._ports.prompts.counts(place.owner, place.conversation_id, pool.model)
        held = end.record.summary if end.record is not None else None
        summary = None if held is None else await self._summary(place, held)
        measures = Measures(texts, pool.model, stored)
        unread = sum(len(message.content) for message in end.messages if not measures.knows(message))
        counted = await _perhaps_in_thread(unread, partial(counted_end, end.messages, measures, self._known_end(pool, end.messages)))
        if counted.messages and not measures.fresh:
            self._ends.put((pool.model, counted.messages[-1].id), counted)
        draft = branch_draft(measures, counted, end.above, context_tokens=pool.context_tokens, preamble=preamble, held=summary)
        return await _perhaps_in_thread(len(question.text) + len(already), partial(draft.asking, question, already))

    async def render(self, place: Place, question: Question, record: PromptRecord, pool: ServedPool) -> RenderedPrompt | None:
        """The prompt that ``record`` stands for; ``None`` where the branch is not the one it was decided for.

        For a place whose owner has been checked. Raises ``NotFound``.
        """
        texts = await self.texts(pool)
        kept = await self._kept(place, question, record)
        if kept is None:
            return None
        preamble, summary = None, None
        if record.preamble:
            preamble = await self._ports.prompts.preamble(place.owner, place.conversation_id, record.preamble)
        if record.summary is not None:
            summary = await self._summary(place, record.summary)
        opening = opening_parts(preamble, "" if summary is None else summary.text)
        stem = self._stem(pool, kept, opening)
        said = compose(kept, question, record, opening, stem)
        new = said if stem is None else said[len(stem.said) :]
        unread = sum(len(part.text) for message in new for part in message.parts if not texts.knows(part.text))
        prompt = await _perhaps_in_thread(unread, partial(render, texts, said, stem))
        grown = stem_of(texts, kept, opening, said, prompt)
        if grown is not None:
            self._stems.put((pool.model, kept[-1].id), grown)
        return prompt

    async def texts(self, pool: ServedPool) -> EncodedTexts:
        """The pool's tokenizer, with what it has encoded lately."""
        texts = self._texts.get(pool.model)
        if texts is None:
            tokenizer = await asyncio.to_thread(self._ports.gateway.tokenizer, pool.name)
            texts = self._texts.setdefault(pool.model, await asyncio.to_thread(EncodedTexts, tokenizer))
        return texts

    async def omitted(self, place: Place, record: PromptRecord) -> tuple[MessageId, ...]:
        """The messages that a record's window leaves out, oldest first."""
        if not record.omitted or place.leaf is None:
            return ()
        path = await self._ports.conversations.branch_ids(place.owner, place.conversation_id, place.leaf)
        return path[: path.index(record.start)] if record.start in path else path

    async def learn(self, place: Place, message_ids: Sequence[MessageId]) -> None:
        """Read messages for search, as far as that was not done."""
        missing = self.recall.missing(place.conversation_id, message_ids)
        if missing:
            messages = await self._ports.conversations.texts(place.owner, place.conversation_id, missing)
            await asyncio.to_thread(self.recall.learn, place.conversation_id, messages)

    # --- inside -------------------------------------------------------------------------------

    async def _window(self, place: Place, draft: Draft) -> tuple[Window, Summary | None]:
        """The window, and the summary that had to be made at once because nobody had made one before the trim."""
        window = plan_window(draft.budget, draft.exchanges, draft.held, ())
        if not window.trimmed:
            return window, None
        summaries = await self._ports.prompts.summaries(place.owner, place.conversation_id)
        for summary in summaries:
            self._summaries.put(summary.through, summary)
        offers = draft.offers(summaries)
        window = plan_window(draft.budget, draft.exchanges, draft.held, offers)
        if window.summary is not None and window.summary.covers > window.start // 2:
            return window, None
        made = await asyncio.to_thread(draft.extract, window, place.conversation_id, self._ports.clock.now())
        if made is None:
            return window, None
        offers = draft.offers((*summaries, made))
        window = plan_window(draft.budget, draft.exchanges, draft.held, offers)
        return window, made

    def forget(self, message_id: MessageId) -> None:
        """A message is going to be written on, or was: nothing that was read of it counts any more."""
        self._forgotten += 1
        self._windows.drop(lambda window: any(message.id == message_id for message in window))

    def forget_conversation(self, conversation_id: ConversationId) -> None:
        """A conversation was deleted: nothing that was read of it is kept."""

        def of_it(messages: Sequence[Message]) -> bool:
            return bool(messages) and messages[0].conversation_id == conversation_id

        self._forgotten += 1
        self.recall.forget(conversation_id)
        self._windows.drop(of_it)
        self._ends.drop(lambda end: of_it(end.messages))
        self._stems.drop(lambda stem: of_it(stem.kept))
        self._summaries.drop(lambda summary: summary.conversation_id == conversation_id)

    def _known_end(self, pool: ServedPool, messages: Sequence[Message]) -> CountedEnd:
        """What was counted lately of a branch that ends like this."""
        known = (self._ends.get((pool.model, message.id)) for message in reversed(messages[-_FEW:]))
        return next((end for end in known if end is not None), CountedEnd())

    def _stem(self, pool: ServedPool, kept: Sequence[Message], opening: Sequence[Part]) -> Stem | None:
        """What was written lately of a prompt that begins like this one."""
        for message in reversed(kept[-_FEW:]):
            stem = self._stems.get((pool.model, message.id))
            if stem is not None and grows_into(stem, kept, opening):
                return stem
        return None

    async def _preamble(self, place: Place) -> Preamble | None:
        return None if place.temporary else preamble_of(await self._ports.personal.get(place.owner))

    async def _branch_end(self, place: Place, pool: ServedPool) -> _BranchEnd:
        forgotten = self._forgotten
        end = await self._read_branch_end(place, pool)
        settled = all(message.status is not MessageStatus.STREAMING for message in end.messages)
        if place.leaf is not None and settled and forgotten == self._forgotten:
            self._windows.put((place.owner, place.leaf), end.messages)
        return end

    async def _newest(self, place: Place, leaf: MessageId) -> tuple[Message, ...]:
        """The last messages of the branch: what is new since its window was last read, and that window.

        Nothing is read where the window is the branch's own, as after each answer that was looked ahead from: what has ended stays.
        """
        window = self._windows.get((place.owner, leaf))
        if window:
            return window
        messages = await self._ports.conversations.branch(place.owner, place.conversation_id, leaf, last=_FEW)
        for index in range(len(messages) - 1, -1, -1):
            window = self._windows.get((place.owner, messages[index].id))
            if window is not None:
                return (*window, *messages[index + 1 :])
        return messages

    async def _read_branch_end(self, place: Place, pool: ServedPool) -> _BranchEnd:
        messages: tuple[Message, ...] = ()
        leaf, last = place.leaf, _FIRST_READ
        record: PromptRecord | None = None
        while leaf is not None:
            if messages:
                above = await self._ports.conversations.branch(place.owner, place.conversation_id, leaf, last=last)
            else:
                above = await self._newest(place, leaf)
            messages = (*above, *messages)
            record = _newest_record(messages, pool.model)
            start = None if record is None else _place_of(messages, record.start)
            if start is not None:
                messages = messages[start:]
                break
            if record is None and sum(len(message.content) for message in messages) > _CHARACTERS_A_TOKEN * pool.context_tokens:
                break
            leaf, last = messages[0].parent_id, 2 * last
        return _BranchEnd(messages, await self._ids_above(place, messages), record)

    async def _ids_above(self, place: Place, messages: Sequence[Message]) -> tuple[MessageId, ...]:
        parent = messages[0].parent_id if messages else None
        if parent is None:
            return ()
        above = self._above.get(parent)
        if above is None:
            above = await self._ports.conversations.branch_ids(place.owner, place.conversation_id, parent)
            self._above.put(parent, above)
        return above

    async def _kept(self, place: Place, question: Question, record: PromptRecord) -> tuple[Message, ...] | None:
        """The messages of the record's window, read from the branch's end."""
        if record.start == question.message_id:
            return ()
        messages = () if place.leaf is None else self._windows.get((place.owner, place.leaf)) or ()
        start = _place_of(messages, record.start)
        if start is not None:
            return messages[start:]
        messages, leaf, last = (), place.leaf, _FIRST_READ
        while leaf is not None:
            messages = (*await self._ports.conversations.branch(place.owner, place.conversation_id, leaf, last=last), *messages)
            start = _place_of(messages, record.start)
            if start is not None:
                return messages[start:]
            leaf, last = messages[0].parent_id, 2 * last
        return None

    async def _summary(self, place: Place, through: MessageId) -> Summary | None:
        if self._summaries.get(through) is None:
            for summary in await self._ports.prompts.summaries(place.owner, place.conversation_id):
                self._summaries.put(summary.through, summary)
        return self._summaries.get(through)

    async def _snippets(self, place: Place, draft: Draft, window: Window) -> tuple[Snippet, ...]:
        room = draft.room(window)
        if room.plain <= 0:
            return ()
        try:
            await self.learn(place, draft.path)
            search = partial(self.recall.search, place.conversation_id, draft.path, draft.in_view(window), draft.question, room)
            return await _perhaps_in_thread(len(draft.question) + len(draft.path), search)
        except NotFound:
            raise
        except Exception:  # a search that fails is no reason to refuse a message
            log.exception("earlier_turns_not_searched", conversation_id=place.conversation_id)
            return ()


class _Remembered(Generic[K, V]):
    """The values used last."""

    def __init__(self, most: int = _REMEMBERED) -> None:
        self._most = most
        self._values: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        if key in self._values:
            self._values.move_to_end(key)
        return self._values.get(key)

    def put(self, key: K, value: V) -> None:
        self._values[key] = value
        if len(self._values) > self._most:
            self._values.popitem(last=False)

    def drop(self, unwanted: Callable[[V], bool]) -> None:
        for key in [key for key, value in self._values.items() if unwanted(value)]:
            del self._values[key]


def _newest_record(messages: Sequence[Message], model: str) -> PromptRecord | None:
    for message in reversed(messages):
        if message.role is Role.ASSISTANT and message.prompt is not None and message.prompt.model == model:
            return message.prompt
    return None


def _place_of(messages: Sequence[Message], message_id: MessageId) -> int | None:
    return next((index for index, message in enumerate(messages) if message.id == message_id), None)


async def _perhaps_in_thread(characters: int, work: Callable[[], T]) -> T:
    """Do what takes long with so many new characters without holding up the event loop."""
    return work() if characters <= _LONG_CHARACTERS else await asyncio.to_thread(work)
