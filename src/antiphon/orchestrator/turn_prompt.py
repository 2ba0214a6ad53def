"""What a turn asks of its pool: the prompt that was decided on when it was accepted, and what was written already."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from antiphon.core.errors import EngineFailed, ModelGone, QueueTimeout
from antiphon.core.events import Queued
from antiphon.core.generation import Generation
from antiphon.core.ids import GenerationId
from antiphon.core.messages import PromptRecord
from antiphon.core.plans import Plan
from antiphon.core.tenancy import Band
from antiphon.inference.fleet import ServedPool
from antiphon.orchestrator.pace import persist
from antiphon.orchestrator.parts import Question, RenderedPrompt
from antiphon.orchestrator.planner import Place, PromptPlanner
from antiphon.orchestrator.ports import Ports
from antiphon.orchestrator.request import ModelLimits, TurnRequest, turn_request
from antiphon.orchestrator.resume import ShownText
from antiphon.stores.conversations.base import Owner

_POOL_POLL_S = 0.1
_TELL_S = 1.0


@dataclass(frozen=True, slots=True)
class Written:
    """What this generation has written so far: its text, without what it continues, and the ids behind it."""

    text: str
    ids: tuple[int, ...]


class TurnPrompt:
    """Of one generation. ``record`` is what was decided here, where it could not be decided at Accept."""

    def __init__(self, ports: Ports, generation: Generation, plan: Plan, planner: PromptPlanner, continues: GenerationId | None) -> None:
        self._ports = ports
        self._generation = generation
        self._owner = Owner(generation.tenant_id, generation.user_id)
        self._plan = plan
        self._planner = planner
        self._continues = continues
        self.record: PromptRecord | None = None

    async def ready_pool(self, deadline_s: float, tell: Callable[[Queued], None]) -> ServedPool:
        """The generation's pool, once its model is known; ``tell`` hears each second where the turn stands meanwhile. Raises
        ``QueueTimeout`` after ``deadline_s``, but not while the model is being loaded.
        """
        loop, gateway = asyncio.get_running_loop(), self._ports.gateway
        deadline, tell_at = loop.time() + deadline_s, loop.time()
        try:
            while True:
                pool = gateway.resolve(self._generation.pool or self._generation.model, ())
                if pool.context_tokens > 0:
                    return pool
                place, now = gateway.want(pool.name, self._generation.id), loop.time()
                if now >= tell_at:
                    tell(place)
                    tell_at = now + _TELL_S
                if now >= deadline and not gateway.loading(pool.name):
                    raise QueueTimeout(gateway.why_late(pool.name))
                await asyncio.sleep(_POOL_POLL_S)
        except ModelGone as gone:
            raise EngineFailed(gone.detail) from gone

    async def request(self, pool: ServedPool, band: Band, written: Written) -> TurnRequest:
        """The answer's request to ``pool``, what was written of it already included. Waits while the store cannot be read."""
        generation = self._generation
        prompt = await persist(lambda: self._rendered(pool), what="read_prompt", forever=True)
        limits = ModelLimits(
            context_tokens=pool.context_tokens,
            default_tokens=self._ports.answer_tokens(pool.name, self._plan),
            band=band,
        )
        shown = ShownText(
            prior=generation.prior_text,
            prior_ids=await self._prior_ids(),
            own=written.text,
            own_ids=written.ids,
        )
        tokenizer = self._ports.gateway.tokenizer(pool.name)
        return await asyncio.to_thread(turn_request, tokenizer, generation, prompt, shown, limits)

    async def _rendered(self, pool: ServedPool) -> RenderedPrompt:
        """The prompt that was decided on when the turn was accepted; decided on now where no context was known then."""
        generation, conversations = self._generation, self._ports.conversations
        head = await conversations.get(self._owner, generation.conversation_id)
        answer = await conversations.message(self._owner, generation.message_id)
        asked = None if generation.user_message_id is None else await conversations.message(self._owner, generation.user_message_id)
        leaf, question = (None, Question(answer.id, "")) if asked is None else (asked.parent_id, Question(asked.id, asked.content))
        place = Place(self._owner, head.id, leaf, head.temporary)
        record = answer.prompt
        rendered = None
        if record is not None and record.model == pool.model:
            rendered = await self._planner.render(place, question, record, pool)
        if rendered is None:
            planned = await self._planner.plan(place, question, pool, already=generation.prior_text)
            self.record = replace(planned.record, preamble="", summary=planned.record.summary if planned.summary is None else None)
            rendered = await self._planner.render(place, question, self.record, pool)
        if rendered is None:
            raise EngineFailed("The conversation changed while its prompt was being made.")
        return rendered

    async def _prior_ids(self) -> tuple[int, ...]:
        """The ids behind the text to be continued, while its log lives and we know whose it is."""
        if not self._generation.prior_text or self._continues is None:
            return ()
        state = await self._ports.log.state(self._continues)
        return () if state is None else state.token_ids
