"""What the gateway knows about its replicas, and which of them takes the next request. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from antiphon.inference.wire import ReplicaReady, ReplicaSnapshot


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """A pool as its users see it. ``wait_ms`` is what a newcomer would wait; ``context_tokens`` 0 until a replica was ready."""

    name: str
    model: str
    status: Literal["ready", "loading", "down"]
    load: Literal["normal", "high", "full"]
    wait_ms: int
    context_tokens: int


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """A replica as its operator sees it. The three block counts add up to all."""

    id: str
    pid: int | None
    state: str
    running: int
    waiting: int
    free_blocks: int
    held_blocks: int
    cached_blocks: int
    tok_s: float


class ReplicaLedger:
    """One replica's capacity: its last snapshot, less what was sent to it since.

    A request that was dispatched but is not in the snapshot yet counts with all the blocks it can ever need, so a burst
    between two snapshots cannot overshoot.
    """

    def __init__(self) -> None:
        self._ready: ReplicaReady | None = None
        self._snapshot: ReplicaSnapshot | None = None
        self._credit: dict[int, int] = {}

    @property
    def snapshot(self) -> ReplicaSnapshot | None:
        return self._snapshot

    def open(self, ready: ReplicaReady) -> None:
        self._ready, self._snapshot = ready, None
        self._credit.clear()

    def close(self) -> None:
        self._ready, self._snapshot = None, None
        self._credit.clear()

    def observe(self, snapshot: ReplicaSnapshot) -> None:
        self._snapshot = snapshot
        self._credit = {handle: blocks for handle, blocks in self._credit.items() if handle > snapshot.last_handle}

    def dispatched(self, handle: int, tokens: int, output_tokens: int = 0) -> None:
        """A request that needs ``tokens`` at its peak, up to ``output_tokens`` of them for its answer, was sent."""
        self._credit[handle] = self._blocks(tokens, output_tokens)

    @property
    def load(self) -> int:
        """Requests there or on their way."""
        here = 0 if self._snapshot is None else self._snapshot.running + self._snapshot.waiting
        return here + len(self._credit)

    def fits(self, tokens: int, output_tokens: int = 0) -> bool:
        """Whether a request that needs ``tokens`` at its peak would start at once. An empty replica takes anything.

        Of ``output_tokens`` among them only as many count as answers have had there lately.
        """
        if self._ready is None or self._snapshot is None:
            return False
        if self.load == 0:
            return True
        spare = self._snapshot.unpromised - sum(self._credit.values())
        return self.load < self._ready.max_rows and self._blocks(tokens, output_tokens) <= spare

    def _blocks(self, tokens: int, output_tokens: int) -> int:
        if self._ready is None:
            return 0
        if self._snapshot is not None and 0 < self._snapshot.expected_output < output_tokens:
            tokens -= output_tokens - self._snapshot.expected_output
        return -(-min(tokens, self._ready.context_tokens) // self._ready.shape.block_tokens)


class Placeable(Protocol):
    @property
    def ledger(self) -> ReplicaLedger: ...


def choose(replicas: Sequence[Placeable], tokens: int, turn: int, output_tokens: int = 0) -> int | None:
    """Index of the least loaded replica that ``fits``; ties go round by ``turn``. ``None``: nobody."""
    fitting = [index for index, replica in enumerate(replicas) if replica.ledger.fits(tokens, output_tokens)]
    if not fitting:
        return None
    return min(fitting, key=lambda index: (replicas[index].ledger.load, (index - turn) % len(replicas)))


class RateMeter:
    """Events per second over the last few, exponentially weighted."""

    def __init__(self, now: float, span_s: float = 5.0) -> None:
        self._span_s = span_s
        self._began = self._at = now
        self._weight = 0.0

    def add(self, amount: float, now: float) -> None:
        self._weight = self._weight * math.exp((self._at - now) / self._span_s) + amount
        self._at = now

    def rate(self, now: float) -> float:
        """Unbiased from the first second on; falls to 0 in silence."""
        seen = self._span_s * (1 - math.exp((self._began - now) / self._span_s))
        return self._weight * math.exp((self._at - now) / self._span_s) / seen if seen > 0 else 0.0
