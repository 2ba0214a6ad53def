"""Our replica over its own wire: the worker process as the supervisor starts it, and a client in an event loop."""

from __future__ import annotations

import asyncio
import math
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import zmq

from antiphon.app.system import SystemClock
from antiphon.core.generation import Sampling
from antiphon.core.ids import TenantId
from antiphon.engines.base import EngineRequest, EngineUsage, ReplicaSpec
from antiphon.inference.supervisor import WORKER_COMMAND, SupervisedReplica, Supervisor, SupervisorState, prepare_runtime_dir
from antiphon.inference.wire import (
    Cancel,
    Command,
    FailedFrame,
    FinishedFrame,
    ReplicaReady,
    ReplicaSnapshot,
    SequenceFrame,
    StepFrame,
    StepTimes,
    Submit,
    TokensFrame,
)
from benchmarks.chats import Chat, Played, Player

READY_SECONDS = 120.0
SILENCE_SECONDS = 90.0
"""Without a frame for so long while something is open, a replica counts as hung."""


@dataclass(slots=True)
class StepLog:
    """What the replica said about its steps while a load was played."""

    times: list[StepTimes] = field(default_factory=list[StepTimes])

    @property
    def infer_s(self) -> float:
        return sum(step.infer_s for step in self.times)

    def shares(self, seconds: float) -> dict[str, float]:
        """Parts of ``seconds`` by name; ``outside`` is all that the executor's forward passes leave."""
        parts = {name: sum(getattr(step, f"{name}_s") for step in self.times) for name in ("plan", "infer", "sample", "emit")}
        return {name: part / seconds for name, part in parts.items()} | {"outside": 1 - parts["infer"] / seconds}


