"""Requests that are cancelled at any await: nobody gets another's answer, and whatever was taken is given back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from antiphon.client.sse import SseParser
from antiphon.core.errors import Refused
from antiphon.core.generation import TurnParams
from antiphon.core.messages import Role
from antiphon.core.telemetry import NullTelemetry
from antiphon.edge.services import ServerState
from antiphon.edge.stream import Streams, Viewer
from antiphon.engines.base import PromptMessage, Tokens
from antiphon.inference.gateway import Gateway
from antiphon.orchestrator.completion import CompletionRequest
from antiphon.orchestrator.prompt import SYSTEM_PROMPT
from antiphon.stores.log.journal import JournalLog
from antiphon.stores.sql.sqlite import SqliteDatabase
from benchmarks.resume import answer_of
from tests.faults.test_outage import Disk
from tests.orchestrator.stage import TIMING, Stage

AT_ONCE = 40
_SHORT = TurnParams(max_tokens=8, seed=1)


class Interrupted:
    """Awaits ``work`` and cancels the task that does so at its ``nth`` suspension."""

    def __init__(self, work: Coroutine[Any, Any, None], nth: int) -> None:
        self._work = work
        self._nth = nth

    def __await__(self) -> Generator[Any, Any, None]:
        task = asyncio.current_task()
        assert task is not None
        value: Any = None
        failure: BaseException | None = None
        for at in range(1_000_000):
            try:
                waited = self._work.send(value) if failure is None else self._work.throw(failure)
            except StopIteration:
                return
            if at == self._nth:
                asyncio.get_running_loop().call_soon(task.cancel)
            value, failure = None, None
            try:
                value = yield waited
            except BaseException as raised:  # noqa: BLE001 - handed on to the work, as a task would
                failure = raised


class Requests:
    """What callers do, each with a word of its own."""

    def __init__(self, stage: Disk, random: Random) -> None:
        self._stage = stage
        self._random = random
        self.finished = 0
        services = SimpleNamespace(
            conversations=stage.conversations,
            generations=stage.generations,
            log=stage.log,
            runner=stage.runner,
            clock=stage.clock,
            timing=TIMING,
            telemetry=NullTelemetry(),
            state=ServerState(),
        )
        self.streams = Streams(cast("Any", services), self._allowed)

    async def _allowed(self, credentials: object) -> None:
        pass

    async def one(self, number: int) -> None:
        kinds: list[Callable[[str], Awaitable[None]]] = [self._turn, self._completion, self._turn, self._stop]
        await kinds[number % len(kinds)](f"canary {number} ")
        self.finished += 1

    async def _turn(self, canary: str) -> None:
        stage = self._stage
        conversation_id = await stage.conversation()
        accepted = await stage.send(conversation_id, canary, params=_SHORT)
        text = await self._read(accepted.generation_id)
        page = await stage.conversations.path(stage.owner, conversation_id, leaf=accepted.message_id, limit=10, before=None)
        question, answer = page.messages
        assert question.content == canary
        assert answer.content == text == await self._expected(canary)

    async def _stop(self, canary: str) -> None:
        stage = self._stage
        accepted = await stage.send(await stage.conversation(), canary, model="slow", params=TurnParams(max_tokens=200, seed=1))
        await stage.until_text(accepted.generation_id)
        await stage.runner.cancel(stage.owner, accepted.generation_id)
        assert (await stage.ended(accepted.generation_id)).status.terminal
        message = await stage.message(accepted.message_id)
        assert len(message.content) < 1000

    async def _completion(self, canary: str) -> None:
        request = CompletionRequest((PromptMessage(Role.USER, canary),), "quick", _SHORT)
        stream = await self._stage.completions.open(self._stage.principal, request)
        text = ""
        async with stream:
            async for event in stream:
                text += event.text if isinstance(event, Tokens) else getattr(event, "text", "")
        assert text == await self._expected(canary)

    async def _read(self, generation_id: Any) -> str:
        data: asyncio.Queue[bytes] = asyncio.Queue()
        left = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            data.put_nowait(message.get("body", b""))

        viewer = Viewer(self._stage.owner, generation_id, None, ())
        answering = asyncio.create_task(self.streams.stream(viewer)({"type": "http"}, receive, cast("Any", send)))
        try:
            await answering
        finally:
            left.set()
            answering.cancel()
        parser, text = SseParser(), ""
        while not data.empty():
            for event in parser.push(data.get_nowait()):
                if event.kind in {"delta", "snapshot"}:
                    text = json.loads(event.data)["text"] if event.kind == "snapshot" else text + json.loads(event.data)["text"]
        return text

    async def _expected(self, canary: str) -> str:
        return await asyncio.to_thread(answer_to, canary)


def answer_to(question: str) -> str:
    """The reference engine's eight tokens for it: a pure function."""
    tokenizer = ANSWERS["tokenizer"]
    prompt = tokenizer.prompt([PromptMessage(Role.SYSTEM, SYSTEM_PROMPT), PromptMessage(Role.USER, question)])
    return "".join(answer_of(prompt, 8)[1])


