"""Instructions and memories on SQL."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import TypeVar

import sqlalchemy as sa

from antiphon.core.clock import from_ms, to_ms
from antiphon.core.errors import Conflict, NotFound
from antiphon.core.ids import MemoryId
from antiphon.core.prompts import Memory
from antiphon.stores.conversations.base import Owner
from antiphon.stores.personal.base import Personal
from antiphon.stores.sql.base import Database, stand_alone
from antiphon.stores.sql.prepared import Prepared, matching
from antiphon.stores.sql.rows import Row
from antiphon.stores.sql.tables import instructions, memories

_select_instructions = Prepared(sa.select(instructions.c.text).where(*matching(instructions, "tenant_id", "user_id")))
_delete_instructions = Prepared(instructions.delete().where(*matching(instructions, "tenant_id", "user_id")))
_insert_instructions = Prepared(instructions.insert())
_select_memories = Prepared(
    sa.select(memories).where(*matching(memories, "tenant_id", "user_id")).order_by(memories.c.created_at, memories.c.id)
)
_insert_memory = Prepared(memories.insert())

_HELD = 1024
"""So many users' texts are held."""

T = TypeVar("T")


class SqlPersonalTexts:
    """The one that writes these tables, as long as it lives: every turn asks, so what was read last is held."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._held: OrderedDict[Owner, Personal] = OrderedDict()
        self._unsettled: Counter[Owner] = Counter()
        self._version = 0

    async def get(self, owner: Owner) -> Personal:
        held = self._held.get(owner)
        if held is not None:
            self._held.move_to_end(owner)
            return held
        version = self._version
        personal = await self._db.read(lambda tx: _select(tx, owner))
        if version == self._version and not self._unsettled[owner]:
            self._held[owner] = personal
            if len(self._held) > _HELD:
                self._held.popitem(last=False)
        return personal

    async def put_instructions(self, owner: Owner, text: str) -> None:
        def put(tx: sa.Connection) -> None:
            _delete_instructions.run(tx, _place(owner))
            if text:
                _insert_instructions.run(tx, {**_place(owner), "text": text})

        await self._write(owner, put)

    async def add_memory(self, owner: Owner, memory: Memory, *, at_most: int) -> None:
        def add(tx: sa.Connection) -> None:
            stand_alone(tx)
            if len(_select_memories.run(tx, _place(owner)).all()) >= at_most:
                raise Conflict(f"At most {at_most} things are remembered.")
            made = {"id": memory.id, "text": memory.text, "created_at": to_ms(memory.created_at)}
            _insert_memory.run(tx, {**_place(owner), **made})

        await self._write(owner, add)

    async def change_memory(self, owner: Owner, memory_id: MemoryId, text: str) -> Memory:
        named = _named(owner, memory_id)

        def change(tx: sa.Connection) -> Memory:
            if tx.execute(memories.update().where(*named).values(text=text)).rowcount != 1:
                raise NotFound
            return _memory_of(tx.execute(sa.select(memories).where(*named)).one())

        return await self._write(owner, change)

    async def forget_memory(self, owner: Owner, memory_id: MemoryId) -> None:
        def drop(tx: sa.Connection) -> None:
            if tx.execute(memories.delete().where(*_named(owner, memory_id))).rowcount != 1:
                raise NotFound

        await self._write(owner, drop)

    async def forget(self, owner: Owner) -> None:
        def drop(tx: sa.Connection) -> None:
            _delete_instructions.run(tx, _place(owner))
            tx.execute(memories.delete().where(memories.c.tenant_id == owner.tenant_id, memories.c.user_id == owner.user_id))

        await self._write(owner, drop)

    async def _write(self, owner: Owner, fn: Callable[[sa.Connection], T]) -> T:
        """Nothing that is read while it is being written is held; ``_unsettled`` counts the writes that run."""
        self._held.pop(owner, None)
        self._unsettled[owner] += 1
        self._version += 1
        try:
            return await self._db.write(fn)
        except asyncio.CancelledError:
            # It may be written yet, nobody says when: this owner's texts are never held again.
            self._unsettled[owner] += 1
            raise
        finally:
            self._unsettled[owner] -= 1
            self._unsettled = +self._unsettled
            self._version += 1


def _select(tx: sa.Connection, owner: Owner) -> Personal:
    text = _select_instructions.run(tx, _place(owner)).scalar_one_or_none()
    return Personal(text or "", tuple(_memory_of(row) for row in _select_memories.run(tx, _place(owner))))


def _memory_of(row: Row) -> Memory:
    return Memory(row.id, row.text, from_ms(row.created_at))


def _place(owner: Owner) -> dict[str, str | int | bytes | None]:
    return {"tenant_id": owner.tenant_id, "user_id": owner.user_id}


def _named(owner: Owner, memory_id: MemoryId) -> tuple[sa.ColumnElement[bool], ...]:
    return memories.c.tenant_id == owner.tenant_id, memories.c.user_id == owner.user_id, memories.c.id == memory_id
