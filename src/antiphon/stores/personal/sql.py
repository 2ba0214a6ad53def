"""Instructions and memories on SQL."""

from __future__ import annotations

import sqlalchemy as sa

from antiphon.core.clock import from_ms, to_ms
from antiphon.core.errors import Conflict, NotFound
from antiphon.core.ids import MemoryId
from antiphon.core.prompts import Memory
from antiphon.stores.conversations.base import Owner
from antiphon.stores.personal.base import Personal
from antiphon.stores.sql.base import Database
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


class SqlPersonalTexts:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def get(self, owner: Owner) -> Personal:
        return await self._db.read(lambda tx: _select(tx, owner))

    async def put_instructions(self, owner: Owner, text: str) -> None:
        def put(tx: sa.Connection) -> None:
            _delete_instructions.run(tx, _place(owner))
            if text:
                _insert_instructions.run(tx, {**_place(owner), "text": text})

        await self._db.write(put)

    async def add_memory(self, owner: Owner, memory: Memory, *, at_most: int) -> None:
        def add(tx: sa.Connection) -> None:
            if len(_select_memories.run(tx, _place(owner)).all()) >= at_most:
                raise Conflict(f"At most {at_most} things are remembered.")
            made = {"id": memory.id, "text": memory.text, "created_at": to_ms(memory.created_at)}
            _insert_memory.run(tx, {**_place(owner), **made})

        await self._db.write(add)

    async def change_memory(self, owner: Owner, memory_id: MemoryId, text: str) -> Memory:
        named = _named(owner, memory_id)

        def change(tx: sa.Connection) -> Memory:
            if tx.execute(memories.update().where(*named).values(text=text)).rowcount != 1:
                raise NotFound
            return _memory_of(tx.execute(sa.select(memories).where(*named)).one())

        return await self._db.write(change)

    async def forget_memory(self, owner: Owner, memory_id: MemoryId) -> None:
        def drop(tx: sa.Connection) -> None:
            if tx.execute(memories.delete().where(*_named(owner, memory_id))).rowcount != 1:
                raise NotFound

        await self._db.write(drop)

    async def forget(self, owner: Owner) -> None:
        def drop(tx: sa.Connection) -> None:
            _delete_instructions.run(tx, _place(owner))
            tx.execute(memories.delete().where(memories.c.tenant_id == owner.tenant_id, memories.c.user_id == owner.user_id))

        await self._db.write(drop)


def _select(tx: sa.Connection, owner: Owner) -> Personal:
    text = _select_instructions.run(tx, _place(owner)).scalar_one_or_none()
    return Personal(text or "", tuple(_memory_of(row) for row in _select_memories.run(tx, _place(owner))))


def _memory_of(row: Row) -> Memory:
    return Memory(row.id, row.text, from_ms(row.created_at))


def _place(owner: Owner) -> dict[str, str | int | bytes | None]:
    return {"tenant_id": owner.tenant_id, "user_id": owner.user_id}


def _named(owner: Owner, memory_id: MemoryId) -> tuple[sa.ColumnElement[bool], ...]:
    return memories.c.tenant_id == owner.tenant_id, memories.c.user_id == owner.user_id, memories.c.id == memory_id
