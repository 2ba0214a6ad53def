"""A replica: take what arrived, plan, step, say what came out; again. One thread, one executor."""

from __future__ import annotations

import os
from dataclasses import replace

import structlog

from antiphon.core.clock import Clock
from antiphon.core.errors import EngineFailed
from antiphon.core.generation import FinishReason
from antiphon.engines.base import EngineUsage, Executor, ReplicaSpec, TextStream, Tokenizer
from antiphon.inference.line import LineRules
from antiphon.inference.return_wait import ReturnWait
from antiphon.inference.scheduler import Scheduler, SchedulerSettings, SequenceOutput
from antiphon.inference.step_budget import StepTargets
from antiphon.inference.wire import (
    Cancel,
    Channel,
    FailedFrame,
    FinishedFrame,
    PrefillFrame,
    ReplicaReady,
    ReplicaSnapshot,
    SequenceFrame,
    SetBand,
    StepFrame,
    StepTimes,
    Stop,
    Submit,
    TokensFrame,
)

log = structlog.get_logger(__name__)

_MOST_EMPTY_PLANS = 100
_SHORT_PROMPT_TOKENS = 64
"""As many requests may wait here as have such prompts that one step computes them."""
_WIDE_ROWS = 256
_WIDE_PREFILL_TOKENS = 4096
"""Of an engine whose step, as a GPU's, takes as long with many sequences as with few."""


def settings_of(spec: ReplicaSpec) -> SchedulerSettings:
    """How a replica of this kind schedules."""
    targets, line = StepTargets(inter_token_s=spec.inter_token_ms / 1000), LineRules(order=spec.order)
    if spec.engine != "reference":
        return SchedulerSettings(targets=targets, line=line)
    targets = replace(targets, prefill_tokens_beside_decode=_WIDE_PREFILL_TOKENS, burst_prompts=_WIDE_ROWS)
    return SchedulerSettings(max_rows=_WIDE_ROWS, targets=targets, line=line)


