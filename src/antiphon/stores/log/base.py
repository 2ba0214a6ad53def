"""The port of the generation log: append-only, ``seq`` dense from 1 across epochs, terminal entry last.

Readers never block a writer. A log is kept until ``log_seconds`` after its terminal entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from antiphon.core.events import LogEntry
from antiphon.core.ids import GenerationId


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Entries after a cursor, in order, without a gap, except that a ``Snapshot`` may stand for all entries before it.

    ``closed``: the last entry there is, is terminal and included or read.
    """

    entries: tuple[LogEntry, ...]
    closed: bool


@dataclass(frozen=True, slots=True)
class LogState:
    """Everything a log holds, taken in one step: the text a reader at ``seq`` has seen and the ids behind it."""

    epoch: int
    seq: int
    text: str
    token_ids: tuple[int, ...]
    terminal: LogEntry | None


class GenerationLog(Protocol):
    async def open(self, generation_id: GenerationId, epoch: int) -> LogState:
        """Begin writing as ``epoch``; makes the log if there is none; writers of lower epochs get ``StaleEpoch`` from now on."""
        ...

    async def append(self, generation_id: GenerationId, entries: Sequence[LogEntry]) -> None:
        """Add entries; when it returns readers can see them and a killed process replays them.

        A ``Snapshot`` takes the place of all text before it: from then on readers at older cursors are given it instead.
        ``seq`` must continue at the last + 1 and nothing follows a terminal entry (else ``ValueError``). Raises ``StaleEpoch``.
        """
        ...

    async def read(self, generation_id: GenerationId, after_seq: int, *, limit: int = 256) -> LogSlice | None:
        """Entries after ``after_seq``; ``None`` when the log is unknown or expired. A future ``after_seq`` gives no entries."""
        ...

    async def wait(self, generation_id: GenerationId, after_seq: int) -> None:
        """Return when there is an entry after ``after_seq``, or the log is closed or gone. Cancel-safe; no polling."""
        ...

    async def state(self, generation_id: GenerationId) -> LogState | None:
        """All of it in one step; ``None`` when unknown or expired."""
        ...

    async def expire(self, *, now: datetime) -> int:
        """Forget logs whose terminal entry is older than ``log_seconds``; returns how many."""
        ...

    async def discard(self, generation_id: GenerationId) -> None:
        """Forget one log at once, with its bytes on disk as soon as its segment allows; waiting readers wake."""
        ...

    async def close(self) -> None:
        """Flush and release files."""
        ...
