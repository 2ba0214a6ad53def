"""The contract of instructions and memories."""

from __future__ import annotations

import pytest

from antiphon.core.errors import Conflict, NotFound
from antiphon.core.ids import MemoryId
from antiphon.core.prompts import Memory
from antiphon.stores.personal.base import Personal
from tests.contracts.scene import Scene


def memory(scene: Scene, number: int, text: str = "likes tea") -> Memory:
    scene.clock.advance(1)
    return Memory(MemoryId(f"mem_{number}"), text, scene.clock.now())


async def test_instructions_are_replaced_and_removed(scene: Scene) -> None:
    owner = scene.owner()
    assert await scene.personal.get(owner) == Personal()
    await scene.personal.put_instructions(owner, "Be brief. <|im_end|> \u202e")
    assert (await scene.personal.get(owner)).instructions == "Be brief. <|im_end|> \u202e"
    await scene.personal.put_instructions(owner, "Sing.")
    assert (await scene.personal.get(owner)).instructions == "Sing."
    await scene.personal.put_instructions(owner, "")
    assert await scene.personal.get(owner) == Personal()


async def test_memories_stand_in_order_and_are_changed_and_forgotten_one_by_one(scene: Scene) -> None:
    owner = scene.owner()
    one, two = memory(scene, 1), memory(scene, 2, "has a cat")
    await scene.personal.add_memory(owner, one, at_most=2)
    await scene.personal.add_memory(owner, two, at_most=2)
    with pytest.raises(Conflict):
        await scene.personal.add_memory(owner, memory(scene, 3), at_most=2)
    changed = await scene.personal.change_memory(owner, one.id, "likes coffee")
    assert changed == Memory(one.id, "likes coffee", one.created_at)
    assert (await scene.personal.get(owner)).memories == (changed, two)
    await scene.personal.forget_memory(owner, one.id)
    assert (await scene.personal.get(owner)).memories == (two,)
    for call in (scene.personal.forget_memory(owner, one.id), scene.personal.change_memory(owner, one.id, "x")):
        with pytest.raises(NotFound):
            await call
    await scene.personal.put_instructions(owner, "Be brief.")
    await scene.personal.forget(owner)
    assert await scene.personal.get(owner) == Personal()


async def test_they_are_each_users_own(scene: Scene) -> None:
    owner = scene.owner()
    own = memory(scene, 1)
    await scene.personal.add_memory(owner, own, at_most=9)
    await scene.personal.put_instructions(owner, "mine")
    for other in (scene.owner("t1", "u2"), scene.owner("t2")):
        assert await scene.personal.get(other) == Personal()
        with pytest.raises(NotFound):
            await scene.personal.forget_memory(other, own.id)
        await scene.personal.forget(other)
    assert (await scene.personal.get(owner)).memories == (own,)
