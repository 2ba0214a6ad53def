"""Whether a pool takes a turn now, lets it wait, or sheds it; and the line in which accepted turns wait. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from antiphon.core.tenancy import Band

_LONGEST_RETRY_S = 60.0
_NEWEST_INTERVAL_WEIGHT = 0.2

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Admit:
    """It would start at once."""


@dataclass(frozen=True, slots=True)
class Queue:
    """It would wait at ``position`` (from 1); ``eta_ms`` is ``None`` until the line has been seen to move."""

    position: int
    eta_ms: int | None


@dataclass(frozen=True, slots=True)
class Shed:
    """It would not be served: the line is full, or there is nothing to wait for."""

    code: Literal["high_demand", "no_capacity"]
    retry_after_ms: int


Decision = Admit | Queue | Shed


class WaitingLine(Generic[T]):
    """First come, first served within a band; higher bands first.

    ``limit`` bounds what ``decide`` lets in. Who was accepted is never turned away afterwards, so ``enter`` does not refuse.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._bands: dict[Band, dict[T, None]] = {band: {} for band in sorted(Band, reverse=True)}

    def __len__(self) -> int:
        return sum(map(len, self._bands.values()))

    def __iter__(self) -> Iterator[T]:
        """In the order in which they will be served."""
        for line in self._bands.values():
            yield from line

    @property
    def full(self) -> bool:
        return len(self) >= self.limit

    @property
    def first(self) -> T | None:
        return next(iter(self), None)

    def enter(self, item: T, band: Band) -> None:
        self._bands[band][item] = None

    def leave(self, item: T) -> bool:
        """Whether it was there."""
        return any(line.pop(item, self) is None for line in self._bands.values())

    def waiting(self, band: Band) -> int:
        return len(self._bands[band])

    def ahead_of(self, band: Band) -> int:
        """How many would be served before a newcomer of ``band``."""
        return sum(len(line) for other, line in self._bands.items() if other >= band)


class DrainMeter:
    """How fast a line moves, measured only while somebody waits in it."""

    def __init__(self) -> None:
        self._interval_s: float | None = None
        self._since: float | None = None

    def update(self, now: float, *, waiting: bool, departed: bool) -> None:
        """Tell it after each change: whether somebody waits, and whether somebody has just left the line for a replica."""
        if departed and self._since is not None:
            interval = now - self._since
            old = self._interval_s
            self._interval_s = interval if old is None else old + _NEWEST_INTERVAL_WEIGHT * (interval - old)
        if not waiting:
            self._since = None
        elif departed or self._since is None:
            self._since = now

    def seconds_each(self, now: float) -> float | None:
        """Expected seconds between two departures; grows while the line stands still. ``None``: it has never moved."""
        if self._interval_s is None:
            return None
        return max(self._interval_s, self.standing_s(now))

    def standing_s(self, now: float) -> float:
        """How long the line has been standing still."""
        return 0.0 if self._since is None else now - self._since


@dataclass(frozen=True, slots=True)
class PoolView:
    """What a decision looks at. ``opening_s`` is the expected time until a replica is ready, when none is."""

    waiting: int
    ahead: int
    full: bool
    fits_now: bool
    available: bool
    """A replica is ready, or was and is being restarted."""
    seconds_each: float | None
    standing_s: float
    opening_s: float


def decide(view: PoolView) -> Decision:
    """The decision for a newcomer. Retry-After is the time in which the line, at its measured pace, would have emptied."""
    if not view.available:
        return Shed("no_capacity", _retry_ms(view.opening_s))
    if view.full:
        each = view.standing_s if view.seconds_each is None else view.seconds_each
        return Shed("high_demand", _retry_ms(each * view.waiting))
    if view.fits_now and view.waiting == 0:
        return Admit()
    return Queue(view.ahead + 1, eta_ms(view.ahead + 1, view.seconds_each))


def eta_ms(position: int, seconds_each: float | None) -> int | None:
    """When the one at ``position`` will be served, at the line's measured pace."""
    return None if seconds_each is None else round(1000 * position * seconds_each)


def _retry_ms(seconds: float) -> int:
    return round(1000 * min(max(seconds, 1.0), _LONGEST_RETRY_S))
