"""A question that a model is asked for a conversation's sake, in the lowest band: what it says, and the record of what that cost.

It is on the account of whoever has the conversation: tokens, time and money, also of budgets; it is no message, and takes nothing from the
rates and caps of a person who did not ask for it.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass

from antiphon.core.allowance import Serving
from antiphon.core.events import Queued
from antiphon.core.generation import Generation, GenerationStatus, Sampling
from antiphon.core.ids import GenerationId, IdKind
from antiphon.core.plans import Plan
from antiphon.core.tenancy import Band
from antiphon.core.usage import Purpose
from antiphon.engines.base import EngineRequest, Finished, Tokens
from antiphon.inference.fleet import ServedPool
from antiphon.orchestrator.allowances import customer_of
from antiphon.orchestrator.books import Account, OpenRecord
from antiphon.orchestrator.completion import finish_anyway
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

    async def ask(self, prompt_ids: tuple[int, ...], max_tokens: int) -> str:
        """What the model says, thoughts left out. Raises ``TimeoutError``, and what the gateway raises; what was computed is recorded."""
        ports, generation = self.ports, self.generation
        request = EngineRequest(
            request_id=ports.ids.new(IdKind.GENERATION),
            tenant_id=generation.tenant_id,
            prompt_ids=prompt_ids,
            sampling=Sampling(max_tokens=max_tokens, temperature=0.0),
            band=Band.BATCH,
        )
        account = Account(
            GenerationId(request.request_id),
            customer_of(generation, ports.plans.get(generation.plan) or Plan(generation.plan)),
            Serving(self.pool.name, self.pool.model),
            conversation_id=generation.conversation_id,
            purpose=self.purpose,
        )
        record = ports.books.open(account, prompt_tokens=len(prompt_ids))
        said: list[str] = []
        try:
            async with asyncio.timeout(DEADLINE_S):
                await self._hear(request, record, said)
        finally:
            if record.begun:
                await finish_anyway(record.close(GenerationStatus.COMPLETE if record.finished else GenerationStatus.CANCELLED))
        return "".join(said)

    async def _hear(self, request: EngineRequest, record: OpenRecord, said: list[str]) -> None:
        split = ThinkingSplit(self.ports.gateway.tokenizer(self.pool.name))
        async with aclosing(self.ports.gateway.stream(self.pool.name, request, deadline_s=DEADLINE_S)) as events:
            async for event in events:
                if isinstance(event, Queued):
                    continue
                record.note(event)
                if isinstance(event, Tokens):
                    said.append(split.push(event.token_ids, event.text).text)
                elif isinstance(event, Finished):
                    said.append(split.finish(event.text).text)