class Replica:
    """Serves the requests that arrive on ``channel`` until ``Stop``. The executor is not closed."""

    def __init__(
        self,
        executor: Executor,
        tokenizer: Tokenizer,
        channel: Channel,
        clock: Clock,
        settings: SchedulerSettings | None = None,
        release: str = "",
    ) -> None:
        settings = settings or SchedulerSettings()
        self._release = release
        self._executor = executor
        self._tokenizer = tokenizer
        self._channel = channel
        self._clock = clock
        self._scheduler = Scheduler(executor.shape, settings)
        self._max_rows = settings.max_rows
        self._most_waiting = settings.targets.prefill_tokens_beside_decode // _SHORT_PROMPT_TOKENS
        self._texts: dict[int, TextStream] = {}
        self._out: list[SequenceFrame] = []
        self._last_handle = 0
        self._emit_s = 0.0
        self._empty_plans = 0
        self._return_wait, self._company = ReturnWait(), ReturnWait()
        self._ended = 0

    def run(self) -> None:
        """Serve. Raises what the executor raises, after every request here was told that it failed."""
        self._channel.send(
            ReplicaReady(
                pid=os.getpid(),
                shape=self._executor.shape,
                context_tokens=self._scheduler.context_tokens,
                max_rows=self._max_rows,
                most_waiting=self._most_waiting,
                release=self._release,
            )
        )
        self._send(None)
        try:
            while self._take_commands():
                self._step()
        except Exception as failure:
            self._fail_all(failure)
            raise

    def _take_commands(self) -> bool:
        """Act on all commands that arrived; wait for one when there is nothing to compute. ``False`` after ``Stop``."""
        idle = self._scheduler.idle
        wait, likely = (self._company, self._most_waiting) if idle and not self._ended else (self._return_wait, self._ended)
        expected = wait.expected(likely)
        commands = self._channel.receive(wait=idle, expected=expected)
        wait.observe(len(commands), expected)
        self._ended = 0
        for command in commands:
            match command:
                case Submit():
                    self._submit(command)
                case Cancel(handle):
                    self._cancel(handle)
                case SetBand(handle, band):
                    self._scheduler.set_band(handle, band)
                case Stop():
                    return False
        return True

    def _step(self) -> None:
        """One forward pass and its frame; without anything to compute, the frame of the commands alone."""
        started = self._clock.monotonic()
        plan = self._scheduler.plan(started)
        if plan is None:
            self._send(None)
            self._empty_plans = 0 if self._scheduler.idle else self._empty_plans + 1
            if self._empty_plans > _MOST_EMPTY_PLANS:
                raise EngineFailed("The engine makes no progress.")
            return
        self._empty_plans = 0
        planned = self._clock.monotonic()
        result = self._executor.step(plan)
        computed = self._clock.monotonic()
        # Decode rows come first in a step. Told in reverse, first tokens are not written to their readers behind all others.
        for output in reversed(self._scheduler.apply(result, computed)):
            self._emit(output, computed)
        self._send(StepTimes(planned - started, result.infer_s, result.sample_s, self._emit_s))
        self._emit_s = self._clock.monotonic() - computed

    def _submit(self, command: Submit) -> None:
        handle, request, now = command.handle, command.request, self._clock.monotonic()
        self._last_handle = max(self._last_handle, handle)
        text = self._tokenizer.text_stream(request.sampling.stop)
        for token_id in request.already_ids:
            if text.stopped:
                break
            text.push(token_id)
        try:
            reason = FinishReason.STOP if text.stopped else self._scheduler.submit(handle, request, now)
        except EngineFailed as failure:
            self._out.append(FailedFrame(handle, failure.detail))
            return
        if reason is None:
            self._texts[handle] = text
        else:
            usage = EngineUsage(0, 0, len(request.already_ids), 0, 0, 0, 0)
            self._out.append(FinishedFrame(handle, reason.value, usage, text.finish()))

    def _cancel(self, handle: int) -> None:
        text = self._texts.pop(handle, None)
        usage = self._scheduler.cancel(handle, self._clock.monotonic())
        if text is not None and usage is not None:
            self._out.append(FinishedFrame(handle, FinishReason.CANCELLED.value, usage, text.finish()))

    def _emit(self, output: SequenceOutput, now: float) -> None:
        handle = output.sequence_id
        if output.token_id is None:
            self._out.append(PrefillFrame(handle, output.done_tokens, output.total_tokens))
            return
        text = self._texts[handle]
        self._out.append(TokensFrame(handle, (output.token_id,), text.push(output.token_id)))
        ended = output.ended
        if ended is None and text.stopped:
            ended = self._scheduler.finish(handle, now)
        if ended is not None:
            del self._texts[handle]
            self._ended += 1
            self._out.append(FinishedFrame(handle, ended.reason.value, ended.usage, text.finish()))

    def _send(self, times: StepTimes | None) -> None:
        """One frame with all that happened since the last one."""
        state = self._scheduler.state
        snapshot = ReplicaSnapshot(
            running=state.running,
            waiting=state.waiting,
            free=state.blocks.free,
            held=state.blocks.held,
            cached=state.blocks.cached,
            unpromised=state.unpromised,
            last_handle=self._last_handle,
            host_used=state.host_used,
            prefill_tokens=state.prefill_tokens,
            preemptions=state.preemptions,
            recomputed_tokens=state.recomputed_tokens,
            expected_output=state.expected_output,
            step_ms=state.step_ms,
        )
        cached, dropped = self._scheduler.cache_changes()
        self._channel.send(StepFrame(tuple(self._out), snapshot, times, cached, dropped))
        self._out.clear()

    def _fail_all(self, failure: Exception) -> None:
        detail = failure.detail if isinstance(failure, EngineFailed) else "The engine failed while computing this answer."
        log.error("replica_failed", error=type(failure).__name__, requests=len(self._texts))
        self._out.extend(FailedFrame(handle, detail) for handle in self._texts)
        self._send(None)
