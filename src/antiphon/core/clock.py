"""Time as an argument. The real clock lives in ``app/system.py``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Two clocks: one for people and rows, one for durations."""

    def now(self) -> datetime:
        """The wall clock, timezone-aware UTC, truncated to milliseconds."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never runs backwards."""
        ...


@dataclass(slots=True)
class ManualClock:
    """A clock that moves only when told; for tests and the simulator."""

    wall: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    elapsed_s: float = 0.0

    def now(self) -> datetime:
        return truncate_to_ms(self.wall + timedelta(seconds=self.elapsed_s))

    def monotonic(self) -> float:
        return self.elapsed_s

    def advance(self, seconds: float) -> None:
        """Move both clocks forward; negative ``seconds`` raise ``ValueError``."""
        if seconds < 0:
            raise ValueError("a monotonic clock does not run backwards")
        self.elapsed_s += seconds


def truncate_to_ms(moment: datetime) -> datetime:
    """``moment`` in UTC with its microseconds cut to whole milliseconds, the precision every store keeps."""
    moment = moment.astimezone(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def to_ms(moment: datetime) -> int:
    """Milliseconds since 1970 in UTC."""
    return (moment - _EPOCH) // _MILLISECOND


def from_ms(milliseconds: int) -> datetime:
    """The inverse of ``to_ms``."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def rfc3339(moment: datetime) -> str:
    """``2026-01-01T00:00:00.000Z``."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
