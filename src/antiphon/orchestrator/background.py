"""Work after an answer: a title, a summary of what will soon leave the window, the words of earlier turns for search.

One piece of work at a time, in the lowest band, so that nobody's answer waits for it. It ends with its conversation, and whatever goes
wrong with it, the chat goes on without.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import structlog

from antiphon.core.errors import AntiphonError, NotFound, PromptTooLong
from antiphon.core.generation import Generation
from antiphon.core.ids import ConversationId
from antiphon.core.messages import Conversation, Message, MessageStatus, TitleSource
from antiphon.core.prompts import Summary
from antiphon.core.usage import Purpose
from antiphon.engines.base import PromptMessage, Tokenizer
from antiphon.orchestrator.draft import Draft
from antiphon.orchestrator.errand import Errand
from antiphon.orchestrator.parts import Question
from antiphon.orchestrator.planner import Place, PromptPlanner
from antiphon.orchestrator.ports import Ports
from antiphon.orchestrator.prompt import Window, plan_window
from antiphon.orchestrator.summary import accepted_summary, summary_request
from antiphon.orchestrator.title import TITLE_TOKENS, title_of, title_request
from antiphon.stores.conversations.base import Owner
from antiphon.stores.conversations.first_title import first_title

log = structlog.get_logger(__name__)

_MOST_WAITING = 1000
_AHEAD_SHARE = 0.85
"""A summary is made when so much of the window is full, so that it is there when the window is trimmed."""
_CHARACTERS_A_TOKEN = 4
_FEWEST_CHARACTERS = 200

Asking = Callable[[int], tuple[PromptMessage, ...]]
"""What a model is asked, with at most so many characters of what was said."""


@dataclass(frozen=True, slots=True)
class BackgroundSettings:
    """The ``[background]`` table. ``pool`` does the work; empty: the pool that wrote the answer.

    ``titles``: a model's, or the first words of the conversation. ``summaries``: a model's, or the telling sentences of what was said;
    a model of a few hundred million parameters summarises worse than that.
    """

    pool: str = ""
    titles: Literal["model", "words"] = "model"
    summaries: Literal["model", "sentences"] = "sentences"


class Background:
    """``after`` each answer; ``run_for_ever`` does the work. At most a thousand conversations wait, the oldest give way."""

    def __init__(self, ports: Ports, planner: PromptPlanner, settings: BackgroundSettings) -> None:
        self._ports = ports
        self._planner = planner
        self._settings = settings
        self._waiting: OrderedDict[ConversationId, Generation] = OrderedDict()
        self._wake = asyncio.Event()
        self._current: tuple[Generation, asyncio.Task[None]] | None = None
        self.on_title: Callable[[ConversationId, str], None] = _nothing
        """Told of each title given here."""

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is being done."""
        return not self._waiting and self._current is None

    def after(self, generation: Generation) -> None:
        """A generation has ended; what its conversation needs now is done as soon as nobody else needs the accelerator."""
        self._waiting.pop(generation.conversation_id, None)
        self._waiting[generation.conversation_id] = generation
        if len(self._waiting) > _MOST_WAITING:
            self._waiting.popitem(last=False)
        self._wake.set()

    def cancel(self, owner: Owner, conversation_id: ConversationId | None = None) -> None:
        """A conversation, or all of the owner's, is gone: so is all work for it, what runs included."""
        for generation in list(self._waiting.values()):
            if _is_of(generation, owner, conversation_id):
                del self._waiting[generation.conversation_id]
        if self._current is not None and _is_of(self._current[0], owner, conversation_id):
            self._current[1].cancel()
        if conversation_id is not None:
            self._planner.forget_conversation(conversation_id)

    async def run_for_ever(self) -> None:
        """Work until cancelled."""
        while True:
            await self._wake.wait()
            if not self._waiting:
                self._wake.clear()
                continue
            _, generation = self._waiting.popitem(last=False)
            task = asyncio.create_task(self._serve(generation), name=f"after {generation.id}")
            self._current = generation, task
            try:
                await asyncio.wait((task,))
            finally:
                task.cancel()
                self._current = None

    async def _serve(self, generation: Generation) -> None:
        """Everything for one conversation. Raises nothing but cancellation."""
        owner = Owner(generation.tenant_id, generation.user_id)
        try:
            head = await self._ports.conversations.get(owner, generation.conversation_id)
            answer = await self._ports.conversations.message(owner, generation.message_id)
            if head.temporary or answer.parent_id is None or answer.status is not MessageStatus.COMPLETE:
                return
            question = await self._ports.conversations.message(owner, answer.parent_id)
            if question.parent_id is None and self._settings.titles == "model":
                await self._name(generation, head, question, answer)
            await self._look_ahead(Place(owner, head.id, answer.id), generation)
        except NotFound:
            pass
        except AntiphonError as failure:
            log.info("background_gave_up", generation_id=generation.id, code=failure.code)
        except Exception:  # the chat goes on without a title or a summary
            log.exception("background_failed", generation_id=generation.id)

    async def _name(self, generation: Generation, head: Conversation, question: Message, answer: Message) -> None:
        """A title, where the conversation has none but its first words."""
        if head.title_source is TitleSource.USER or head.title != first_title(question.content):
            return
        request = partial(_title_request, question.content, answer.content)
        try:
            asked = await self._ask(generation, answer, request, TITLE_TOKENS, Purpose.TITLE)
        except (AntiphonError, TimeoutError) as failure:
            log.info("title_stays", conversation_id=head.id, reason=type(failure).__name__)
            return
        title = title_of(asked, f"{question.content}\n{answer.content}")
        if title is not None:
            owner = Owner(generation.tenant_id, generation.user_id)
            named = await self._ports.conversations.suggest_title(owner, head.id, title)
            if named.title_source is not TitleSource.USER:
                self.on_title(head.id, named.title)

    async def _look_ahead(self, place: Place, generation: Generation) -> None:
        """Make the summary that the next trim is going to need, and read what it will leave out."""
        pool = self._ports.gateway.resolve(generation.pool or generation.model, ())
        if place.leaf is None or pool.context_tokens <= 0:
            return
        draft = await self._planner.draft(place, Question(place.leaf, ""), pool)
        window = plan_window(draft.budget, draft.exchanges, draft.held, (), most=int(draft.budget.window * _AHEAD_SHARE))
        await self._planner.learn(place, draft.path)
        if not window.trimmed:
            return
        known = draft.offers(await self._ports.prompts.summaries(place.owner, place.conversation_id))
        if any(offer.covers >= window.start for offer in known):
            return
        summary = await self._summarise(generation, place, draft, window)
        if summary is not None:
            await self._ports.prompts.add_summary(place.owner, summary)

    async def _summarise(self, generation: Generation, place: Place, draft: Draft, window: Window) -> Summary | None:
        extract = await asyncio.to_thread(draft.extract, window, place.conversation_id, self._ports.clock.now())
        if extract is None or self._settings.summaries == "sentences":
            return extract
        dropped = [message for exchange in draft.exchanges[: window.start] for message in exchange.messages]
        earlier = "" if draft.held_summary is None else draft.held_summary.text
        answer = await self._ports.conversations.message(place.owner, dropped[-1].id)
        try:
            request = partial(summary_request, earlier, dropped)
            asked = await self._ask(generation, answer, request, draft.budget.summary_tokens, Purpose.SUMMARY)
            text = accepted_summary(asked, dropped)
        except (AntiphonError, TimeoutError) as failure:
            log.info("summary_made_of_sentences", conversation_id=place.conversation_id, reason=type(failure).__name__)
            text = None
        if text is None:
            return extract
        source = self._ports.gateway.resolve(self._settings.pool or answer.model, ()).model
        return Summary(place.conversation_id, extract.through, text, source, extract.created_at)

    async def _ask(self, generation: Generation, answer: Message, asking: Asking, max_tokens: int, purpose: Purpose) -> str:
        """What the model says, asked in the lowest band. Raises ``TimeoutError``, ``PromptTooLong``, and what the gateway raises."""
        pool = self._ports.gateway.resolve(self._settings.pool or answer.model, ())
        tokenizer = self._ports.gateway.tokenizer(pool.name)
        prompt_ids = await asyncio.to_thread(_fitting, tokenizer, asking, pool.context_tokens - max_tokens)
        return await Errand(self._ports, generation, purpose, pool).ask(prompt_ids, max_tokens)


def _nothing(_conversation_id: ConversationId, _title: str) -> None:
    pass


def _title_request(question: str, answer: str, most: int) -> tuple[PromptMessage, ...]:
    return title_request(question[:most], answer[:most])


def _fitting(tokenizer: Tokenizer, asking: Asking, limit: int) -> tuple[int, ...]:
    """The longest prompt of at most ``limit`` tokens, found by halving what it quotes. Blocking. Raises ``PromptTooLong``."""
    characters = _CHARACTERS_A_TOKEN * max(limit, 0)
    while True:
        prompt_ids = tuple(tokenizer.prompt(asking(characters)))
        if len(prompt_ids) <= limit:
            return prompt_ids
        if characters <= _FEWEST_CHARACTERS:
            raise PromptTooLong(prompt_tokens=len(prompt_ids), limit_tokens=limit)
        characters //= 2


def _is_of(generation: Generation, owner: Owner, conversation_id: ConversationId | None) -> bool:
    same = (generation.tenant_id, generation.user_id) == (owner.tenant_id, owner.user_id)
    return same and conversation_id in (None, generation.conversation_id)
