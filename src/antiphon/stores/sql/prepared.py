"""Statements compiled once, and run past SQLAlchemy's execution where the driver is ``sqlite3``.

Building and keying a SQLAlchemy statement costs ten times what SQLite needs to run it; executing a text through SQLAlchemy still
costs four times that. Where somebody listens to ``before_cursor_execute``, statements take the long way, so that he sees them all.
"""

from __future__ import annotations

import sqlite3
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, MultipleResultsFound, NoResultFound

from antiphon.stores.sql.base import Value

_DIRECT = "sqlite3 connection"

Row = Any
"""A named tuple of a statement's columns."""


def matching(table: sa.Table, *names: str) -> tuple[sa.ColumnElement[bool], ...]:
    """Conditions: the columns of these names equal the parameters of the same names."""
    return tuple(table.c[name] == sa.bindparam(name) for name in names)


class Found:
    """All that a statement gave: its rows, or how many it changed."""

    __slots__ = ("_rows", "rowcount")

    def __init__(self, rows: Sequence[Row], rowcount: int) -> None:
        self._rows = rows
        self.rowcount = rowcount

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def all(self) -> Sequence[Row]:
        return self._rows

    def first(self) -> Row | None:
        return self._rows[0] if self._rows else None

    def one_or_none(self) -> Row | None:
        """Raises ``MultipleResultsFound``."""
        if len(self._rows) > 1:
            raise MultipleResultsFound
        return self.first()

    def one(self) -> Row:
        """Raises ``NoResultFound`` or ``MultipleResultsFound``."""
        row = self.one_or_none()
        if row is None:
            raise NoResultFound
        return row

    def scalar_one(self) -> Any:
        """The first column of the one row that there must be; raises as ``one``."""
        return self.one()[0]

    def scalar_one_or_none(self) -> Any:
        """The first column of the one row there is."""
        row = self.one_or_none()
        return None if row is None else row[0]


@dataclass(slots=True)
class _Compiled:
    text: str
    order: tuple[str, ...] | None
    fixed: Mapping[str, Value]
    getter: Callable[[Mapping[str, Value]], tuple[Value, ...]] | None
    row: Callable[[Row], Row] | None = None


def open_direct(tx: sa.Connection) -> None:
    """Let prepared statements on ``tx`` past SQLAlchemy, unless somebody listens to what it executes. Once for each transaction."""
    driver = tx.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    tx.info[_DIRECT] = None if tx.dispatch.before_cursor_execute else driver


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

    def run(self, tx: sa.Connection, values: Mapping[str, Value]) -> Found:
        """Execute with ``values``; names that the statement does not know are ignored.

        Raises as ``tx.execute`` would, or ``sqlite3.Error``.
        """
        compiled = self._compiled.get(tx.dialect.name) or self._compile(tx)
        driver = tx.info.get(_DIRECT)
        if driver is not None:
            return _run_directly(driver, compiled, _bound(compiled, values))
        result = tx.exec_driver_sql(compiled.text, _bound(compiled, values), execution_options=self._options)
        rows = result.all() if result.returns_rows else ()
        return Found(rows, result.rowcount)

    def run_each(self, tx: sa.Connection, rows: Sequence[Mapping[str, Value]]) -> None:
        """Execute with each of ``rows`` in turn, at least one; for statements that give nothing. Raises as ``run`` does."""
        compiled = self._compiled.get(tx.dialect.name) or self._compile(tx)
        parameters = [_bound(compiled, values) for values in rows]
        driver = tx.info.get(_DIRECT)
        if driver is None:
            tx.exec_driver_sql(compiled.text, parameters, execution_options=self._options)
            return
        try:
            driver.executemany(compiled.text, parameters)
        except sqlite3.IntegrityError as error:
            raise IntegrityError(compiled.text, parameters, error) from error

    def _compile(self, tx: sa.Connection) -> _Compiled:
        keys = None if self._columns is None else list(self._columns)
        # An id that the database gives a new row is not asked for: nobody reads it, and many rows at once could not return theirs.
        statement = self._statement.inline() if isinstance(self._statement, sa.Insert) else self._statement
        made = statement.compile(dialect=tx.dialect, column_keys=keys)
        assert isinstance(made, sa.sql.compiler.SQLCompiler)
        order = None if made.positiontup is None else tuple(made.positiontup)
        fixed = {name: value for name, value in made.construct_params(_check=False).items() if value is not None}
        getter = itemgetter(*order) if order is not None and len(order) > 1 else None
        compiled = _Compiled(str(made), order, fixed, getter)
        self._compiled[tx.dialect.name] = compiled
        return compiled


def _bound(compiled: _Compiled, values: Mapping[str, Value]) -> tuple[Value, ...] | dict[str, Value]:
    if compiled.fixed:
        values = {**compiled.fixed, **values}
    if compiled.order is None:
        return dict(values)
    if compiled.getter is not None:
        return compiled.getter(values)
    return tuple([values[name] for name in compiled.order])


def _run_directly(driver: sqlite3.Connection, compiled: _Compiled, parameters: tuple[Value, ...] | dict[str, Value]) -> Found:
    try:
        cursor = driver.execute(compiled.text, parameters)
        rows: list[Row] = cursor.fetchall()
    except sqlite3.IntegrityError as error:
        raise IntegrityError(compiled.text, parameters, error) from error
    if not rows:
        return Found((), cursor.rowcount)
    if compiled.row is None:
        names: list[str] = [column[0] for column in cursor.description]
        compiled.row = namedtuple("Row", names, rename=True)._make  # noqa: PYI024 # pyright: ignore[reportUntypedNamedTuple] - as the statement says
    return Found([compiled.row(row) for row in rows], cursor.rowcount)


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
