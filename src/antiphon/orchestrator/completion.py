"""Completions for ``/v1/chat/completions``: the same gateway, nothing stored, and an end when the client goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import structlog

from antiphon.core.allowance import Customer, Serving
from antiphon.core.errors import AntiphonError, Draining, FieldFault, InvalidRequest, PromptTooLong
from antiphon.core.events import Queued
from antiphon.core.generation import GenerationStatus, TurnParams, Usage
from antiphon.core.ids import GenerationId, IdKind
from antiphon.core.limits import Standing
from antiphon.core.messages import Role
from antiphon.core.plans import Plan
from antiphon.core.telemetry import GENERATIONS, TTFT
from antiphon.core.tenancy import Principal
from antiphon.engines.base import EngineEvent, EngineRequest, Finished, PromptMessage, Tokenizer, Tokens
from antiphon.inference.fleet import ServedPool
from antiphon.inference.gateway import RequestEvents
from antiphon.orchestrator.asking import Size, ask_for, route_of
from antiphon.orchestrator.books import Account
from antiphon.orchestrator.ports import Ports
from antiphon.orchestrator.prompt import MINIMUM_OUTPUT_TOKENS, SYSTEM_PROMPT, output_tokens
from antiphon.orchestrator.request import public_prefix_tokens, sampling_of
from antiphon.orchestrator.runner import Runner
from antiphon.orchestrator.thinking import Spoken, ThinkingSplit
from antiphon.orchestrator.turn import queue_deadline_s
from antiphon.stores.conversations.base import Owner

log = structlog.get_logger(__name__)

_LAST_WORD_S = 0.3
_SHORT_CHARACTERS = 2000
"""A prompt up to here is tokenised within half a millisecond; a thread on a busy machine is waited for longer."""


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
        """Check and admit a completion, and ask the engine; whoever has the stream enters it, before anything can cancel that.

        Raises ``InvalidRequest``, ``ModelGone``, ``Forbidden``, ``PromptTooLong``, ``HighDemand``, ``RateLimited``, ``QuotaExhausted``,
        ``ConcurrencyLimited``, ``NoCapacity``, ``Draining``, ``StoreUnavailable``.
        """
        if self._runner.draining:
            raise Draining
        ports, plan = self._ports, self._ports.plan(principal.plan).within(principal.band)
        _check(request, plan)
        pool = ports.gateway.resolve(request.model, plan.models)
        prompt_ids = await self._prompt_ids(request, pool)
        asked = request.params.max_tokens or ports.answer_tokens(pool.name, plan)
        max_tokens = output_tokens(asked, context_tokens=pool.context_tokens, prompt_tokens=len(prompt_ids))
        generation_id = GenerationId(ports.ids.new(IdKind.GENERATION))
        size = Size(len(prompt_ids), max_tokens, free_length=False)
        ask = replace(ask_for(Owner(principal.tenant_id, principal.user_id), plan, size, kind="completion"), downgrade=False)
        route_of(ports.gateway.accept(generation_id, pool.name, ask), pool)
        engine = EngineRequest(
            request_id=generation_id,
            tenant_id=principal.tenant_id,
            prompt_ids=prompt_ids,
            sampling=sampling_of(request.params, max_tokens=max_tokens, noise_name=generation_id),
            band=plan.band,
            public_prefix_tokens=public_prefix_tokens(ports.gateway.tokenizer(pool.name), prompt_ids),
        )
        account = Account(generation_id, Customer.of(principal, plan), Serving(pool.name, pool.model))
        stream = await self._begin(account, engine)
        ports.allowances.watch.began(account.customer, generation_id, "", request.messages[-1].content)
        return stream

    async def _prompt_ids(self, request: CompletionRequest, pool: ServedPool) -> tuple[int, ...]:
        messages = request.messages
        if messages[0].role is not Role.SYSTEM:
            messages = (PromptMessage(Role.SYSTEM, SYSTEM_PROMPT), *messages)
        prompt_ids = await _tokenised(self._ports.gateway.tokenizer(pool.name), messages)
        limit = pool.context_tokens - MINIMUM_OUTPUT_TOKENS
        if pool.context_tokens > 0 and len(prompt_ids) > limit:
            raise PromptTooLong(prompt_tokens=len(prompt_ids), limit_tokens=limit)
        return prompt_ids

    async def _begin(self, account: Account, engine: EngineRequest) -> CompletionStream:
        """Hold what it may use, and ask; where either is refused nothing is held, and the place in line is given up."""
        ports, customer, name = self._ports, account.customer, account.generation_id
        prompt_tokens, most = len(engine.prompt_ids), engine.sampling.max_tokens
        try:
            standings = await ports.allowances.reserve(
                customer, account.serving, name, prompt_tokens=prompt_tokens, most_output_tokens=most
            )
        except BaseException:
            ports.gateway.withdraw(name)
            raise
        try:
            events = ports.gateway.open(account.serving.pool, engine, deadline_s=queue_deadline_s(customer.plan))
        except AntiphonError:
            ports.gateway.withdraw(name)
            await ports.allowances.release(customer, name)
            raise
        return CompletionStream(ports, account, engine, events, standings)


def _check(request: CompletionRequest, plan: Plan) -> None:
    asked = request.params.max_tokens
    if not request.messages:
        raise InvalidRequest([FieldFault("messages", "At least one message is needed.")])
    if asked is not None and not 1 <= asked <= plan.max_output_tokens:
        reason = f"Takes 1 to {plan.max_output_tokens} on this plan, as max_completion_tokens does, but got {asked}."
        raise InvalidRequest([FieldFault("max_tokens", reason)])


async def _tokenised(tokenizer: Tokenizer, messages: Sequence[PromptMessage]) -> tuple[int, ...]:
    """In a thread, unless it is done sooner than a thread is reached."""
    if sum(len(message.content) for message in messages) <= _SHORT_CHARACTERS:
        return tuple(tokenizer.prompt(messages))
    return tuple(await asyncio.to_thread(tokenizer.prompt, messages))


class CompletionStream:
    """One completion: ``async with`` it, then iterate. Leaving the context stops the engine, and accounts for what was computed.

    Raises ``EngineFailed`` and ``QueueTimeout`` while iterating. ``usage`` is the engine's own count once it has finished,
    until then what has arrived. ``standings``: where the caller stands with their limits.
    """

    def __init__(
        self, ports: Ports, account: Account, request: EngineRequest, events: RequestEvents, standings: Sequence[Standing]
    ) -> None:
        self.generation_id = account.generation_id
        self.pool, self.model = account.serving.pool, account.serving.model
        self.standings = standings
        self._ports = ports
        self._customer = account.customer
        self._events = events
        self._renewing: asyncio.TimerHandle | asyncio.Task[None] | None = None
        self._opened_at = ports.clock.monotonic()
        self._record = ports.books.open(account, prompt_tokens=len(request.prompt_ids))
        self._failed = False
        self._split = ThinkingSplit(ports.gateway.tokenizer(self.pool), request.sampling.stop)

    @property
    def usage(self) -> Usage:
        """What it has cost so far."""
        return self._record.usage

    def spoken(self, event: Tokens | Finished) -> Spoken:
        """What an event adds, thoughts apart from the answer; to be asked once for each event, in order."""
        return self._split.push(event.token_ids, event.text) if isinstance(event, Tokens) else self._split.finish(event.text)

    async def __aenter__(self) -> Self:
        self._renew_later()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await finish_anyway(self._end())

    async def __aiter__(self) -> AsyncIterator[EngineEvent]:
        try:
            while self._record.finished is None:
                event = await self._event()
                if not isinstance(event, Queued):
                    yield event
        except Exception:  # only noted, for the count of how completions end; the caller gets it
            self._failed = True
            raise

    async def _event(self) -> EngineEvent | Queued:
        """The next event; a caller who is cancelled leaves it to ``_end``, which wants the engine's last word."""
        event = await self._events.next()
        if isinstance(event, Queued):
            return event
        if self._record.note(event):
            self._ports.telemetry.observe(TTFT, self._ports.clock.monotonic() - self._opened_at, self.pool, self._customer.plan.name)
        else:
            await self._record.kept()
        return event

    def _renew_later(self) -> None:
        """A timer, not a task that sleeps: most completions end before it is due."""
        self._renewing = asyncio.get_running_loop().call_later(self._ports.timing.heartbeat_seconds, self._renew_now)

    def _renew_now(self) -> None:
        self._renewing = asyncio.create_task(self._renew())

    async def _renew(self) -> None:
        await self._ports.allowances.renew(self._customer.tenant_id, self.generation_id)
        self._renew_later()

    async def _end(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        complete = self._record.finished is not None
        if not complete and not self._failed:
            await self._stop()
        self._events.close()
        incomplete = GenerationStatus.FAILED if self._failed else GenerationStatus.CANCELLED
        status = GenerationStatus.COMPLETE if complete else incomplete
        self._ports.telemetry.count(GENERATIONS, 1, self.pool, self._customer.plan.name, status.value)
        await self._record.close(status)
        log.info("completion_ended", generation_id=self.generation_id, status=status.value, output_tokens=self.usage.output_tokens)

    async def _stop(self) -> None:
        """Cancel the request and hear what it cost; what came before is enough where that takes too long."""
        if self._ports.gateway.cancel(self.generation_id):
            with suppress(Exception):
                async with asyncio.timeout(_LAST_WORD_S):
                    while self._record.finished is None:
                        await self._event()


async def finish_anyway(act: Coroutine[object, object, None]) -> None:
    """Run ``act`` to its end, also where the caller is cancelled meanwhile; then the cancellation goes on."""
    task = asyncio.ensure_future(act)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            await asyncio.wait((task,))
        raise
