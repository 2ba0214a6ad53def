"""What is held of users' own texts is what the file holds."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from antiphon.core.ids import MemoryId
from antiphon.core.prompts import Memory
from antiphon.stores.personal.sql import SqlPersonalTexts
from antiphon.stores.sql.sqlite import SqliteDatabase
from tests.contracts.scene import Scene


@pytest.mark.parametrize("seed", range(20))
async def test_reads_between_writes_and_writers_given_up(db: SqliteDatabase, scene: Scene, seed: int) -> None:
    draw, texts, owner = Random(seed), SqlPersonalTexts(db), scene.owner()
    for number in range(20):
        memory = Memory(MemoryId(f"mem_{number}"), "likes tea", scene.clock.now())
        write = texts.add_memory(owner, memory, at_most=99) if draw.random() < 0.5 else texts.put_instructions(owner, f"{number}")
        calls = [asyncio.ensure_future(call) for call in (texts.get(owner), write, texts.get(owner))]
        for _ in range(draw.randrange(6)):
            await asyncio.sleep(0)
        if draw.random() < 0.3:
            calls[1].cancel()
            await asyncio.sleep(0)
            await texts.get(owner)
        await asyncio.gather(*calls, return_exceptions=True)
        await db.write(lambda _: None)  # behind what a writer left
        assert await texts.get(owner) == await SqlPersonalTexts(db).get(owner)


async def test_no_database_is_read_for_texts_that_are_held(db: SqliteDatabase, scene: Scene) -> None:
    texts, owner, other = SqlPersonalTexts(db), scene.owner(), scene.owner("t2")
    await texts.put_instructions(owner, "Be brief.")
    held = await texts.get(owner)
    assert await texts.get(owner) is held
    await texts.put_instructions(other, "Sing.")
    assert await texts.get(owner) is held
    await texts.forget(owner)
    assert (await texts.get(owner)).instructions == ""
