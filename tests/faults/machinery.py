"""What the simulated world is made of: a store behind a network, a disk, an engine that may die."""

from __future__ import annotations

import asyncio
import errno
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from antiphon.core.errors import EngineFailed, StoreUnavailable
from antiphon.core.events import Queued
from antiphon.core.generation import FinishReason
from antiphon.core.ids import GenerationId
from antiphon.core.tenancy import Band
from antiphon.engines.base import EngineRequest, EngineUsage, Finished, Prefilling, Tokens
from antiphon.engines.reference_tokenizer import ReferenceTokenizer
from antiphon.inference.admission import Admit
from antiphon.inference.fleet import ServedPool
from antiphon.stores.log.journal import JournalLog

if TYPE_CHECKING:
    from tests.faults.world import World

TOKENIZER = ReferenceTokenizer("nasty")
_SPEECH = tuple(TOKENIZER.encode("hé\r\ndata: 😀 the answer of \u2028 family 👩‍👩‍👧 event: done and so on ß "))


def spoken(prompt_ids: tuple[int, ...], position: int) -> int:
    """The token at ``position`` of the answer to a prompt: a pure function, as the reference engine's."""
    start = int.from_bytes(hashlib.sha256(repr(prompt_ids).encode()).digest()[:4], "big")
    return _SPEECH[(start + position) % len(_SPEECH)]


def undisturbed(request: EngineRequest) -> str:
    """The whole answer to ``request``, were it asked afresh."""
    stream = TOKENIZER.text_stream()
    text = "".join(stream.push(spoken(request.prompt_ids, at)) for at in range(request.sampling.max_tokens))
    return text + stream.finish()


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

    def resolve(self, name: str | None, allowed: object) -> ServedPool:
        return ServedPool("small", "reference", 4096)

    def tokenizer(self, pool: str) -> ReferenceTokenizer:
        return TOKENIZER

    def smaller(self, pool: str) -> None:
        return None

    def accept(self, request_id: str, pool: str, ask: object) -> Admit:
        return Admit()

    def withdraw(self, request_id: str) -> None:
        pass

    def reserved(self, request_id: str) -> None:
        return None

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

    async def stream(self, pool: str, request: EngineRequest, *, deadline_s: float, ask: object = None) -> Any:
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
