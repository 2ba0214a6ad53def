"""What the SQL drivers ask of a database, so that their statements run on any that SQLAlchemy knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol, TypeVar

import sqlalchemy as sa

from antiphon.core.ids import ConversationId
from antiphon.stores.conversations.base import Owner

T = TypeVar("T")
Statement = TypeVar("Statement", bound=sa.sql.base.Executable)
Value = str | int | bytes | None


class Gone(NamedTuple):
    """A conversation that leaves the store for good."""

    owner: Owner
    conversation_id: ConversationId


class Database(Protocol):
    """Runs plain functions of a connection, each in one transaction (see ``database.SqlDatabase``)."""

    async def write(self, fn: Callable[[sa.Connection], T], *, durable: bool = True) -> T: ...

    async def read(self, fn: Callable[[sa.Connection], T]) -> T: ...

    async def fold(self) -> None:
        """Leave no copy of overwritten rows beside the database, as far as readers allow."""
        ...

    async def forget(self, gone: Sequence[Gone]) -> None:
        """Leave no text of these conversations in copies of the database, before they leave the database itself."""
        ...

    async def expire_copies(self, *, now: datetime) -> None:
        """Remove copies of the database that are older than they may be."""
        ...


def stand_alone(tx: sa.Connection) -> None:
    """Whatever this transaction reads, rows that are not there included, holds until it commits. Before its first statement.

    On PostgreSQL the others' writes are seen to collide otherwise only where both write or lock the same row; SQLite has one writer.
    """
    if tx.dialect.name == "postgresql":
        tx.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")


def across_tenants(statement: Statement, why: str) -> Statement:
    """Mark a statement that may name no tenant: a look-up of a secret or an id that says whose it is, or a sweep over all.

    A test refuses every other statement without ``tenant_id``, and every ``why`` it does not list.
    """
    return statement.execution_options(across_tenants=why)


def changed_values(before: Mapping[str, Value], after: Mapping[str, Value]) -> dict[str, Value]:
    """The columns whose value differs."""
    return {name: value for name, value in after.items() if before[name] != value}
