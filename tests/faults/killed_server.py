"""``antiphon serve`` that kills itself, or its replica, at one crash point. Only tests start it:

``python -m tests.faults.killed_server POINT ARM serve …``. Nothing happens until the file ARM exists; it holds how many times
the point is to be passed before. ``R…`` points kill the replica, and the server lives on.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import Any

import antiphon.app.run
import antiphon.app.wiring  # noqa: F401 - `run` loads it late
from antiphon.core.events import Delta, LogEntry
from antiphon.core.generation import Generation, Usage
from antiphon.core.ids import GenerationId
from antiphon.inference.gateway import Gateway
from antiphon.stores.generations.sql import SqlGenerations
from antiphon.stores.log.journal import JournalLog
from antiphon.stores.sql.sqlite import SqliteDatabase
from antiphon.stores.usage.sql import SqlOutbox

POINT, ARM = sys.argv[1], Path(sys.argv[2])
_transaction: ContextVar[str] = ContextVar("transaction", default="")
_gateways: list[Gateway] = []
_passed: list[str] = []


def due(point: str) -> bool:
    """Whether this is the time at which ``point`` is to kill."""
    if point != POINT or not ARM.exists():
        return False
    _passed.append(point)
    return len(_passed) > int(ARM.read_text() or 0)


def reached(point: str) -> None:
    if due(point):
        os.kill(os.getpid(), signal.SIGKILL)
    if due(point.replace("C", "R", 1)):
        ARM.unlink()
        for gateway in _gateways:
            for replica in gateway.replicas("small"):
                if replica.pid is not None:
                    os.kill(replica.pid, signal.SIGKILL)


class KilledGenerations(SqlGenerations):
    async def accept(self, turn: Any) -> Any:
        reached("C1")
        _transaction.set("C2")
        accepted = await super().accept(turn)
        _transaction.set("")
        reached("C3")
        return accepted

    async def claim(self, generation_id: GenerationId, *, now: datetime, lease_until: datetime) -> Generation | None:
        generation = await super().claim(generation_id, now=now, lease_until=lease_until)
        if generation is not None:
            reached("C4")
            if generation.epoch > 1:
                reached("C16")
        return generation

    async def checkpoint(self, generation_id: GenerationId, epoch: int, *, text: str, seq: int, usage: Usage) -> None:
        reached("C7")
        _transaction.set("C8")
        await super().checkpoint(generation_id, epoch, text=text, seq=seq, usage=usage)
        _transaction.set("")

    async def finalise(self, finished: Any) -> None:
        reached("C9")
        _transaction.set("C10")
        await super().finalise(finished)
        _transaction.set("")
        reached("C11")

    async def request_cancel(self, *args: Any, **named: Any) -> Generation:
        generation = await super().request_cancel(*args, **named)
        reached("C15")
        return generation


class KilledOutbox(SqlOutbox):
    async def unsent(self, *, limit: int) -> Any:
        entries = await super().unsent(limit=limit)
        if entries:
            reached("C13")
        return entries

    async def mark_sent(self, numbers: Sequence[int], *, now: datetime) -> None:
        reached("C14")
        await super().mark_sent(numbers, now=now)


class KilledDatabase(SqliteDatabase):
    async def write(self, fn: Callable[[Any], Any], **named: Any) -> Any:
        transaction = _transaction.get()

        def inside(tx: Any) -> Any:
            answer = fn(tx)
            reached(transaction)
            return answer

        return await super().write(inside if transaction else fn, **named)


class KilledJournal(JournalLog):
    async def append(self, generation_id: GenerationId, entries: Sequence[LogEntry]) -> None:
        if any(isinstance(entry.event, Delta) for entry in entries):
            reached("C6")
        await super().append(generation_id, entries)
        if entries[-1].terminal:
            reached("C12")

    def _write(self, batch: Any) -> int:
        if any(type(record).__name__ == "Appended" for record in batch) and due("C6t"):
            from antiphon.stores.log import records

            data = b"".join(map(records.encode_frame, batch))
            self._segments.write(data[: len(data) * 2 // 3])
            os.kill(os.getpid(), signal.SIGKILL)
        return super()._write(batch)


class KilledGateway(Gateway):
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        _gateways.append(self)

    async def stream(self, pool: str, request: Any, **named: Any) -> AsyncGenerator[Any]:
        asyncio.get_running_loop().call_later(0.001, reached, "C5")
        async for event in super().stream(pool, request, **named):
            yield event


def main() -> None:
    for killed in (KilledGenerations, KilledOutbox, KilledDatabase, KilledJournal, KilledGateway):
        real = killed.__mro__[1]
        composition = [module for name, module in sys.modules.items() if name.startswith("antiphon.app.")]
        places = [module for module in composition if vars(module).get(real.__name__) is real]
        assert places, f"the composition does not name {real.__name__}"
        for place in places:
            setattr(place, real.__name__, killed)
    from antiphon.cli.main import main as antiphon

    del sys.argv[1:3]
    sys.exit(antiphon())


if __name__ == "__main__":
    main()
