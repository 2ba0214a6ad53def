"""The server's side of the ``streams`` benchmark, a process of its own: our edge with its log, or a bare ASGI application.

It takes the commands of ``obey`` from its parent.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import structlog
import uvloop
from starlette.types import Receive, Scope, Send

from antiphon.app.interpreter import tune_interpreter
from antiphon.app.system import SystemClock
from antiphon.core.events import Delta, Done, LogEntry
from antiphon.core.generation import Generation, GenerationStatus, TurnParams
from antiphon.core.ids import ConversationId, GenerationId, IdKind, MessageId, TenantId, UserId
from antiphon.core.messages import Conversation
from antiphon.core.telemetry import NullTelemetry
from antiphon.core.tenancy import ApiKey, Tenant, User, UserRole
from antiphon.core.tenancy import Scope as Permission
from antiphon.edge.auth import new_api_key
from antiphon.edge.http import EdgeApp
from antiphon.edge.listener import open_listener
from antiphon.edge.server import HttpServer, ServedApp
from antiphon.inference.gateway import Gateway
from antiphon.orchestrator.pace import Grid
from antiphon.orchestrator.settings import Timing
from antiphon.stores.log.journal import JournalLog
from benchmarks.piped import Command, obey_stdin, raise_descriptor_limit
from benchmarks.streams_text import delta_text
from tests.edge.site import Site

END = Done("stop", 1, 0, 1, 0, 1, 1, None, "m", "m")


class BareApp:
    """The least an event stream can be: headers, one line, then wait for the client to leave."""

    def new_request_id(self) -> str:
        return "req"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await send({"type": "http.response.body", "body": b"retry: 2000\n\n", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass


@dataclass(frozen=True, slots=True)
class Flow:
    """Generations that get an event of ``size`` bytes every ``ticks`` ticks of the grid, each at a phase of its own."""

    generations: Sequence[GenerationId]
    ticks: int
    size: int


class Edge:
    """Our edge: memory stores, the journal, the real streams. Nobody runs a model; ``append`` is the writer."""

    def __init__(self, folder: Path, log: JournalLog) -> None:
        gateway = Gateway([], SystemClock(), NullTelemetry(), runtime_dir=folder / "run")
        self._site = Site(gateway, log=log, timing=Timing())
        self._ids, self._state, self._clock, self._log = self._site.ids, self._site.state, self._site.clock, log
        self._grid = Grid(self._clock, Timing().coalesce_ms / 1000)
        self._seq: dict[GenerationId, int] = {}
        self._flowing: list[asyncio.Task[None]] = []
        self._stopping = False

    @property
    def app(self) -> EdgeApp:
        return self._site.app

    async def generations(self, count: int) -> list[list[str]]:
        """Make ``count`` running generations, each of a user with a key of their own: ``[id, key]``."""
        tenant_id = TenantId(self._ids.new(IdKind.TENANT))
        tenant = Tenant(tenant_id, tenant_id, self._clock.now())
        await self._site.accounts.create_tenant(tenant)
        made: list[list[str]] = []
        for number in range(count):
            user = User(UserId(self._ids.new(IdKind.USER)), tenant.id, f"user{number}", UserRole.MEMBER, "free", False, self._clock.now())
            await self._site.accounts.create_user(user)
            key_id, text, sha256, last4 = new_api_key(self._ids)
            key = ApiKey(key_id, tenant.id, user.id, "bench", frozenset(Permission), last4, self._clock.now())
            await self._site.accounts.create_key(key, sha256)
            generation_id = GenerationId(self._ids.new(IdKind.GENERATION))
            self._state.generations[generation_id] = await self._row(generation_id, user)
            await self._log.open(generation_id, 1)
            self._seq[generation_id] = 0
            made.append([generation_id, text])
        return made

    async def _row(self, generation_id: GenerationId, user: User) -> Generation:
        now = self._clock.now()
        conversation_id = ConversationId(self._ids.new(IdKind.CONVERSATION))
        await self._site.services.conversations.create(
            Conversation(conversation_id, user.tenant_id, user.id, "", None, None, 1, False, False, False, created_at=now, updated_at=now)
        )
        return Generation(
            id=generation_id,
            tenant_id=user.tenant_id,
            user_id=user.id,
            conversation_id=conversation_id,
            message_id=MessageId(self._ids.new(IdKind.MESSAGE)),
            user_message_id=None,
            status=GenerationStatus.RUNNING,
            epoch=1,
            model="m",
            requested_model="m",
            params=TurnParams(),
            created_at=now,
            lease_until=now.replace(year=2999),
        )

    def flow(self, flow: Flow) -> None:
        """Append to every generation of ``flow`` from now until ``stop``."""
        self._stopping = False
        self._flowing.append(asyncio.create_task(self._flow(flow)))

    async def _flow(self, flow: Flow) -> None:
        """At each instant of the grid append what is due by the clock, so that a late instant costs no event."""
        started, done = self._clock.monotonic(), 0
        while not self._stopping:
            await self._grid.tick()
            due = int((self._clock.monotonic() - started) * 1000 / Timing().coalesce_ms)
            for tick in range(done, due):
                generations = flow.generations[tick % flow.ticks :: flow.ticks]
                await asyncio.gather(*(self._append(generation_id, flow.size) for generation_id in generations))
            done = max(done, due)

    async def _append(self, generation_id: GenerationId, size: int) -> None:
        seq = self._seq[generation_id] = self._seq[generation_id] + 1
        text = delta_text(seq, time.monotonic_ns(), size)
        await self._log.append(generation_id, [LogEntry(1, seq, Delta(text), token_ids=(seq, seq + 1))])

    async def stop(self) -> dict[GenerationId, int]:
        """Stop appending, and say how many events each generation has."""
        self._stopping = True
        await asyncio.gather(*self._flowing)
        self._flowing.clear()
        return dict(self._seq)

    async def finish(self, generations: Sequence[GenerationId]) -> None:
        """The terminal event for each."""
        for generation_id in generations:
            self._seq[generation_id] += 1
            await self._log.append(generation_id, [LogEntry(1, self._seq[generation_id], END)])


class Pauses:
    """How long the garbage collector stopped this process."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._began = 0.0
        gc.callbacks.append(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        del info
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self.longest_s = max(self.longest_s, time.perf_counter() - self._began)

    def take(self) -> float:
        longest_s, self.longest_s = self.longest_s, 0.0
        return longest_s


def vitals() -> dict[str, float]:
    """Resident bytes, open descriptors, processor seconds and tasks of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "rss": pages * os.sysconf("SC_PAGE_SIZE"),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "cpu_s": used.ru_utime + used.ru_stime,
        "tasks": len(asyncio.all_tasks()),
    }


async def obey(edge: Edge | None, pauses: Pauses, command: Command) -> object:
    """Carry out one command of the parent's."""
    name = command["do"]
    if name == "vitals":
        longest_s = pauses.take()
        gc.collect()
        pauses.take()
        return {**vitals(), "pause_s": longest_s}
    assert edge is not None
    generations = [GenerationId(name) for name in cast("list[str]", command.get("generations", []))]
    match name:
        case "make":
            return await edge.generations(int(str(command["count"])))
        case "flow":
            return edge.flow(Flow(generations, int(str(command["ticks"])), int(str(command["size"]))))
        case "stop":
            return await edge.stop()
        case "finish":
            return await edge.finish(generations)
        case _:
            raise ValueError(f"no such command: {name}")


async def main(*, bare: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="antiphon-streams-") as folder:
        edge = None if bare else Edge(Path(folder), await JournalLog.open_folder(Path(folder) / "log", SystemClock(), 900))
        app: ServedApp = BareApp() if edge is None else edge.app
        server = HttpServer(app, open_listener("127.0.0.1", 0))
        port = await server.start()
        tune_interpreter()
        pauses = Pauses()
        print(json.dumps(port), flush=True)
        await obey_stdin(lambda command: obey(edge, pauses, command))
        await server.stop()


if __name__ == "__main__":
    raise_descriptor_limit()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30), logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(bare="--bare" in sys.argv))
