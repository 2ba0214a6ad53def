"""A question that a model is asked for a conversation's sake, in the lowest band: what it says, and the record of what that cost.

It is on the account of whoever has the conversation: tokens, time and money, also of budgets; it is no message, and takes nothing from the
rates and caps of a person who did not ask for it.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, replace

from antiphon.core.allowance import Serving
from antiphon.core.generation import Generation, GenerationStatus, Sampling
from antiphon.core.ids import GenerationId, IdKind
from antiphon.core.plans import Plan
from antiphon.core.tenancy import Band
from antiphon.core.usage import Purpose, UsageRecord, usage_json
from antiphon.engines.base import EngineRequest, EngineUsage, Finished, Prefilling, Tokens
from antiphon.inference.fleet import ServedPool
from antiphon.orchestrator.allowances import Ended, customer_of
from antiphon.orchestrator.completion import finish_anyway
from antiphon.orchestrator.ending import as_reported
from antiphon.orchestrator.pace import persist
from antiphon.orchestrator.ports import Ports
from antiphon.orchestrator.thinking import ThinkingSplit

DEADLINE_S = 60.0


@dataclass(slots=True)
class Errand:
    """After ``generation``, asked once of ``pool``."""

    ports: Ports
    generation: Generation
    purpose: Purpose
    pool: ServedPool
    _begun: bool = False
    _output_tokens: int = 0
    _finished: Finished | None = None

    async def ask(self, prompt_ids: tuple[int, ...], max_tokens: int) -> str:
        """What the model says, thoughts left out. Raises ``TimeoutError``, and what the gateway raises; what was computed is recorded."""
        request = EngineRequest(
            request_id=self.ports.ids.new(IdKind.GENERATION),
            tenant_id=self.generation.tenant_id,
            prompt_ids=prompt_ids,
            sampling=Sampling(max_tokens=max_tokens, temperature=0.0),
            band=Band.BATCH,
        )
        said: list[str] = []
        try:
            async with asyncio.timeout(DEADLINE_S):
                await self._hear(request, said)
        finally:
            if self._begun:
                await finish_anyway(self._account(request))
        return "".join(said)

    async def _hear(self, request: EngineRequest, said: list[str]) -> None:
        split = ThinkingSplit(self.ports.gateway.tokenizer(self.pool.name))
        async with aclosing(self.ports.gateway.stream(self.pool.name, request, deadline_s=DEADLINE_S)) as events:
            async for event in events:
                if isinstance(event, Tokens):
                    self._begun = True
                    self._output_tokens += len(event.token_ids)
                    said.append(split.push(event.token_ids, event.text).text)
                elif isinstance(event, Finished):
                    self._begun, self._finished = True, event
                    said.append(split.finish(event.text).text)
                elif isinstance(event, Prefilling):
                    self._begun = True

    async def _account(self, request: EngineRequest) -> None:
        generation, now, finished = self.generation, self.ports.clock.now(), self._finished
        engine = finished.usage if finished else EngineUsage(len(request.prompt_ids), 0, self._output_tokens, 0, 0, 0, 0)
        usage = as_reported(engine)
        serving = Serving(self.pool.name, self.pool.model)
        ended = Ended(GenerationId(request.request_id), GenerationStatus.COMPLETE if finished else GenerationStatus.CANCELLED, usage, now)
        ended = replace(ended, usage=replace(usage, cost=self.ports.allowances.cost(serving, ended)))
        record = UsageRecord(
            generation_id=ended.generation_id,
            tenant_id=generation.tenant_id,
            user_id=generation.user_id,
            key_id=generation.key_id,
            conversation_id=generation.conversation_id,
            model=self.pool.model,
            requested_model=self.pool.model,
            pool=self.pool.name,
            release=None,
            plan=generation.plan,
            usage=ended.usage,
            finish_reason=finished.reason.value if finished else None,
            estimated=finished is None,
            finished_at=now,
            purpose=self.purpose,
        )
        payload = usage_json(record)
        await persist(
            lambda: self.ports.generations.add_usage(generation.tenant_id, ended.generation_id, payload, now=now),
            what="add_usage",
            forever=True,
        )
        plan = self.ports.plans.get(generation.plan) or Plan(generation.plan)
        await self.ports.allowances.charge(customer_of(generation, plan), serving, ended)