ANSWERS: dict[str, Any] = {}


@pytest.fixture
async def disk(gateway: Gateway, tmp_path: Path) -> AsyncIterator[Disk]:
    database = SqliteDatabase(tmp_path / "antiphon.db")
    await database.open()
    log = await JournalLog.open_folder(tmp_path / "log", Stage(gateway).clock, 900)
    stage = Disk(gateway, database, log)
    ANSWERS["tokenizer"] = gateway.tokenizer("quick")
    await stage.runner.start()
    yield stage
    await stage.close()
    await log.close()
    await database.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [pytest.param(200, id="200"), pytest.param(10_000, id="10000", marks=pytest.mark.slow)])
async def test_cancelled_requests_leave_nothing_behind(disk: Disk, gateway: Gateway, count: int) -> None:
    random = Random(count)
    requests = Requests(disk, random)
    await requests.one(0)
    await disk.until_quiet(requests)
    tasks_before, blocks_before = len(asyncio.all_tasks()), await free_blocks(gateway)
    gate = asyncio.Semaphore(AT_ONCE)
    cancelled = 0

    async def run(number: int) -> None:
        nonlocal cancelled
        async with gate:
            work = asyncio.create_task(interrupted(requests.one(number), random))
            try:
                await work
            except asyncio.CancelledError:
                cancelled += 1
            except Refused:
                pass

    await asyncio.gather(*(run(number) for number in range(count)))
    assert cancelled > count // 2
    assert requests.finished > count // 50
    await disk.until_quiet(requests)
    assert len(asyncio.all_tasks()) <= tasks_before
    assert await free_blocks(gateway) == blocks_before
    engines = disk.database._engines
    assert engines is not None
    assert (engines.writer.pool.checkedout(), engines.reader.pool.checkedout()) == (0, 0)  # type: ignore[attr-defined]
    assert disk.database._waiting_writes == 0
    assert not gateway._tickets
    rows = await disk.database.read(lambda tx: tx.exec_driver_sql("select count(*) from generations").scalar_one())
    # Completions have records of their own and no row; each answer, of either kind, has exactly one.
    recorded = "select count(distinct o.dedup_key) from outbox as o join generations as g on g.id = o.dedup_key"
    assert await disk.database.read(lambda tx: tx.exec_driver_sql(recorded).scalar_one()) == rows > count // 10
    repeated = "select count(*) - count(distinct dedup_key) from outbox"
    assert await disk.database.read(lambda tx: tx.exec_driver_sql(repeated).scalar_one()) == 0


async def interrupted(work: Coroutine[Any, Any, None], random: Random) -> None:
    await Interrupted(work, int(random.paretovariate(0.6)) - 1)


async def free_blocks(gateway: Gateway) -> list[int]:
    return [replica.free_blocks + replica.cached_blocks for pool in ("quick", "slow") for replica in gateway.replicas(pool)]
