"""Keeps one replica process alive: start, hand over, watch, restart with back-off, leave nothing behind.

The worker stays in the server's process group, so killing the group kills it, but ignores SIGINT and SIGTERM, so that the
server can drain first. It lives as long as its stdin is open: when the server dies in whatever way, it exits at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal, Protocol

import msgspec
import structlog
import zmq

from antiphon.core.clock import Clock
from antiphon.core.errors import EngineFailed, ModelUnusable
from antiphon.engines.base import ReplicaSpec
from antiphon.inference.channel import GatewayChannel
from antiphon.inference.load_limit import LOAD_LIMIT, LoadLimit
from antiphon.inference.wire import Command, Handshake, LogFormat, ReplicaReady, Report, StartFailure, StepFrame, Stop

log = structlog.get_logger(__name__)

WORKER_COMMAND = (sys.executable, "-P", "-m", "antiphon.app.worker")
_STOP_SECONDS = 3.0
_LAST_FRAMES_SECONDS = 0.02
_ADDRESS_BYTES = 100
_WATCH_SECONDS = 1.0
STALL_S = 60.0
_PATIENT_STARTS = 3
"""A replica that has worked may fail to start so many times before it counts as down: it may have been killed while it loaded."""


class SupervisorState(StrEnum):
    LOADING = "loading"
    """None was ready yet; the first process is on its way, or the next one after it hung."""
    READY = "ready"
    RESTARTING = "restarting"
    """It was ready once, its process ended, the next is on its way."""
    DOWN = "down"
    """The last process ended before it was ready; where one ever was, several in a row did. Or too many hung."""
    STOPPED = "stopped"


class ReplicaListener(Protocol):
    """Who hears what a replica says; called in the event loop."""

    @property
    def busy(self) -> bool:
        """Whether the replica has something to compute."""
        ...

    def on_ready(self, ready: ReplicaReady) -> None: ...

    def on_step(self, frame: StepFrame) -> None: ...

    def on_exit(self) -> None:
        """The process has ended; nothing more comes from it."""
        ...


@dataclass(slots=True)
class BackOff:
    """Seconds before the next start: none after a process that has worked, else 0.2 doubling to 10.

    The doubling begins anew after a process that has worked, or was ready for 10 s.
    """

    first_s: float = 0.2
    most_s: float = 10.0
    reset_s: float = 10.0
    _next_s: float = 0.0

    def after(self, ready_s: float, *, worked: bool) -> float:
        """``ready_s`` is how long the process that ended had been ready; ``worked``: it had completed a step."""
        if worked:
            self._next_s = 0.0
            return 0.0
        if ready_s >= self.reset_s or self._next_s == 0.0:
            self._next_s = self.first_s
        delay = self._next_s
        self._next_s = min(2 * delay, self.most_s)
        return delay


@dataclass(frozen=True, slots=True)
class SupervisedReplica:
    """What to run. ``number`` is unique within ``runtime_dir`` and names the socket file."""

    replica_id: str
    number: int
    spec: ReplicaSpec
    runtime_dir: Path
    log_format: LogFormat = "text"
    command: Sequence[str] = WORKER_COMMAND
    stall_s: float = STALL_S
    """A process that has something to compute and says nothing for so long is killed and started again."""
    usual_load_s: float | None = None
    """How long a start took in an earlier process."""
    load_limit: LoadLimit = LOAD_LIMIT
    """A process that is not ready by then is killed and started again."""


class Supervisor:
    """Owns one replica process and its socket."""

    def __init__(
        self, replica: SupervisedReplica, context: zmq.Context[zmq.Socket[bytes]], listener: ReplicaListener, clock: Clock
    ) -> None:
        self._replica = replica
        self._context = context
        self._listener = listener
        self._clock = clock
        self._back_off = BackOff()
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._channel: GatewayChannel | None = None
        self._starts = 0
        self._failed_starts = 0
        self._started_at = clock.monotonic()
        self._ready_at: float | None = None
        self._worked = False
        self._retry_at = 0.0
        self._heard_at = 0.0
        self._due_at = 0.0
        self._overdue_loads = 0
        self._overdue: StartFailure | None = None
        """Of the last load that came to its limit, until one is ready."""
        self.state = SupervisorState.LOADING
        self.pid: int | None = None
        self.load_s: float | None = None
        """How long the last successful start took."""
        self.failure: StartFailure | None = None
        """Why it could not be started, the first time; ``None`` once it was ready."""

    @property
    def hopeless(self) -> bool:
        """Whether another start would probably fail as the last ones did, or as the model's files say."""
        if self.failure is None:
            return False
        return self._hangs or self.failure.code == ModelUnusable.code or self._failed_starts >= _PATIENT_STARTS

    @property
    def trouble(self) -> StartFailure | None:
        """Why its last start went wrong, also where the next may go well; ``None`` once it was ready."""
        return self.failure or self._overdue

    def start(self) -> None:
        """Begin; returns at once."""
        self._task = asyncio.create_task(self._run(), name=f"supervise {self._replica.replica_id}")

    def send(self, command: Command) -> None:
        """Raises ``EngineFailed`` when there is no process that could take it."""
        if self._channel is None or self.state is not SupervisorState.READY:
            raise EngineFailed("The engine is not running.")
        if not self._listener.busy:
            self._heard_at = self._clock.monotonic()
        self._channel.send(command)

    def starting_s(self) -> float:
        """Seconds since the present process was begun, or the last one ended."""
        return self._clock.monotonic() - self._started_at

    def expected_wait_s(self) -> float:
        """Seconds until it may be ready: the rest of the back-off and of a start like the last one (or twice as long as so far)."""
        now = self._clock.monotonic()
        if self._retry_at > now:
            return self._retry_at - now + (self.load_s or 1.0)
        elapsed = self.starting_s()
        return max((self.load_s or 0.0) - elapsed, elapsed, 0.0)

    async def close(self) -> None:
        """Stop the process; it is gone, and its socket's file too, when this returns."""
        self._closing.set()
        if self._task is not None:
            await self._task
        self.state = SupervisorState.STOPPED

    # --- inside -------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._closing.is_set():
            try:
                await self._live_once()
            except Exception:  # a fault of ours in one life must not leave the replica without a next one
                log.exception("supervision_failed", replica=self._replica.replica_id)
            if self._closing.is_set():
                return
            now = self._clock.monotonic()
            delay = self._back_off.after(0.0 if self._ready_at is None else now - self._ready_at, worked=self._worked)
            self._retry_at = now + delay
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), delay)

    async def _live_once(self) -> None:
        """One process from start to end."""
        self._starts += 1
        self._started_at, self._ready_at, self._worked = self._clock.monotonic(), None, False
        self._due_at = self._started_at + self._load_limit_s()
        name = f"{self._replica.number}-{self._starts}.sock"
        address = ipc_address(self._replica.runtime_dir, name)
        code: int | None = None
        try:
            self._channel = GatewayChannel(self._context, address, self._on_report)
            code = await self._attend(address)
            await asyncio.sleep(_LAST_FRAMES_SECONDS)
            self._channel.drain()
        except (OSError, zmq.ZMQError) as fault:
            self._note_failure(StartFailure(f"The engine process could not be started: {fault.strerror}."))
        finally:
            channel, self._channel, self.pid = self._channel, None, None
            if channel is not None:
                channel.close()
            self._ended(code)
            await asyncio.to_thread((self._replica.runtime_dir / name).unlink, missing_ok=True)

    async def _attend(self, address: str) -> int:
        """Start a process and wait for its end, or end it when the supervisor closes; returns its exit code."""
        loop = asyncio.get_running_loop()
        exited: asyncio.Future[int] = loop.create_future()
        process = await asyncio.to_thread(self._spawn, address)
        self.pid = process.pid
        watcher = threading.Thread(target=self._watch, args=(process, loop, exited), name=f"watch {process.pid}", daemon=True)
        watcher.start()
        closing = asyncio.create_task(self._closing.wait())
        try:
            await self._watch_progress(process, {exited, closing})
            if not exited.done():
                await self._stop(process, exited)
            return await exited
        finally:
            closing.cancel()
            if not exited.done():
                process.kill()

    async def _watch_progress(self, process: subprocess.Popen[bytes], ends: set[asyncio.Future[int] | asyncio.Task[Literal[True]]]) -> None:
        """Return when one of ``ends`` is done; a process that stalls, or never is ready, is killed, which is an end too.

        Time in which this process did not run either (a machine that was suspended) is nobody's silence.
        """
        interval = min(_WATCH_SECONDS, self._replica.stall_s / 2)
        looked_at = self._clock.monotonic()
        while not (await asyncio.wait(ends, timeout=interval, return_when=asyncio.FIRST_COMPLETED))[0]:
            before, looked_at = looked_at, self._clock.monotonic()
            stood_still_s = max(looked_at - before - interval, 0.0)
            self._heard_at = min(self._heard_at + stood_still_s, looked_at)
            self._due_at += stood_still_s
            silent_s = looked_at - self._heard_at
            if self.state is SupervisorState.READY and self._listener.busy and silent_s > self._replica.stall_s:
                log.error("replica_stalled", replica=self._replica.replica_id, pid=process.pid, seconds=round(silent_s, 1))
                process.kill()
            elif self._ready_at is None and looked_at >= self._due_at:
                self._note_overdue()
                process.kill()

    @property
    def _hangs(self) -> bool:
        """Whether so many loads in a row came to their limit that the next probably will."""
        return self._overdue_loads >= self._replica.load_limit.most_overdue

    def _load_limit_s(self) -> float:
        usual_s = self._replica.usual_load_s if self.load_s is None else self.load_s
        return self._replica.load_limit.seconds(usual_s, self._overdue_loads)

    def _note_overdue(self) -> None:
        """Again where a killed process does not go: whoever waits hears of it then, though there is no next process."""
        loading_s = self.starting_s()
        self._overdue = StartFailure(f"The model had not finished loading after {loading_s:.0f} s, so its process was ended.")
        self._overdue_loads += 1
        self._due_at = self._clock.monotonic() + self._load_limit_s()
        log.error("load_overdue", replica=self._replica.replica_id, pid=self.pid, seconds=round(loading_s, 1), in_a_row=self._overdue_loads)
        if self._hangs:
            self._note_failure(self._overdue)
            self.state = SupervisorState.DOWN

    def _spawn(self, address: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(self._replica.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        handshake = Handshake(self._replica.replica_id, self._replica.spec, address, self._replica.log_format)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(msgspec.json.encode(handshake) + b"\n")
            process.stdin.flush()
        return process

    def _watch(self, process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop, exited: asyncio.Future[int]) -> None:
        """In a thread of its own: read what the process says about its end, and reap it."""
        code = process.wait()
        failure: StartFailure | None = None
        assert process.stdout is not None
        with process.stdout as pipe:
            os.set_blocking(pipe.fileno(), False)  # a child of the process may hold the other end
            for line in (pipe.read() or b"").splitlines():
                with contextlib.suppress(msgspec.DecodeError):
                    failure = msgspec.json.decode(line, type=StartFailure)
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._on_exited, exited, code, failure)

    async def _stop(self, process: subprocess.Popen[bytes], exited: asyncio.Future[int]) -> None:
        if self._channel is not None and self.state is SupervisorState.READY:
            with contextlib.suppress(EngineFailed):
                self._channel.send(Stop())
        else:
            process.kill()
        _, pending = await asyncio.wait({exited}, timeout=_STOP_SECONDS)
        if pending:
            log.warning("replica_killed", replica=self._replica.replica_id, pid=process.pid)
            process.kill()

    def _on_exited(self, exited: asyncio.Future[int], code: int, failure: StartFailure | None) -> None:
        if failure is not None:
            self._note_failure(failure)
        if not exited.done():
            exited.set_result(code)

    def _on_report(self, report: Report) -> None:
        if not isinstance(report, StepFrame) or report.times is not None or report.sequences or not self._listener.busy:
            self._heard_at = self._clock.monotonic()  # a frame that only repeats commands is no progress
        if isinstance(report, StepFrame):
            self._worked = self._worked or report.times is not None
            self._listener.on_step(report)
            return
        self._ready_at = self._clock.monotonic()
        self.load_s = self._ready_at - self._started_at
        self.state, self.failure = SupervisorState.READY, None
        self._overdue_loads, self._overdue = 0, None
        log.info("replica_ready", replica=self._replica.replica_id, pid=report.pid, seconds=round(self.load_s, 3))
        self._listener.on_ready(report)

    def _ended(self, code: int | None) -> None:
        was_ready = self._ready_at is not None
        if self._closing.is_set():
            self.state = SupervisorState.STOPPED
        else:
            self._failed_starts = 0 if was_ready else self._failed_starts + 1
            known = self.load_s is not None
            hopeful = was_ready or (not self._hangs and (known or self._overdue is not None) and self._failed_starts <= _PATIENT_STARTS)
            on_its_way = SupervisorState.RESTARTING if known else SupervisorState.LOADING
            self.state = on_its_way if hopeful else SupervisorState.DOWN
            if not was_ready and self._overdue is None:
                self._note_failure(StartFailure(f"The engine process ended before it was ready ({_exit_words(code)})."))
            log.error("replica_ended", replica=self._replica.replica_id, exit=_exit_words(code), ready=was_ready)
        self._started_at = self._clock.monotonic()  # what is asked from here on is of the next one
        self._listener.on_exit()

    def _note_failure(self, failure: StartFailure) -> None:
        """The first reason is the one to tell; what follows is often its consequence."""
        log.error("replica_failed", replica=self._replica.replica_id, reason=failure.error)
        if self.failure is None:
            self.failure = failure


def ipc_address(runtime_dir: Path, name: str) -> str:
    """A socket's address. Raises ``ValueError`` where the operating system would cut the path."""
    path = str(runtime_dir / name)
    if len(path.encode()) >= _ADDRESS_BYTES:
        raise ValueError(f"the runtime folder's path is too long for a socket: {runtime_dir}")
    return f"ipc://{path}"


def prepare_runtime_dir(folder: Path) -> None:
    """Make ``folder`` ours alone and remove sockets that a killed server left. Blocking."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    clear_sockets(folder)


def remove_runtime_dir(folder: Path) -> None:
    """Remove the sockets in ``folder``, and the folder itself where nothing else is in it. Blocking."""
    clear_sockets(folder)
    with contextlib.suppress(OSError):
        folder.rmdir()


def clear_sockets(folder: Path) -> None:
    """Remove every socket file in ``folder``. Blocking."""
    for socket in folder.glob("*.sock"):
        socket.unlink(missing_ok=True)


def _exit_words(code: int | None) -> str:
    if code is None:
        return "not started"
    if code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"
