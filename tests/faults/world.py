"""A small world around the real runner, log, store and reader: users, an engine, disks, and what goes wrong with them."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from antiphon.client.sse import SseParser
from antiphon.core.errors import AntiphonError, EngineFailed, StoreUnavailable
from antiphon.core.events import Queued, parse_cursor
from antiphon.core.generation import FinishReason, TurnParams
from antiphon.core.ids import ConversationId, GenerationId, IdKind, TenantId, UserId
from antiphon.core.messages import Conversation
from antiphon.core.telemetry import NullTelemetry
from antiphon.core.tenancy import Band, Plan, Principal, Scope, UserRole
from antiphon.edge.services import ServerState
from antiphon.edge.stream import Streams, Viewer
from antiphon.engines.base import EngineRequest, EngineUsage, Finished, Prefilling, Tokens
from antiphon.engines.reference import ReferenceTokenizer
from antiphon.inference.admission import Admit
from antiphon.inference.fleet import PoolStatus
from antiphon.orchestrator.acceptance import SendMessage, TurnDesk
from antiphon.orchestrator.ports import Ports
from antiphon.orchestrator.runner import Runner
from antiphon.orchestrator.settings import Timing
from antiphon.stores.conversations.base import Owner
from antiphon.stores.conversations.memory import MemoryConversations
from antiphon.stores.generations.base import Accepted, CurrentLeaf
from antiphon.stores.generations.memory import MemoryGenerations
from antiphon.stores.log.journal import JournalLog
from antiphon.stores.log.memory import MemoryLog
from antiphon.stores.memory import MemoryState
from tests.faults.loop import Process, SimulatedClock, SimulatedLoop
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
PLAN = Plan("free", models=("small",), band=Band.STANDARD, max_output_tokens=64)
OWNER = Owner(TenantId("tenant_1"), UserId("user_1"))
PRINCIPAL = Principal(OWNER.tenant_id, OWNER.user_id, "ada", UserRole.MEMBER, "free", frozenset({Scope.CHAT}))
TOKENIZER = ReferenceTokenizer("nasty")
_SPEECH = tuple(TOKENIZER.encode("hé\r\ndata: 😀 the answer of \u2028 family 👩‍👩‍👧 event: done and so on ß "))
QUIET_S = 60.0


def spoken(prompt_ids: tuple[int, ...], position: int) -> int:
    """The token at ``position`` of the answer to a prompt: a pure function, as the reference engine's."""
    start = int.from_bytes(hashlib.sha256(repr(prompt_ids).encode()).digest()[:4], "big")
    return _SPEECH[(start + position) % len(_SPEECH)]


def undisturbed(request: EngineRequest) -> str:
    """The whole answer to ``request``, were it asked afresh."""
    stream = TOKENIZER.text_stream()
    text = "".join(stream.push(spoken(request.prompt_ids, at)) for at in range(request.sampling.max_tokens))
    return text + stream.finish()


class Broken(AssertionError):
    """A promise was broken."""


class FaultyPort:
    """A real driver behind a network: it answers late, and now and then not at all, before or after it has acted."""

    def __init__(self, driver: object, world: World) -> None:
        self._driver = driver
        self._world = world

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        method, world = getattr(self._driver, name), self._world

        async def call(*args: object, **named: object) -> object:
            if world.random.random() < 0.5:
                await asyncio.sleep(world.random.random() * 0.01)
            if world.store_away():
                await asyncio.sleep(0.1)
                raise StoreUnavailable
            if name == "checkpoint":
                await world.check_checkpoint(cast("GenerationId", args[0]), cast("str", named["text"]))
            if name in {"claim", "finalise", "request_cancel", "checkpoint"}:
                world.tell(f"{name} {args} {named}")
            answer = await method(*args, **named)
            if world.random.random() < world.lost_answers:
                raise StoreUnavailable
            return answer

        return call


class MemorySegments:
    """The journal's files, in the world's memory. A full disk takes a part of what it is given, then nothing."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._open: int | None = None

    def scan(self) -> list[int]:
        return sorted(self._world.disk)

    def load(self, number: int) -> bytes:
        return bytes(self._world.disk[number])

    def cut(self, number: int, size: int) -> None:
        del self._world.disk[number][size:]

    def write(self, data: bytes) -> int:
        if self._world.disk_is_full():
            raise OSError(errno.ENOSPC, "no space")
        if self._open is None:
            self._open = max(self._world.disk, default=0) + 1
            self._world.disk[self._open] = bytearray()
        segment = self._world.disk[self._open]
        segment += data
        number = self._open
        if len(segment) > 4096:
            self.rotate()
        return number

    def rotate(self) -> None:
        self._open = None

    def remove(self, number: int) -> None:
        if self._open == number:
            self.rotate()
        self._world.disk.pop(number, None)


class SimulatedJournal(JournalLog):
    """The real journal on the world's disk."""

    def __init__(self, world: World) -> None:
        super().__init__(cast("Any", None), world.clock, 900)
        self._segments = cast("Any", MemorySegments(world))

    @classmethod
    async def of(cls, world: World) -> SimulatedJournal:
        log = cls(world)
        log._replay()
        await log.expire(now=world.clock.now())
        return log


