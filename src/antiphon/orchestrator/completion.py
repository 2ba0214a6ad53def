"""Completions for ``/v1/chat/completions``: the same gateway, nothing stored, and an end when the client goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import structlog

from antiphon.core.errors import Draining, FieldFault, HighDemand, InvalidRequest, NoCapacity, PromptTooLong
from antiphon.core.events import Queued
from antiphon.core.generation import GenerationStatus, TurnParams
from antiphon.core.ids import GenerationId, IdKind
from antiphon.core.messages import Role
from antiphon.core.telemetry import GENERATIONS, TTFT
from antiphon.core.tenancy import Principal
from antiphon.engines.base import EngineEvent, EngineRequest, EngineUsage, Finished, PromptMessage, Tokens
from antiphon.inference.admission import Shed
from antiphon.orchestrator.ports import Ports
from antiphon.orchestrator.prompt import MINIMUM_OUTPUT_TOKENS, SYSTEM_PROMPT, output_tokens
from antiphon.orchestrator.request import public_prefix_tokens, sampling_of
from antiphon.orchestrator.runner import Runner
from antiphon.orchestrator.turn import queue_deadline_s

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """The whole conversation comes with each request; without a system message of the caller's, ours stands first."""

    messages: tuple[PromptMessage, ...]
    model: str | None
    params: TurnParams


class Completions:
    """Opens completions."""

    def __init__(self, ports: Ports, runner: Runner) -> None:
        self._ports = ports
        self._runner = runner

    async def open(self, principal: Principal, request: CompletionRequest) -> CompletionStream:
        """Check and admit a completion; the engine is asked when the stream is entered and iterated.

        Raises ``InvalidRequest``, ``ModelGone``, ``Forbidden``, ``PromptTooLong``, ``HighDemand``, ``NoCapacity``, ``Draining``.
        """
        if self._runner.draining:
            raise Draining
        ports, plan = self._ports, self._ports.plan(principal.plan)
        asked = request.params.max_tokens
        if not request.messages:
            raise InvalidRequest([FieldFault("messages", "At least one message is needed.")])
        if asked is not None and not 1 <= asked <= plan.max_output_tokens:
            raise InvalidRequest([FieldFault("max_tokens", f"This plan allows 1 to {plan.max_output_tokens} tokens.")])
        pool = ports.gateway.resolve(request.model, plan.models)
        messages = request.messages
        if messages[0].role is not Role.SYSTEM:
            messages = (PromptMessage(Role.SYSTEM, SYSTEM_PROMPT), *messages)
        prompt_ids = tuple(await asyncio.to_thread(ports.gateway.tokenizer(pool.name).prompt, messages))
        limit = pool.context_tokens - MINIMUM_OUTPUT_TOKENS
        if pool.context_tokens > 0 and len(prompt_ids) > limit:
            raise PromptTooLong(prompt_tokens=len(prompt_ids), limit_tokens=limit)
        max_tokens = output_tokens(
            asked or ports.answer_tokens(pool.name, plan), context_tokens=pool.context_tokens, prompt_tokens=len(prompt_ids)
        )
        decision = ports.gateway.decide(pool.name, prompt_tokens=len(prompt_ids), output_tokens=max_tokens, band=plan.band)
        if isinstance(decision, Shed):
            refusal = HighDemand if decision.code == "high_demand" else NoCapacity
            raise refusal(retry_after_ms=decision.retry_after_ms)
        generation_id = GenerationId(ports.ids.new(IdKind.GENERATION))
        engine = EngineRequest(
            request_id=generation_id,
            tenant_id=principal.tenant_id,
            prompt_ids=prompt_ids,
            sampling=sampling_of(request.params, max_tokens=max_tokens, noise_name=generation_id),
            band=plan.band,
            public_prefix_tokens=public_prefix_tokens(ports.gateway.tokenizer(pool.name), prompt_ids),
        )
        events = ports.gateway.stream(pool.name, engine, deadline_s=queue_deadline_s(plan))
        return CompletionStream(ports, plan.name, (pool.name, pool.model), engine, events)


class CompletionStream:
    """One completion: ``async with`` it, then iterate. Leaving the context stops the engine.

    Raises ``EngineFailed`` and ``QueueTimeout`` while iterating. ``usage`` is the engine's own count once it has finished,
    until then what has arrived.
    """

    def __init__(
        self,
        ports: Ports,
        plan: str,
        served: tuple[str, str],
        request: EngineRequest,
        events: AsyncGenerator[EngineEvent | Queued, None],
    ) -> None:
        self.generation_id = GenerationId(request.request_id)
        self.pool, self.model = served
        self._ports = ports
        self._plan = plan
        self._events = events
        self._opened_at = ports.clock.monotonic()
        self._prompt_tokens = len(request.prompt_ids)
        self._output_tokens = 0
        self._finished: Finished | None = None
        self._failed = False

    @property
    def usage(self) -> EngineUsage:
        """What it has cost so far."""
        if self._finished is not None:
            return self._finished.usage
        return EngineUsage(self._prompt_tokens, 0, self._output_tokens, 0, 0, 0, 0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._events.aclose()
        if self._finished is not None:
            status = GenerationStatus.COMPLETE
        else:
            status = GenerationStatus.FAILED if self._failed else GenerationStatus.CANCELLED
        self._ports.telemetry.count(GENERATIONS, 1, self.pool, self._plan, status.value)
        log.info("completion_ended", generation_id=self.generation_id, status=status.value, output_tokens=self.usage.output_tokens)

    async def __aiter__(self) -> AsyncIterator[EngineEvent]:
        try:
            async for event in self._events:
                if isinstance(event, Queued):
                    continue
                self._note(event)
                yield event
        except Exception:  # only noted, for the count of how completions end; the caller gets it
            self._failed = True
            raise

    def _note(self, event: EngineEvent) -> None:
        if isinstance(event, Tokens):
            if not self._output_tokens:
                self._ports.telemetry.observe(TTFT, self._ports.clock.monotonic() - self._opened_at, self.pool, self._plan)
            self._output_tokens += len(event.token_ids)
        elif isinstance(event, Finished):
            self._finished = event
