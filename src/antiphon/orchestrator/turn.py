"""The story of one generation: introduce it, ask the engine, write what it says, end it once.

Every way out ends the same: the store has message, usage and outbox row in one transaction, and only then the log gets its
one terminal entry. Two ways leave no trace: being overtaken by a newer claim, and a drain, which leaves the rest of the
story to the next start.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import timedelta

import structlog

from antiphon.core.allowance import Serving
from antiphon.core.errors import (
    AntiphonError,
    Deleted,
    EngineFailed,
    GenerationFailed,
    Interrupted,
    ModelGone,
    NoCapacity,
    NotFound,
    StaleEpoch,
)
from antiphon.core.events import Downgraded, LogEvent, Meta, PrefillProgress, Queued, ReadContext, Snapshot
from antiphon.core.generation import Generation, GenerationStatus
from antiphon.core.plans import Plan
from antiphon.core.telemetry import CACHED_ANSWERS, GENERATIONS, TTFT, UNWATCHED_TOKENS
from antiphon.core.usage import usage_json, usage_of
from antiphon.engines.base import Finished, Prefilling, Tokens
from antiphon.inference.fleet import ServedPool
from antiphon.orchestrator.allowances import Ended, customer_of
from antiphon.orchestrator.asking import Size, ask_for
from antiphon.orchestrator.attendance import AbandonPolicy, Attendance
from antiphon.orchestrator.coalescer import Coalescer
from antiphon.orchestrator.control import Control
from antiphon.orchestrator.ending import Ending, Meter, cancelled, completed, deleted, failed, recorded, terminal_event
from antiphon.orchestrator.keeper import Keeper
from antiphon.orchestrator.pace import Grid, persist
from antiphon.orchestrator.parts import read_context
from antiphon.orchestrator.planner import PromptPlanner
from antiphon.orchestrator.ports import Ports
from antiphon.orchestrator.response_cache import CachedAnswer
from antiphon.orchestrator.thinking import Spoken, ThinkingSplit
from antiphon.orchestrator.turn_prompt import TurnPrompt, Written
from antiphon.orchestrator.writer import LogWriter
from antiphon.stores.conversations.base import Owner
from antiphon.stores.generations.base import FinishedGeneration
from antiphon.stores.log.base import LogState

log = structlog.get_logger(__name__)

_RELEASE_S = 1.0
_LAST_WORD_S = 0.3
_AFTER_LOAD_S = 15.0
"""So long a turn waits for a replica at least, however long its model was loaded."""


class Turn:
    """One claimed generation. ``run`` is called once, in a task that only a drain cancels."""

    def __init__(self, ports: Ports, generation: Generation, control: Control, grid: Grid, planner: PromptPlanner) -> None:
        self._ports = ports
        self._generation = generation
        self._owner = Owner(generation.tenant_id, generation.user_id)
        self._plan = (ports.plans.get(generation.plan) or Plan(generation.plan)).within(generation.band)
        self._control = control
        self._grid = grid
        self._prompt = TurnPrompt(ports, generation, self._plan, planner, control.continues)
        self._writer = LogWriter(ports.log, generation.id, generation.epoch)
        self._coalescer = Coalescer(self._writer, grid)
        self._attendance = Attendance(control.readership, ports.clock, self._plan, lambda band: ports.gateway.set_band(generation.id, band))
        self._introduced_seq = 0
        self._meter = Meter(ports.clock, generation.usage)
        self._own_ids: tuple[int, ...] = ()
        self._split: ThinkingSplit | None = None
        self._spoken = False
        self._ttft_ms: int | None = None
        self._unwatched_tokens = 0

    async def run(self) -> None:
        """Bring the generation to its end. Raises nothing but cancellation."""
        logger = log.bind(generation_id=self._generation.id, epoch=self._generation.epoch)
        self._tell_where_it_stands()
        try:
            ending = await self._ending()
            self._control.finishing = True
            if ending.status is GenerationStatus.CANCELLED:
                await self._cut()
            await self._finish(ending)
        except StaleEpoch:
            logger.info("generation_overtaken")
        except Exception:  # the row stays open with its lease, so the sweeper takes it over; readers lose nothing
            logger.exception("generation_not_finished")
        finally:
            self._control.live.settle()
            self._ports.gateway.withdraw(self._generation.id)

    def _tell_where_it_stands(self) -> None:
        """Readers know from the first moment who answers, and where the turn waits."""
        generation, live = self._generation, self._control.live
        if generation.route_rule == "downgrade":
            live.announce(Downgraded(generation.requested_model, generation.model, generation.route_reason))
        place = self._ports.gateway.reserved(generation.id)
        if place is not None:
            live.publish(place)

    async def _ending(self) -> Ending:
        try:
            return await self._tell()
        except StaleEpoch:
            raise
        except GenerationFailed as failure:
            reason = failure
        except NotFound:
            reason = Deleted("The conversation was deleted.")
        except AntiphonError as refusal:
            reason = EngineFailed(str(refusal))
        except Exception:  # an accepted turn ends in exactly one terminal event, also when the fault is ours
            log.exception("generation_broke", generation_id=self._generation.id)
            reason = EngineFailed("Something went wrong while writing this answer.")
        log.warning("generation_failed", generation_id=self._generation.id, code=reason.code)
        return failed(reason, self._meter.measured(), text=self._shown())

    async def _tell(self) -> Ending:
        state = await self._writer.open()
        self._control.readership.delivered(state.seq)
        self._control.readership.newest_seq = lambda: self._writer.sent_seq
        if state.terminal is not None:
            return recorded(state.terminal, text=state.text)
        await self._introduce(state)
        self._introduced_seq = self._writer.seq
        self._own_ids = state.token_ids
        self._meter.remembered(len(self._own_ids))
        for last_attempt in (False, True):
            if self._generation.cancel_requested or self._control.cancelled.is_set():
                break
            try:
                return await self._answer()
            except (EngineFailed, NoCapacity) as failure:
                if last_attempt or self._spoken:
                    raise
                log.warning("generation_retried", generation_id=self._generation.id, code=failure.code)
        return cancelled(self._meter.measured())

    async def _introduce(self, state: LogState) -> None:
        """Say what this is. Raises ``Interrupted`` when readers were shown more than the log still holds."""
        generation = self._generation
        lost = len(generation.checkpoint_text) > max(len(state.text), len(generation.prior_text))
        events: list[LogEvent] = []
        if lost:
            events.append(Snapshot(generation.checkpoint_text))
        elif state.seq == 0 and generation.prior_text:
            events.append(Snapshot(generation.prior_text))
        if state.seq == 0 or (state.seq == 1 and generation.prior_text):
            events.append(
                Meta(
                    generation_id=generation.id,
                    conversation_id=generation.conversation_id,
                    message_id=generation.message_id,
                    user_message_id=generation.user_message_id,
                    model=generation.model,
                    requested_model=generation.requested_model,
                    context=await self._read_context(),
                )
            )
        if events:
            await self._writer.append(*events)
        if lost:
            raise Interrupted("The answer was interrupted. What was written is kept.")

    async def _read_context(self) -> ReadContext | None:
        """What the model is not given whole, to be said at once; ``None`` where that cannot be told now."""
        try:
            answer = await self._ports.conversations.message(self._owner, self._generation.message_id)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is no reason to disturb the answer
            log.warning("context_not_told", generation_id=self._generation.id, error=type(error).__name__)
            return None
        return read_context(answer.prompt)

    async def _answer(self) -> Ending:
        """One attempt at the engine, with a writer, a keeper and an eye on the readers beside it; what ends first decides."""
        self._coalescer = Coalescer(self._writer, self._grid)
        engine = asyncio.create_task(self._generate())
        writing = asyncio.create_task(self._coalescer.run())
        keeper = Keeper(self._ports, self._generation, self._writer, on_cancel=self._control.cancelled.set, usage=self._meter.measured)
        keeping = asyncio.create_task(keeper.run())
        attending = asyncio.create_task(self._attend())
        stopping = asyncio.create_task(self._control.cancelled.wait())
        try:
            await asyncio.wait((engine, writing, keeping, attending, stopping), return_when=asyncio.FIRST_COMPLETED)
            stopped = not engine.done() and (self._control.cancelled.is_set() or attending.done())
            self._coalescer.stop()
            if stopped and self._ports.gateway.cancel(self._generation.id):
                await asyncio.wait((engine,), timeout=_LAST_WORD_S)
        finally:
            self._coalescer.stop()
            await _release(engine, keeping, attending, stopping)
            await asyncio.wait((writing,))
        for helper in (writing, keeping, attending):
            if not helper.cancelled():
                helper.result()
        return self._stopped(engine) if stopped else await self._ended(engine)

    def _stopped(self, engine: asyncio.Task[Finished]) -> Ending:
        """What is not in the log yet is dropped; what it cost counts, by the engine's own account where it came in time."""
        if not engine.done() or engine.cancelled() or engine.exception() is not None:
            return cancelled(self._meter.measured())
        return replace(cancelled(self._meter.reported(engine.result().usage)), estimated=False)

    async def _ended(self, engine: asyncio.Task[Finished]) -> Ending:
        failure = engine.exception()
        if failure is not None:
            await self._coalescer.flush()
            raise failure
        finished = engine.result()
        spoken = Spoken(text=finished.text) if self._split is None else self._split.finish(finished.text)
        self._coalescer.add((), spoken.text, spoken.reasoning)
        await self._coalescer.flush()
        return completed(finished, self._meter.reported(finished.usage))

    async def _generate(self) -> Finished:
        """Ask the gateway and hand on what it yields; returns the engine's last word. What the response cache has is not asked for."""
        starter = None if self._own_ids else self._control.starter
        if starter is not None and starter.answer is not None:
            return await self._give_again(starter.answer)
        deadline = self._ports.clock.monotonic() + queue_deadline_s(self._plan)
        pool = await self._prompt.ready_pool(queue_deadline_s(self._plan), self._control.live.publish)
        request = await self._prompt.request(pool, self._attendance.band, self._written())
        self._split = await self._new_split(pool)
        self._coalescer.skip(request.skip)
        self._meter.asked(request.prompt_tokens, base_tokens=request.base_tokens, earlier_tokens=len(self._own_ids))
        engine = replace(request.engine, band=self._attendance.band)
        if starter is not None:
            starter.began()
        deadline_s = max(_AFTER_LOAD_S, deadline - self._ports.clock.monotonic())
        size = Size(len(engine.prompt_ids), engine.sampling.max_tokens)
        ask = replace(ask_for(self._owner, self._plan, size, kind="send"), band=engine.band)
        async with aclosing(self._ports.gateway.stream(pool.name, engine, deadline_s=deadline_s, ask=ask)) as events:
            async for event in events:
                match event:
                    case Queued():
                        self._control.live.publish(event)
                    case Prefilling(done_tokens, total_tokens):
                        self._meter.prefilled(done_tokens)
                        self._control.live.publish(PrefillProgress(done_tokens, total_tokens))
                    case Tokens():
                        self._take(event)
                        if starter is not None:
                            starter.took(event)
                    case Finished():
                        if starter is not None:
                            starter.ended(event, request.prompt_tokens)
                        return event
        raise EngineFailed("The engine ended without a last word.")

    async def _give_again(self, answer: CachedAnswer) -> Finished:
        pool = self._ports.gateway.resolve(self._pool_name, ())
        self._split = await self._new_split(pool)
        self._meter.asked(answer.prompt_tokens, base_tokens=0, earlier_tokens=0)
        self._take(Tokens(answer.token_ids, answer.text))
        self._ports.telemetry.count(CACHED_ANSWERS, 1, pool.name)
        return answer.finished()

    def _written(self) -> Written:
        return Written(self._writer.text.removeprefix(self._generation.prior_text), self._own_ids)

    async def _new_split(self, pool: ServedPool) -> ThinkingSplit:
        """Told apart from the first token on: those that an earlier start has written go through it again."""
        generation = self._generation
        tokenizer = self._ports.gateway.tokenizer(pool.name)
        split = ThinkingSplit(tokenizer, generation.params.stop, continued=bool(generation.prior_text))
        await asyncio.to_thread(split.push, self._own_ids, "")
        return split

    def _take(self, tokens: Tokens) -> None:
        self._meter.sampled(len(tokens.token_ids))
        if not self._control.readership.readers:
            self._unwatched_tokens += len(tokens.token_ids)
        spoken = Spoken(text=tokens.text) if self._split is None else self._split.push(tokens.token_ids, tokens.text)
        self._coalescer.add(tokens.token_ids, spoken.text, spoken.reasoning)
        if (spoken.text or spoken.reasoning) and not self._spoken:
            self._spoken = True
            self._control.live.settle()
            if not self._own_ids:
                self._ttft_ms = self._elapsed_ms()
                self._ports.telemetry.observe(TTFT, self._ttft_ms / 1000, self._pool_name, self._generation.plan)

    async def _attend(self) -> None:
        """Act on the readers' absence; returns when nobody is going to read this."""
        temporary = False
        try:
            head = await persist(
                lambda: self._ports.conversations.get(self._owner, self._generation.conversation_id), what="read_conversation", forever=True
            )
            temporary = head.temporary
        except Exception as error:  # noqa: BLE001 - whatever it is, it is no reason to disturb the answer
            log.warning("conversation_not_read", generation_id=self._generation.id, error=type(error).__name__)
        policy = AbandonPolicy(self._ports.timing.detached_grace_seconds, self._plan.on_abandon == "cancel", temporary)
        await self._attendance.run(policy)
        log.info("generation_abandoned", generation_id=self._generation.id, temporary=temporary)

    async def _cut(self) -> None:
        """Drop what was written behind the last that a reader was given, or the stopper has seen. Nothing of an earlier start."""
        seen = self._control.seen_seq
        if seen is None or not self._writer.opened:
            return
        with self._control.readership.cutting() as delivered:
            if delivered is not None:
                await self._writer.cut(max(delivered, seen, self._introduced_seq))

    async def _finish(self, ending: Ending) -> None:
        """Store first, then the log."""
        duration_ms = self._elapsed_ms()
        text = self._shown()
        now = self._ports.clock.now()
        serving = Serving(self._pool_name, self._generation.model)
        ended = Ended(self._generation.id, ending.status, ending.usage, now)
        ended = replace(ended, usage=replace(ended.usage, cost=self._ports.allowances.cost(serving, ended)))
        ending = replace(ending, usage=ended.usage)
        record = usage_of(self._generation, ending.usage, finish_reason=ending.finish_reason, estimated=ending.estimated, finished_at=now)
        finished = FinishedGeneration(
            generation_id=self._generation.id,
            epoch=self._generation.epoch,
            status=ending.status,
            text=text,
            finish_reason=ending.finish_reason,
            usage=ending.usage,
            ttft_ms=self._ttft_ms,
            duration_ms=duration_ms,
            error=ending.error,
            outbox_payload=usage_json(record),
            now=now,
            content_tokens=await self._content_tokens(text),
            reasoning="" if self._split is None else self._split.reasoning,
            prompt=self._prompt.record,
        )
        await persist(lambda: self._finalise(finished), what="finalise", forever=True, whatever=True)
        await self._ports.allowances.settle(customer_of(self._generation, self._plan), serving, ended)
        told = deleted(ending) if self._control.deleted else ending
        await self._writer.append(terminal_event(self._generation, told, ttft_ms=self._ttft_ms, duration_ms=duration_ms), forever=True)
        self._ports.telemetry.count(GENERATIONS, 1, self._pool_name, self._generation.plan, ending.status.value)
        if self._unwatched_tokens:
            self._ports.telemetry.count(UNWATCHED_TOKENS, self._unwatched_tokens, self._pool_name)

    async def _finalise(self, finished: FinishedGeneration) -> None:
        """Repeatable: an earlier attempt that landed, though its answer was lost, is recognised by our own epoch."""
        try:
            await self._ports.generations.finalise(finished)
        except StaleEpoch:
            with suppress(NotFound):  # the conversation is hidden by now; the log tells who was overtaken
                stored = await self._ports.generations.get(self._owner, finished.generation_id)
                if not stored.status.terminal or stored.epoch != finished.epoch:
                    raise

    async def _content_tokens(self, text: str) -> int | None:
        """The message's length for later prompts, in its model's tokens; ``None`` when that cannot be told now."""
        try:
            tokenizer = self._ports.gateway.tokenizer(self._pool_name)
            return len(await asyncio.to_thread(tokenizer.encode, text))
        except ModelGone:
            return None
        except Exception:  # a count is an economy: without it the text is counted when it is next read
            log.exception("text_not_counted", generation_id=self._generation.id)
            return None

    def _shown(self) -> str:
        """What readers have seen; while the log cannot be read, what the store knows of it."""
        if self._writer.opened and self._writer.seq:
            return self._writer.text
        return self._generation.checkpoint_text or self._generation.prior_text

    def _elapsed_ms(self) -> int:
        """Milliseconds since the turn was accepted, by the wall clock, since it may have been another process."""
        return max(0, (self._ports.clock.now() - self._generation.created_at) // timedelta(milliseconds=1))

    @property
    def _pool_name(self) -> str:
        return self._generation.pool or self._generation.model


def queue_deadline_s(plan: Plan) -> float:
    """How long an accepted turn may wait for a replica before it ends in ``queue_timeout``."""
    return max(60.0, 6 * plan.ttft_limit_ms / 1000)


async def _release(*tasks: asyncio.Task[object]) -> None:
    """Cancel tasks and see them end; one that does not within a second is left to end by itself."""
    for task in tasks:
        task.cancel()
    ended, pending = await asyncio.wait(tasks, timeout=_RELEASE_S)
    for task in ended:
        if not task.cancelled():
            task.exception()
    if pending:
        log.warning("task_slow_to_stop", tasks=len(pending))
