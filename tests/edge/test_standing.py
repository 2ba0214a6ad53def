"""Credentials of open streams: looked at once for all their streams, and only a refusal closes them."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.core.errors import StoreUnavailable, Unauthenticated
from antiphon.edge.connection import HeaderList
from antiphon.edge.standing import Standings

ADA: HeaderList = ((b"authorization", b"Bearer ada"),)
BOB: HeaderList = ((b"authorization", b"Bearer bob"),)


class Reader:
    def __init__(self) -> None:
        self.woken = asyncio.Event()

    def wake(self) -> None:
        self.woken.set()


class Door:
    """Whom it lets in; ``away``: nobody is there to ask."""

    def __init__(self) -> None:
        self.refused: set[HeaderList] = set()
        self.away = False
        self.asked: list[HeaderList] = []

    async def check(self, credentials: HeaderList) -> None:
        self.asked.append(credentials)
        await asyncio.sleep(0)
        if self.away:
            raise StoreUnavailable
        if credentials in self.refused:
            raise Unauthenticated


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.edge.standing.RECHECK_SECONDS", 0.05)
    monkeypatch.setattr("antiphon.edge.standing.JOIN_SECONDS", 0.01)


async def test_a_revoked_credential_wakes_its_readers_alone() -> None:
    door = Door()
    standings = Standings(door.check)
    adas, bob = [Reader() for _ in range(20)], Reader()
    held = [standings.join(ADA, reader) for reader in adas]
    other = standings.join(BOB, bob)
    while len(door.asked) < 4:
        await asyncio.sleep(0.01)
    assert door.asked[:4] == [ADA, BOB] * 2, "one look for all streams of a credential"

    door.refused.add(ADA)
    async with asyncio.timeout(30):
        for reader in adas:
            await reader.woken.wait()
    assert all(standing.revoked for standing in held)
    assert not other.revoked
    assert not bob.woken.is_set()
    for standing, reader in zip(held, adas, strict=True):
        standings.leave(standing, reader)
    standings.leave(other, bob)


async def test_an_outage_closes_nothing_and_the_looking_goes_on() -> None:
    door = Door()
    standings, reader = Standings(door.check), Reader()
    door.away = True
    standing = standings.join(ADA, reader)
    while len(door.asked) < 3:
        await asyncio.sleep(0.01)
    assert not standing.revoked
    door.away = False
    door.refused.add(ADA)
    async with asyncio.timeout(30):
        await reader.woken.wait()
    assert standing.revoked
    assert not standings.join(ADA, Reader()).revoked, "a new stream was let in anew"


async def test_nobody_is_looked_at_who_has_left() -> None:
    door = Door()
    standings, reader = Standings(door.check), Reader()
    standings.leave(standings.join(ADA, reader), reader)
    await asyncio.sleep(0.15)
    assert door.asked == []
    standing = standings.join(ADA, reader)
    while not door.asked:
        await asyncio.sleep(0.01)
    standings.leave(standing, reader)


async def test_what_goes_on_for_long_is_cut_when_its_credential_ends() -> None:
    door = Door()
    standings = Standings(door.check)

    async def work(credentials: HeaderList) -> None:
        with standings.cutting(credentials):
            await asyncio.sleep(60)

    ada, bob = asyncio.create_task(work(ADA)), asyncio.create_task(work(BOB))
    while len(door.asked) < 4:
        await asyncio.sleep(0.01)
    door.refused.add(ADA)
    with pytest.raises(Unauthenticated):
        await asyncio.wait_for(ada, 30)
    assert not ada.cancelled() and not ada.cancelling() and not bob.done()
    bob.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bob
    seen = len(door.asked)
    await asyncio.sleep(0.15)
    assert len(door.asked) == seen, "nobody is looked at whose work has ended"


async def test_what_is_soon_done_is_not_looked_at() -> None:
    door = Door()
    with Standings(door.check).cutting(ADA):
        await asyncio.sleep(0)
    await asyncio.sleep(0.1)
    assert door.asked == []


async def test_who_is_cut_and_cancelled_is_cancelled() -> None:
    door = Door()
    door.refused.add(ADA)
    standings = Standings(door.check)

    async def work() -> None:
        with standings.cutting(ADA):
            try:
                await asyncio.sleep(60)
            finally:
                task.cancel()
                await asyncio.sleep(60)

    task = asyncio.create_task(work())
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 30)
    assert task.cancelled()
