"""Instructions and memories in memory: the reference driver."""

from __future__ import annotations

from dataclasses import replace

from antiphon.core.errors import Conflict, NotFound
from antiphon.core.ids import MemoryId
from antiphon.core.prompts import Memory
from antiphon.stores.conversations.base import Owner
from antiphon.stores.memory import MemoryState
from antiphon.stores.personal.base import Personal


class MemoryPersonalTexts:
    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def get(self, owner: Owner) -> Personal:
        return self._of(owner)

    async def put_instructions(self, owner: Owner, text: str) -> None:
        self._put(owner, replace(self._of(owner), instructions=text))

    async def add_memory(self, owner: Owner, memory: Memory, *, at_most: int) -> None:
        personal = self._of(owner)
        if len(personal.memories) >= at_most:
            raise Conflict(f"At most {at_most} things are remembered.")
        self._put(owner, replace(personal, memories=(*personal.memories, memory)))

    async def change_memory(self, owner: Owner, memory_id: MemoryId, text: str) -> Memory:
        personal = self._of(owner)
        changed = {memory.id: memory for memory in personal.memories}
        if memory_id not in changed:
            raise NotFound
        changed[memory_id] = replace(changed[memory_id], text=text)
        self._put(owner, replace(personal, memories=tuple(changed.values())))
        return changed[memory_id]

    async def forget_memory(self, owner: Owner, memory_id: MemoryId) -> None:
        personal = self._of(owner)
        left = tuple(memory for memory in personal.memories if memory.id != memory_id)
        if len(left) == len(personal.memories):
            raise NotFound
        self._put(owner, replace(personal, memories=left))

    async def forget(self, owner: Owner) -> None:
        self._state.personal.pop((owner.tenant_id, owner.user_id), None)

    def _of(self, owner: Owner) -> Personal:
        return self._state.personal.get((owner.tenant_id, owner.user_id), Personal())

    def _put(self, owner: Owner, personal: Personal) -> None:
        self._state.personal[owner.tenant_id, owner.user_id] = personal