class ReplicaClient:
    """Implements ``ReplicaListener``. One event loop; one load at a time."""

    def __init__(self) -> None:
        self._supervisor: Supervisor | None = None
        self._handles = 0
        self._listeners: dict[int, Callable[[SequenceFrame, float], None]] = {}
        self._changed = asyncio.Event()
        self.ready: ReplicaReady | None = None
        self.snapshot: ReplicaSnapshot | None = None
        self.steps = StepLog()
        self.on_frame: Callable[[StepFrame], None] | None = None

    # --- ReplicaListener ----------------------------------------------------------------------

    def on_ready(self, ready: ReplicaReady) -> None:
        self.ready = ready
        self._changed.set()

    def on_step(self, frame: StepFrame) -> None:
        now = time.perf_counter()
        self.snapshot = frame.snapshot
        if frame.times is not None:
            self.steps.times.append(frame.times)
        for sequence in frame.sequences:
            listener = self._listeners.get(sequence.handle)
            if listener is not None:
                listener(sequence, now)
                if isinstance(sequence, FinishedFrame | FailedFrame):
                    self._listeners.pop(sequence.handle, None)
        if self.on_frame is not None:
            self.on_frame(frame)
        self._changed.set()

    def on_exit(self) -> None:
        self.ready = None
        self._changed.set()

    @property
    def busy(self) -> bool:
        return bool(self._listeners)

    # --- requests -----------------------------------------------------------------------------

    def attach(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def submit(self, request: EngineRequest, listener: Callable[[SequenceFrame, float], None]) -> int:
        """Send a request; ``listener`` hears every frame of it and when it came. Returns its handle."""
        self._handles += 1
        self._listeners[self._handles] = listener
        self._send(Submit(self._handles, request))
        return self._handles

    def cancel(self, handle: int) -> None:
        self._send(Cancel(handle))

    def _send(self, command: Command) -> None:
        assert self._supervisor is not None
        self._supervisor.send(command)

    async def changed(self, timeout_s: float) -> bool:
        """Wait for the next frame; ``False`` after ``timeout_s`` without one."""
        self._changed.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def idle(self) -> ReplicaSnapshot:
        """The snapshot when nothing runs or waits and every command has been heard."""
        while self.snapshot is None or self.snapshot.running or self.snapshot.waiting or self.snapshot.last_handle < self._handles:
            if not await self.changed(SILENCE_SECONDS):
                raise RuntimeError(f"the replica is silent: {self.snapshot}")
        return self.snapshot

    # --- loads --------------------------------------------------------------------------------

    async def play(
        self,
        chats: Sequence[Chat],
        *,
        stop_s: float = math.inf,
        until: Callable[[Player], bool] | None = None,
        watch: Callable[[StepFrame, float], None] | None = None,
        wire_tenant: str | None = None,
    ) -> Played:
        """Play ``chats``. After ``stop_s``, or when ``until`` says so, nothing new is sent and what is open is cancelled.

        ``watch`` sees every frame and when it came. ``wire_tenant`` is the name that all requests bear instead of their own.
        """
        load = _Load(self, chats, wire_tenant)
        self.steps = StepLog()

        def on_frame(frame: StepFrame) -> None:
            load.send_due()
            if watch is not None:
                watch(frame, load.elapsed_s)

        self.on_frame = on_frame
        try:
            load.send_due()
            while not load.player.done and load.elapsed_s < stop_s and (until is None or not until(load.player)):
                arrival = load.player.next_arrival_s
                wait = min(SILENCE_SECONDS, stop_s - load.elapsed_s, math.inf if arrival is None else arrival - load.elapsed_s)
                if not await self.changed(max(wait, 0.0)) and wait >= SILENCE_SECONDS:
                    raise RuntimeError(f"the replica is silent: {self.snapshot}")
                load.send_due()
        finally:
            self.on_frame = None
        await load.cancel_open()
        await self.idle()
        return Played(load.player.turns, load.last_s)


_CANCELS_AT_ONCE = 200


class _Load:
    """One load under way."""

    def __init__(self, client: ReplicaClient, chats: Sequence[Chat], wire_tenant: str | None) -> None:
        self.player = Player(chats)
        self.last_s = 0.0
        self._client = client
        self._wire_tenant = wire_tenant
        self._open: dict[int, int] = {}
        self._start = time.perf_counter()
        self._closed = False

    @property
    def elapsed_s(self) -> float:
        return time.perf_counter() - self._start

    def send_due(self) -> None:
        for prompt in self.player.due(self.elapsed_s):
            chat = prompt.chat if self._wire_tenant is None else replace(prompt.chat, tenant=self._wire_tenant)
            request = engine_request(chat, prompt.ids, prompt.seed, f"bench-{prompt.key}")
            self._open[prompt.key] = self._client.submit(request, partial(self._hear, prompt.key))

    async def cancel_open(self) -> None:
        """In portions: the wire holds a bounded number of commands."""
        self._closed = True
        for number, handle in enumerate(self._open.values(), start=1):
            self._client.cancel(handle)
            if number % _CANCELS_AT_ONCE == 0:
                await self._client.changed(SILENCE_SECONDS)

    def _hear(self, key: int, frame: SequenceFrame, at: float) -> None:
        if self._closed:
            return
        if isinstance(frame, TokensFrame):
            self.last_s = at - self._start
            self.player.tokens(key, frame.token_ids, self.last_s)
        elif isinstance(frame, FinishedFrame):
            del self._open[key]
            self.player.ended(key, cached_tokens=frame.usage.cached_tokens, error="" if frame.reason == "length" else frame.reason)
        elif isinstance(frame, FailedFrame):
            del self._open[key]
            self.player.ended(key, error=frame.detail)


def engine_request(chat: Chat, ids: Sequence[int], seed: int, request_id: str) -> EngineRequest:
    sampling = Sampling(max_tokens=chat.max_tokens, temperature=chat.temperature, top_p=chat.top_p, seed=seed)
    return EngineRequest(request_id, TenantId(chat.tenant), tuple(ids), sampling, ignore_end_of_turn=True)


@dataclass(frozen=True, slots=True)
class Generated:
    """One request from beginning to end. Times are ``perf_counter`` seconds."""

    token_ids: tuple[int, ...]
    ttft_s: float
    usage: EngineUsage | None
    reason: str


async def generate(client: ReplicaClient, request: EngineRequest) -> Generated:
    """One request, alone or beside others."""
    ids: list[int] = []
    first: list[float] = []
    ended: asyncio.Future[FinishedFrame | FailedFrame] = asyncio.get_running_loop().create_future()

    def hear(frame: SequenceFrame, at: float) -> None:
        if isinstance(frame, TokensFrame):
            ids.extend(frame.token_ids)
            first.append(at)
        elif isinstance(frame, FinishedFrame | FailedFrame) and not ended.done():
            ended.set_result(frame)

    start = time.perf_counter()
    client.submit(request, hear)
    async with asyncio.timeout(120):
        end = await ended
    ttft = first[0] - start if first else float("nan")
    if isinstance(end, FailedFrame):
        return Generated(tuple(ids), ttft, None, f"failed: {end.detail}")
    return Generated(tuple(ids), ttft, end.usage, end.reason)


@asynccontextmanager
async def replica(spec: ReplicaSpec, command: Sequence[str] = WORKER_COMMAND) -> AsyncIterator[ReplicaClient]:
    """A replica process that is ready; gone at the end."""
    client = ReplicaClient()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as folder:
        runtime_dir = Path(folder)
        await asyncio.to_thread(prepare_runtime_dir, runtime_dir)
        supervisor = Supervisor(SupervisedReplica("bench-0", 0, spec, runtime_dir, command=command), context, client, SystemClock())
        client.attach(supervisor)
        supervisor.start()
        try:
            deadline = time.perf_counter() + READY_SECONDS
            while client.ready is None:
                if supervisor.state is SupervisorState.DOWN or time.perf_counter() > deadline:
                    raise RuntimeError(f"the replica did not start: {supervisor.failure}")
                await client.changed(1.0)
            yield client
        finally:
            await supervisor.close()
            context.destroy(linger=0)


def bench_spec(folder: Path, model: str, *, kv_bytes: int = 0, precision: str = "fast") -> ReplicaSpec:
    assert precision in {"fast", "exact"}
    exact = precision == "exact"
    return ReplicaSpec("bench", "openvino", model, str(folder), precision="exact" if exact else "fast", kv_bytes=kv_bytes)
