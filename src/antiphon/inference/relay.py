"""A replica whose engine takes whole requests: what arrives goes on to it, what comes back is framed. One event loop, one process."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from dataclasses import dataclass

import structlog

from antiphon.core.clock import Clock
from antiphon.core.errors import EngineFailed
from antiphon.core.generation import FinishReason
from antiphon.engines.base import BLOCK_TOKENS, Engine, EngineEvent, EngineRequest, EngineUsage, ExecutorShape, Finished, Prefilling, Tokens
from antiphon.inference.channel import RelayChannel
from antiphon.inference.wire import (
    Cancel,
    Command,
    FailedFrame,
    FinishedFrame,
    PrefillFrame,
    ReplicaReady,
    ReplicaSnapshot,
    SequenceFrame,
    StepFrame,
    Stop,
    Submit,
    TokensFrame,
)

log = structlog.get_logger(__name__)

_MOST_ROWS = 64
"""Requests under way at once; more wait in the pool's line, where they have a place and a time."""
_MOST_UNTOLD = 4
"""So many may begin before the gateway is told, which sends no more than a few to who does not say that it has them."""


@dataclass(slots=True)
class _Underway:
    """One request that the engine has."""

    request: EngineRequest
    started_at: float
    output_tokens: int = 0
    first_at: float | None = None

    @property
    def blocks(self) -> int:
        return -(-(len(self.request.prompt_ids) + self.request.sampling.max_tokens) // BLOCK_TOKENS)

    def took(self, event: EngineEvent, now: float) -> None:
        if isinstance(event, Tokens):
            self.first_at = self.first_at or now
            self.output_tokens += len(event.token_ids)

    def usage(self, now: float) -> EngineUsage:
        """What it has cost until ``now``, as far as it can be seen from here."""
        first_at = self.first_at or now
        return EngineUsage(
            prompt_tokens=len(self.request.prompt_ids),
            cached_tokens=0,
            output_tokens=len(self.request.already_ids) + self.output_tokens,
            queued_ms=0,
            prefill_ms=round(1000 * (first_at - self.started_at)),
            decode_ms=round(1000 * (now - first_at)),
            accelerator_ms=0,
        )


class Relay:
    """Serves the requests that arrive at ``address`` until ``Stop``. The engine is not closed."""

    def __init__(self, engine: Engine, address: str, clock: Clock, *, context_tokens: int, release: str = "") -> None:
        self._release = release
        self._engine = engine
        self._clock = clock
        self._context_tokens = context_tokens
        self._blocks = _MOST_ROWS * -(-context_tokens // BLOCK_TOKENS)
        self._underway: dict[int, _Underway] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._last_handle = 0
        self._untold = 0
        self._commands: asyncio.Queue[Command] = asyncio.Queue()
        """Bounded by what the gateway has under way: a few for each request."""
        self._channel = RelayChannel(address, self._commands.put_nowait)

    async def run(self) -> None:
        """Serve; what still runs at the end is dropped, its connections closed."""
        shape = ExecutorShape(self._blocks, BLOCK_TOKENS, self._context_tokens, vocabulary_tokens=0, end_token_ids=frozenset())
        await self._channel.send(ReplicaReady(os.getpid(), shape, self._context_tokens, _MOST_ROWS, release=self._release))
        await self._say()
        try:
            while await self._obey():
                pass
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            self._channel.close(linger_ms=1000)

    async def _obey(self) -> bool:
        """Act on the next command; ``False`` after ``Stop``. Bands have no meaning on a server that is not ours."""
        command = await self._commands.get()
        match command:
            case Submit(handle, request):
                self._last_handle = max(self._last_handle, handle)
                self._underway[handle] = _Underway(request, self._clock.monotonic())
                self._tasks[handle] = asyncio.create_task(self._serve(handle, request), name=f"request {handle}")
                await asyncio.sleep(0)  # it begins: only what has begun can say how it was cancelled
                self._untold += 1
                if self._untold >= _MOST_UNTOLD:
                    await self._say()
            case Cancel(handle):
                if handle in self._tasks:
                    self._tasks[handle].cancel()
            case Stop():
                return False
            case _:
                pass
        return True

    async def _serve(self, handle: int, request: EngineRequest) -> None:
        """One request from its first to its last frame."""
        underway = self._underway[handle]
        last: SequenceFrame
        try:
            last = await self._pass_on(handle, request, underway)
        except asyncio.CancelledError:
            last = FinishedFrame(handle, FinishReason.CANCELLED.value, underway.usage(self._clock.monotonic()), "")
        except EngineFailed as failure:
            last = FailedFrame(handle, failure.detail)
        except Exception as failure:  # a fault of one request must not end the others'
            log.exception("request_failed", error=type(failure).__name__)
            last = FailedFrame(handle, "The engine failed while computing this answer.")
        del self._underway[handle], self._tasks[handle]
        try:
            await self._say(last)
        except Exception as failure:  # what cannot be framed is no answer, but an end there must be
            log.exception("end_not_told", error=type(failure).__name__)
            await self._say(FailedFrame(handle, "The engine failed while computing this answer."))

    async def _pass_on(self, handle: int, request: EngineRequest, underway: _Underway) -> SequenceFrame:
        async with aclosing(self._engine.generate(request)) as events:
            async for event in events:
                underway.took(event, self._clock.monotonic())
                match event:
                    case Prefilling(done, total):
                        await self._say(PrefillFrame(handle, done, total))
                    case Tokens(token_ids, text):
                        await self._say(TokensFrame(handle, token_ids, text))
                    case Finished(reason, usage, text):
                        return FinishedFrame(handle, reason.value, usage, text)
        raise EngineFailed("The engine ended without an answer.")

    async def _say(self, *frames: SequenceFrame) -> None:
        held = min(sum(underway.blocks for underway in self._underway.values()), self._blocks)
        free = self._blocks - held
        snapshot = ReplicaSnapshot(len(self._underway), 0, free, held, 0, unpromised=free, last_handle=self._last_handle)
        self._untold = 0
        await self._channel.send(StepFrame(frames, snapshot, None))
