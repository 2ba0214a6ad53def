"""Reads one table of settings, key by key, and remembers every fault instead of stopping at the first."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

Choice = TypeVar("Choice", bound=str)


@dataclass(frozen=True, slots=True)
class EnvironmentText:
    """A value that came as text from ``variable``; it is read as whatever type its key has."""

    text: str
    variable: str


@dataclass(slots=True)
class Table:
    """``path`` names the table in faults. ``values`` maps keys to TOML values or ``EnvironmentText``.

    Each reading method returns the key's value, or ``default`` where it is absent or faulty; ``finish`` reports unknown keys.
    """

    path: str
    values: Mapping[str, object]
    faults: list[tuple[str, str]]
    known: set[str] = field(default_factory=set[str])

    def has(self, key: str) -> bool:
        return key in self.values

    def fault(self, key: str, reason: str) -> None:
        """Remember a fault of ``key``, naming the environment variable it came from."""
        value = self.values.get(key)
        source = f" ({value.variable})" if isinstance(value, EnvironmentText) else ""
        self.faults.append((f"{self.path}.{key}" if key else self.path, f"{reason}{source}"))

    def text(self, key: str, default: str) -> str:
        value = self._value(key)
        if value is None:
            return default
        if isinstance(value, EnvironmentText):
            return value.text
        if isinstance(value, str):
            return value
        self.fault(key, f"must be a string, not {_kind(value)}")
        return default

    def choice(self, key: str, default: Choice, choices: Sequence[Choice]) -> Choice:
        found = self.text(key, default)
        for choice in choices:
            if found == choice:
                return choice
        self.fault(key, f"must be one of {', '.join(choices)}, not {found!r}")
        return default

    def integer(self, key: str, default: int, *, at_least: int = 0, at_most: int | None = None) -> int:
        value = self._value(key)
        if isinstance(value, EnvironmentText):
            value = _parse_number(value.text)
        if value is None and not self.has(key):
            return default
        if not isinstance(value, int) or isinstance(value, bool):
            self.fault(key, "must be a whole number")
            return default
        if value < at_least or (at_most is not None and value > at_most):
            self.fault(key, f"must be at least {at_least}" if at_most is None else f"must be between {at_least} and {at_most}")
            return default
        return value

    def number(self, key: str, default: float, *, above: float = 0.0) -> float:
        value = self._value(key)
        if isinstance(value, EnvironmentText):
            value = _parse_number(value.text)
        if value is None and not self.has(key):
            return default
        if not isinstance(value, int | float) or isinstance(value, bool):
            self.fault(key, "must be a number")
            return default
        if not above < value < float("inf"):
            self.fault(key, f"must be greater than {above:g}")
            return default
        return float(value)

    def truth(self, key: str, default: bool) -> bool:
        value = self._value(key)
        if isinstance(value, EnvironmentText):
            value = {"true": True, "false": False}.get(value.text)
        if value is None and not self.has(key):
            return default
        if not isinstance(value, bool):
            self.fault(key, "must be true or false")
            return default
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings; from the environment, separated by commas."""
        value = self._value(key)
        if value is None:
            return ()
        if isinstance(value, EnvironmentText):
            return tuple(part.strip() for part in value.text.split(",") if part.strip())
        items = _list(value)
        if items is None or not all(isinstance(item, str) for item in items):
            self.fault(key, "must be a list of strings")
            return ()
        return tuple(cast("list[str]", items))

    def tables(self, key: str) -> tuple[Table, ...]:
        """A list of tables, each named ``path.key[index]``."""
        value = self._value(key)
        if isinstance(value, EnvironmentText):
            self.fault(key, "is a list of tables; set it in the configuration file")
            return ()
        items = () if value is None else _list(value)
        if items is None or not all(isinstance(item, Mapping) for item in items):
            self.fault(key, "must be a list of tables")
            return ()
        tables = cast("Sequence[Mapping[str, object]]", items)
        return tuple(Table(f"{self.path}.{key}[{index}]", table, self.faults) for index, table in enumerate(tables))

    def finish(self) -> None:
        """Every key that nobody asked for is a fault."""
        for key in self.values:
            if key not in self.known:
                self.fault(key, "unknown key")

    def _value(self, key: str) -> object:
        self.known.add(key)
        return self.values.get(key)


def _list(value: object) -> list[object] | None:
    return cast("list[object]", value) if isinstance(value, list) else None


def _kind(value: object) -> str:
    return "a list" if isinstance(value, list) else "a table" if isinstance(value, Mapping) else type(value).__name__


def _parse_number(text: str) -> object:
    """TOML's reading of ``text`` as a number, else ``text`` itself."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return parsed["value"] if parsed.keys() == {"value"} else text
