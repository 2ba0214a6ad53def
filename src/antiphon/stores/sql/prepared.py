"""Statements compiled once. Building and keying a SQLAlchemy statement costs ten times what SQLite needs to run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from antiphon.stores.sql.base import Value


@dataclass(frozen=True, slots=True)
class _Compiled:
    text: str
    order: tuple[str, ...] | None
    fixed: Mapping[str, Value]


class Prepared:
    """A constant statement whose values are ``sa.bindparam`` of the names that ``run`` is given.

    An insert takes all its table's columns (``columns`` when given). ``across`` marks it as ``base.across_tenants`` would.
    Only for columns that the driver stores as they are: text, integers, bytes.
    """

    def __init__(self, statement: sa.sql.expression.ClauseElement, *, columns: tuple[str, ...] | None = None, across: str = "") -> None:
        self._statement = statement
        self._columns = columns
        self._options: dict[str, str] = {"across_tenants": across} if across else {}
        self._compiled: dict[str, _Compiled] = {}

    def run(self, tx: sa.Connection, values: Mapping[str, Value]) -> sa.CursorResult[*tuple[Any, ...]]:
        """Execute with ``values``; names that the statement does not know are ignored."""
        compiled = self._compiled.get(tx.dialect.name) or self._compile(tx)
        merged = {**compiled.fixed, **values} if compiled.fixed else values
        if compiled.order is None:
            parameters: tuple[Value, ...] | dict[str, Value] = dict(merged)
        else:
            parameters = tuple([merged[name] for name in compiled.order])
        return tx.exec_driver_sql(compiled.text, parameters, execution_options=self._options)

    def _compile(self, tx: sa.Connection) -> _Compiled:
        keys = None if self._columns is None else list(self._columns)
        made = self._statement.compile(dialect=tx.dialect, column_keys=keys)
        assert isinstance(made, sa.sql.compiler.SQLCompiler)
        order = None if made.positiontup is None else tuple(made.positiontup)
        fixed = {name: value for name, value in made.construct_params(_check=False).items() if value is not None}
        compiled = _Compiled(str(made), order, fixed)
        self._compiled[tx.dialect.name] = compiled
        return compiled


class PreparedUpdate:
    """Updates of one row of ``table``, found by the columns ``key``; one statement is kept for each set of columns that changes.

    ``extra`` narrows the row further; its bound names, and those of the key, begin with ``key_``.
    """

    def __init__(self, table: sa.Table, *key: str, extra: tuple[sa.ColumnElement[bool], ...] = ()) -> None:
        self._table = table
        self._key = key
        named = (table.c[name] == sa.bindparam(f"key_{name}") for name in key)
        self._statement = table.update().where(*named, *extra)
        self._prepared: dict[tuple[str, ...], Prepared] = {}

    def run(self, tx: sa.Connection, changes: Mapping[str, Value], key: Mapping[str, Value]) -> int:
        """Write ``changes``, at least one; returns how many rows there were to change."""
        columns = tuple(changes)
        prepared = self._prepared.get(columns)
        if prepared is None:
            prepared = self._prepared[columns] = Prepared(self._statement, columns=columns)
        return prepared.run(tx, {**changes, **{f"key_{name}": value for name, value in key.items()}}).rowcount
