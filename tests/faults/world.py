"""A small world around the real runner, log, store and reader, and what goes wrong in it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from antiphon.core.ids import ConversationId, GenerationId, IdKind, TenantId, UserId
from antiphon.core.messages import Conversation
from antiphon.core.plans import Plan
from antiphon.core.telemetry import NullTelemetry
from antiphon.core.tenancy import Band, Principal, Scope, UserRole
from antiphon.edge.services import ServerState
from antiphon.edge.stream import Streams
from antiphon.engines.base import EngineRequest
from antiphon.orchestrator.acceptance import TurnDesk
from antiphon.orchestrator.ports import Ports
from antiphon.orchestrator.runner import Runner
from antiphon.orchestrator.settings import Timing
from antiphon.stores.conversations.base import Owner
from antiphon.stores.conversations.memory import MemoryConversations
from antiphon.stores.generations.base import Accepted
from antiphon.stores.generations.memory import MemoryGenerations
from antiphon.stores.log.journal import JournalLog
from antiphon.stores.log.memory import MemoryLog
from antiphon.stores.memory import MemoryState
from antiphon.stores.personal.memory import MemoryPersonalTexts
from antiphon.stores.prompts.memory import MemoryPrompts
from tests.allowances import GENEROUS, allowances
from tests.faults.loop import Process, SimulatedClock, SimulatedLoop
from tests.faults.machinery import FaultyPort, SimulatedGateway, SimulatedJournal, undisturbed
from tests.ids import CountingIds

TIMING = Timing(
    lease_seconds=2,
    heartbeat_seconds=0.5,
    sweep_seconds=0.7,
    checkpoint_seconds=0.4,
    coalesce_ms=120,
    ping_seconds=8,
    detached_grace_seconds=3,
)
PLAN = Plan("free", models=("small",), band=Band.STANDARD, max_output_tokens=64, **GENEROUS)
OWNER = Owner(TenantId("tenant_1"), UserId("user_1"))
PRINCIPAL = Principal(OWNER.tenant_id, OWNER.user_id, "ada", UserRole.MEMBER, "free", frozenset({Scope.CHAT}))
QUIET_S = 60.0


class Broken(AssertionError):
    """A promise was broken."""


class Server:
    """One process of ours: everything in it is gone when it is killed, but for what lies on the disk and in the store."""

    def __init__(self, world: World, name: str, log: Any) -> None:
        self.process = Process(name)
        world.loop.processes.append(self.process)
        self.gateway = SimulatedGateway(world)
        self.log = log
        self.ports = Ports(
            conversations=cast("Any", FaultyPort(MemoryConversations(world.state), world)),
            generations=cast("Any", FaultyPort(MemoryGenerations(world.state, cast("Any", world.clock)), world)),
            prompts=cast("Any", FaultyPort(MemoryPrompts(world.state), world)),
            personal=cast("Any", FaultyPort(MemoryPersonalTexts(world.state), world)),
            log=log,
            gateway=cast("Any", self.gateway),
            allowances=allowances(cast("Any", world.clock)),
            plans={"free": PLAN},
            clock=cast("Any", world.clock),
            ids=world.ids,
            timing=TIMING,
            telemetry=NullTelemetry(),
        )
        self.runner = Runner(self.ports, sole_owner=not world.shared)
        self.desk = TurnDesk(self.ports, self.runner)
        self.state = ServerState()
        services = SimpleNamespace(
            conversations=self.ports.conversations,
            generations=self.ports.generations,
            log=log,
            runner=self.runner,
            clock=world.clock,
            timing=TIMING,
            telemetry=NullTelemetry(),
            state=self.state,
        )
        self.streams = Streams(cast("Any", services), _allowed)

    @property
    def alive(self) -> bool:
        return not self.process.dead and not self.state.draining


async def _allowed(credentials: object) -> None:
    pass


@dataclass(frozen=True)
class Story:
    """Where a run tells what happens, for whoever replays it."""

    tell: Callable[[float, str], None] = lambda at, what: None


UNTOLD = Story()


class World:
    """Everything of one seed."""

    def __init__(self, loop: SimulatedLoop, random: Random, story: Story) -> None:
        self._story = story
        self.loop = loop
        self.random = random
        self.clock = SimulatedClock(loop)
        self.ids = CountingIds()
        self.state = MemoryState()
        self.disk: dict[int, bytearray] = {}
        self.shared = random.random() < 0.4
        self.token_s = random.choice((0.05, 0.1, 0.25))
        self.lost_answers = random.choice((0.0, 0.0, 0.02))
        self.memory_log = MemoryLog(cast("Any", self.clock), 900)
        self.servers: list[Server] = []
        self.expected: dict[str, tuple[tuple[int, ...], str]] = {}
        self.engine_deaths: set[str] = set()
        self.accepted: dict[GenerationId, Accepted] = {}
        self.cancel_asked: dict[GenerationId, float] = {}
        self.shown: dict[GenerationId, str] = {}
        self.lost: set[str] = set()
        """Generations whose text was on a disk-less server's screens when it was killed."""
        self.cursors: dict[GenerationId, str] = {}
        self.failures: list[str] = []
        self._store_away_until = 0.0
        self._disk_full_until = 0.0
        self.trouble_until = 0.0
        self._made = 0

    def tell(self, what: str) -> None:
        self._story.tell(self.loop.time(), what)

    def calm_since(self, moment: float) -> bool:
        """Whether nothing has gone wrong since shortly before ``moment``."""
        return self.trouble_until < moment and not self.lost_answers

    # --- what goes wrong ----------------------------------------------------------------------

    def store_away(self) -> bool:
        return self.loop.time() < self._store_away_until

    def disk_is_full(self) -> bool:
        return self.loop.time() < self._disk_full_until

    async def go_wrong(self) -> None:
        """A few faults at random times."""
        faults = [self._crash, self._crash, self._pause, self._store_goes, self._disk_fills, self._engine_dies, self._restart]
        for _ in range(self.random.choice((0, 1, 1, 2, 3))):
            await asyncio.sleep(self.random.random() * 2.5)
            fault = self.random.choice(faults)
            self.tell(fault.__name__)
            self.trouble_until = max(self.trouble_until, self.loop.time() + 10)
            await fault()
            self.trouble_until = max(self.trouble_until, self.loop.time() + 10, self._store_away_until + 10)

    async def _crash(self) -> None:
        server = self.random.choice(self.servers)
        self._kill(server)
        if self.disk and self.random.random() < 0.5:
            torn = struct.pack("<II", 4000, 7) + b"torn" * self.random.randrange(1, 20)
            self.disk[max(self.disk)] += torn
        await asyncio.sleep(self.random.random() * 2)
        await self.start(replacing=server)

    def _kill(self, server: Server) -> None:
        server.process.kill()
        if isinstance(server.log, JournalLog):
            self.lost |= server.log._missed

    async def _pause(self) -> None:
        server = self.random.choice(self.servers)
        server.process.paused_until = self.loop.time() + self.random.random() * 6

    async def _store_goes(self) -> None:
        self._store_away_until = self.loop.time() + self.random.random() * self.random.choice((4, 4, 30))

    async def _disk_fills(self) -> None:
        self._disk_full_until = self.loop.time() + self.random.random() * 3

    async def _engine_dies(self) -> None:
        self.random.choice(self.servers).gateway.die()

    async def _restart(self) -> None:
        server = self.random.choice(self.servers)
        if not server.alive:
            return

        async def drain() -> None:
            server.state.drain()
            await server.runner.drain(self.random.random())
            await server.log.close()

        with suppress(ConnectionResetError):
            await server.process.call(drain())
        self._kill(server)
        await self.start(replacing=server)

    async def start(self, *, replacing: Server | None = None) -> None:
        self._made += 1
        log: Any = self.memory_log if self.shared else await SimulatedJournal.of(self)
        server = Server(self, f"server-{self._made}", log)
        if replacing is None:
            self.servers.append(server)
        else:
            self.servers[self.servers.index(replacing)] = server
        self.tell(f"{server.process.name} starts")
        server.process.spawn(server.runner.start())

    # --- what is asked ------------------------------------------------------------------------

    def asked(self, request: EngineRequest) -> None:
        """An engine is asked to write a generation, perhaps not for the first time."""
        known = self.expected.get(request.request_id)
        if known is None:
            self.expected[request.request_id] = (request.prompt_ids, undisturbed(request))
        elif known[0] != request.prompt_ids:
            raise Broken("the prompt changed between two attempts")

    async def check_checkpoint(self, generation_id: GenerationId, text: str) -> None:
        """A checkpoint never holds what the log does not: a reader could not be shown it again."""
        for server in self.servers:
            state = await server.log.state(generation_id)
            if state is not None and not state.text.startswith(text) and state.terminal is None:
                self.fail(f"{generation_id}: a checkpoint is ahead of the log")

    def fail(self, what: str) -> None:
        """A failure inside a task that nobody awaits must not be lost."""
        self.failures.append(what)
        raise Broken(what)

    def any_server(self) -> Server | None:
        alive = [server for server in self.servers if server.alive]
        return self.random.choice(alive) if alive else None

    async def conversation(self) -> ConversationId:
        conversation_id, now = ConversationId(self.ids.new(IdKind.CONVERSATION)), self.clock.now()
        await MemoryConversations(self.state).create(
            Conversation(conversation_id, OWNER.tenant_id, OWNER.user_id, "", None, None, 0, False, False, False, now, now)
        )
        return conversation_id