@dataclass(eq=False)
class _Speaking:
    stopped: asyncio.Event
    died: bool = False


class SimulatedGateway:
    """One replica that speaks at its own pace and may die; the gateway's interface, as far as the orchestrator uses it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.speaking: dict[str, _Speaking] = {}

    def resolve(self, name: str | None, allowed: object) -> PoolStatus:
        return PoolStatus("small", "reference", "ready", "normal", 0, 4096)

    def tokenizer(self, pool: str) -> ReferenceTokenizer:
        return TOKENIZER

    def decide(self, pool: str, **_: object) -> Admit:
        return Admit()

    def set_band(self, request_id: str, band: Band) -> bool:
        return request_id in self.speaking

    def cancel(self, request_id: str) -> bool:
        one = self.speaking.get(request_id)
        if one is not None:
            one.stopped.set()
        return one is not None

    def die(self) -> None:
        for request_id, one in self.speaking.items():
            self._world.engine_deaths.add(request_id)
            one.died = True
            one.stopped.set()

    async def stream(self, pool: str, request: EngineRequest, *, deadline_s: float) -> Any:
        world, random = self._world, self._world.random
        world.asked(request)
        one = self.speaking[request.request_id] = _Speaking(asyncio.Event())
        done = list(request.already_ids)
        text = TOKENIZER.text_stream()
        for token_id in done:
            text.push(token_id)
        try:
            if random.random() < 0.3:
                yield Queued(1, None)
                await self._pause(one, random.random() * 0.3)
            yield Prefilling(1, len(request.prompt_ids))
            while len(done) < request.sampling.max_tokens:
                await self._pause(one, random.expovariate(1 / world.token_s))
                if one.stopped.is_set():
                    if one.died:
                        raise EngineFailed("The engine stopped.")
                    yield Finished(FinishReason.CANCELLED, self._usage(request, done))
                    return
                token_id = spoken(request.prompt_ids, len(done))
                done.append(token_id)
                yield Tokens((token_id,), text.push(token_id))
            yield Finished(FinishReason.LENGTH, self._usage(request, done), text.finish())
        finally:
            if self.speaking.get(request.request_id) is one:
                del self.speaking[request.request_id]

    def _usage(self, request: EngineRequest, done: list[int]) -> EngineUsage:
        return EngineUsage(len(request.prompt_ids), 0, len(done), 0, 1, 1, 1)

    async def _pause(self, one: _Speaking, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await one.stopped.wait()


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
            log=log,
            gateway=cast("Any", self.gateway),
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


@dataclass(eq=False)
class _Pipe:
    """A client's connection as the application sees it."""

    data: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def receive(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.body" and not self.left.is_set():
            self.data.put_nowait(message.get("body", b""))


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
            self.trouble_until = max(self.trouble_until, self.loop.time() + 10)

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
        self._store_away_until = self.loop.time() + self.random.random() * 4

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


class User:
    """Sends until it is accepted, reads on several screens, loses the network, and stops some answers."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._number = number

    async def run(self) -> None:
        world, random = self._world, self._world.random
        await asyncio.sleep(random.random() * 0.5)
        conversation_id = await world.conversation()
        for turn in range(random.choice((1, 1, 2))):
            accepted = await self._send(conversation_id, f"{self._number}.{turn}?")
            readers = [asyncio.ensure_future(self._read(accepted)) for _ in range(random.choice((1, 1, 2)))]
            if random.random() < 0.35:
                readers.append(asyncio.ensure_future(self._stop(accepted)))
            await asyncio.gather(*readers)

    async def _send(self, conversation_id: ConversationId, content: str) -> Accepted:
        world = self._world
        params = TurnParams(max_tokens=world.random.randrange(4, 24))
        message = SendMessage(conversation_id, content, CurrentLeaf(), None, params, f"key of {content}", "same")
        while True:
            server = world.any_server()
            if server is not None:
                with suppress(ConnectionResetError, AntiphonError, OSError):
                    accepted = await server.process.call(server.desk.send(PRINCIPAL, message))
                    accepted = replace(accepted, replayed=False)
                    if world.accepted.setdefault(accepted.generation_id, accepted) != accepted:
                        world.fail("one key, two turns")
                    return accepted
            await asyncio.sleep(0.3)

    async def _stop(self, accepted: Accepted) -> None:
        world, generation_id = self._world, accepted.generation_id
        await asyncio.sleep(world.random.choice((0.0, 0.01, 0.05, 0.5, 2.0)) * world.random.random())
        while True:
            server = world.any_server()
            if server is not None:
                seen = world.shown.get(generation_id, "")
                cursor = parse_cursor(world.cursors.get(generation_id, "0"))
                asked_at = world.loop.time()
                with suppress(ConnectionResetError, AntiphonError, OSError):
                    stopped = await server.process.call(server.runner.cancel(OWNER, generation_id, cursor))
                    world.cancel_asked[generation_id] = asked_at
                    if not stopped.status.terminal and not world.shared and world.calm_since(asked_at):
                        world.fail(f"{generation_id}: a stop was not carried out")
                    final = world.state.generations[generation_id]
                    kept = generation_id not in world.lost
                    if kept and final.status.terminal and not world.state.messages[final.message_id].content.startswith(seen):
                        world.fail(f"{generation_id}: a stop took back text that was on the screen")
                    return
            await asyncio.sleep(0.3)

    async def _read(self, accepted: Accepted) -> None:
        reading = Screen(self._world, accepted.generation_id)
        while not reading.ended:
            server = self._world.any_server()
            if server is not None:
                with suppress(ConnectionResetError, AntiphonError, OSError):
                    await reading.connect(server)
            await asyncio.sleep(0.05 + self._world.random.random() * 0.4)


class Screen:
    """What one reader has before its eyes, over all its connections."""

    def __init__(self, world: World, generation_id: GenerationId) -> None:
        self._world = world
        self._generation_id = generation_id
        self.text = ""
        self.last_id: str | None = None
        self.ended = False

    async def connect(self, server: Server) -> None:
        """One connection, to its end or until the network is lost."""
        random = self._world.random
        await server.process.call(self._settled(server))
        cursor = self.last_id
        if cursor is not None:
            cursor = random.choice((cursor, cursor, cursor, cursor.partition("-")[2], "9-9999", "garbage"))
        self._world.tell(f"{self._generation_id[-3:]} screen {id(self) % 997} reads after {cursor} at {server.process.name}")
        viewer = Viewer(OWNER, self._generation_id, cursor, ())
        if await server.process.call(server.streams.already_finished(viewer)):
            if self._generation_id not in self._world.lost:
                self._world.fail(f"{self._generation_id}: 204 for a reader without the end")
            self.last_id = None
            return
        pipe = _Pipe()
        answering = server.process.spawn(server.streams.stream(viewer)({"type": "http"}, pipe.receive, pipe.send))
        answering.add_done_callback(lambda _: pipe.data.put_nowait(None))
        try:
            async with asyncio.timeout(random.expovariate(1 / 1.5) if random.random() < 0.6 else QUIET_S):
                await self._take(server, pipe)
        except TimeoutError:
            pass
        finally:
            pipe.left.set()

    async def _settled(self, server: Server) -> None:
        await server.runner.settle(await server.ports.generations.get(OWNER, self._generation_id))

    async def _take(self, server: Server, pipe: _Pipe) -> None:
        parser, death = SseParser(), asyncio.ensure_future(server.process.died.wait())
        try:
            while not self.ended:
                piece = asyncio.ensure_future(pipe.data.get())
                await asyncio.wait((piece, death), return_when=asyncio.FIRST_COMPLETED)
                if not piece.done():
                    piece.cancel()
                    return
                data = piece.result()
                if data is None:
                    return
                for event in parser.push(data):
                    self._show(event.kind, event.data, event.id)
        finally:
            death.cancel()

    def _show(self, kind: str, data: str, event_id: str) -> None:
        world, generation_id = self._world, self._generation_id
        body = json.loads(data)
        world.tell(f"{generation_id[-3:]} screen {id(self) % 997}: {event_id} {kind} {data}")
        if kind == "delta":
            self.text += body["text"]
        elif kind == "snapshot":
            if not body["text"].startswith(self.text) and generation_id not in world.lost:
                world.fail(f"{generation_id}: {self.text!r} became {body['text']!r} on the screen")
            self.text = body["text"]
        if event_id:
            self.last_id = event_id
        shown = world.shown.get(generation_id, "")
        if len(self.text) > len(shown):
            world.shown[generation_id] = self.text
            world.cursors[generation_id] = self.last_id or "0"
        if kind in {"done", "error"}:
            self.ended = True
            generation = world.state.generations[generation_id]
            content = world.state.messages[generation.message_id].content
            if not generation.status.terminal:
                world.fail(f"{generation_id}: the reader saw the end before the store")
            if content != self.text:
                world.fail(f"{generation_id}: the screen shows {self.text!r}, the store has {content!r}")
