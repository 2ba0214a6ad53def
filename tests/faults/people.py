"""Those who use the simulated servers: they send, read, lose the network and stop."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from antiphon.client.sse import SseParser
from antiphon.core.errors import AntiphonError
from antiphon.core.events import parse_cursor
from antiphon.core.generation import TurnParams
from antiphon.core.ids import ConversationId, GenerationId
from antiphon.edge.stream import Viewer
from antiphon.orchestrator.acceptance import SendMessage
from antiphon.stores.generations.base import Accepted, CurrentLeaf
from tests.faults.world import OWNER, PRINCIPAL, QUIET_S, Server, World


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
