"""What the gateway knows about its replicas, and which of them takes the next request. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from antiphon.core.tenancy import Band
from antiphon.inference.circuit import CircuitBreaker
from antiphon.inference.residency import Presence
from antiphon.inference.stream_pace import StreamPace
from antiphon.inference.wait_forecast import Serving
from antiphon.inference.wire import ReplicaReady, ReplicaSnapshot

_HEADROOM = {Band.HIGH: 0.0, Band.STANDARD: 0.02, Band.LOW: 0.05, Band.BATCH: 0.2}
"""The part of rows and blocks that a band leaves to higher ones: they find room at once, without pre-empting anybody."""
_UNSEEN_ROWS, _UNSEEN_TOKENS = 256, 1 << 20
"""What a replica is taken to hold, and each of its rows, that was never there."""
_LOAD_TOKENS = 16
"""What one more row costs a newcomer, in tokens of prefill."""


@dataclass(frozen=True, slots=True)
class ServedPool:
    """A pool as a prompt is made for it; ``context_tokens`` 0, and ``release`` empty, until a replica was ready."""

    name: str
    model: str
    context_tokens: int
    release: str = field(default="", kw_only=True)


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How long a model has been loading, and how long it took the last time, also in an earlier process; ``None``: it never did here."""

    elapsed_ms: int
    usual_ms: int | None


@dataclass(frozen=True, slots=True)
class PoolStatus(ServedPool):
    """A pool as its users see it. ``wait_ms`` is what a newcomer would wait; ``presence`` is its model's, in memory; ``loading`` is there
    while the status says so; ``trouble`` says why a replica whose start went wrong is not ready, to operators only.
    """

    status: Literal["ready", "loading", "down"]
    load: Literal["normal", "high", "full"]
    wait_ms: int
    loading: LoadProgress | None
    presence: Presence = Presence.RESIDENT
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """A replica as its operator sees it. The three block counts add up to all. ``circuit`` as in ``Circuit``."""

    id: str
    pid: int | None
    state: str
    running: int
    waiting: int
    free_blocks: int
    held_blocks: int
    cached_blocks: int
    tok_s: float
    circuit: str = "closed"


@dataclass(frozen=True, slots=True)
class Room:
    """What a request wants: ``tokens`` at its peak beyond what is cached, of which ``prefill_tokens`` are to compute. Others are
    coming, before it, who want ``kept_tokens``.
    """

    tokens: int
    prefill_tokens: int
    band: Band
    kept_tokens: int = 0


class ReplicaLedger:
    """One replica's capacity: its last snapshot, less what was sent to it since.

    A request that was dispatched but is not in the snapshot yet counts with all the blocks it is expected to need, so a burst
    between two snapshots cannot overshoot. A replica that has something to do and has not spoken for a while counts as full.
    """

    def __init__(self, stream_tokens_per_s: int = 0) -> None:
        self._pace = StreamPace(stream_tokens_per_s) if stream_tokens_per_s > 0 else None
        self._ready: ReplicaReady | None = None
        self._snapshot: ReplicaSnapshot | None = None
        self._last: tuple[ReplicaReady, tuple[float, ...]] | None = None
        self._credit: dict[int, tuple[int, int]] = {}
        self._cached: dict[int, int] = {}
        self.breaker = CircuitBreaker()

    @property
    def snapshot(self) -> ReplicaSnapshot | None:
        return self._snapshot

    @property
    def ready(self) -> ReplicaReady | None:
        return self._ready

    @property
    def last(self) -> tuple[ReplicaReady, tuple[float, ...]] | None:
        """What it could do, and its ``step_ms``, when it was there last."""
        return self._last

    def open(self, ready: ReplicaReady) -> None:
        self.close()
        self._ready = ready

    def close(self) -> None:
        if self._ready is not None:
            self._last = self._ready, () if self._snapshot is None else self._snapshot.step_ms
        self._ready, self._snapshot = None, None
        if self._pace is not None:
            self._pace.pause()
        self._credit.clear()
        self._cached.clear()

    def observe(
        self, snapshot: ReplicaSnapshot, now: float, cached: Sequence[int] = (), dropped: Sequence[int] = (), *, tokens: int = 0
    ) -> None:
        """A frame came: its snapshot, the fingerprints of blocks that came into its cache and left it, and how many tokens."""
        if self._pace is not None and self._ready is not None:
            self._pace.observe(snapshot, self._ready.shape.block_tokens, tokens, now)
        self._snapshot = snapshot
        if self._credit:
            self._credit = {handle: credit for handle, credit in self._credit.items() if handle > snapshot.last_handle}
        for fingerprint in cached:
            self._cached[fingerprint] = self._cached.get(fingerprint, 0) + 1
        for fingerprint in dropped:
            left = self._cached.get(fingerprint, 0) - 1
            if left > 0:
                self._cached[fingerprint] = left
            else:
                self._cached.pop(fingerprint, None)
        self.breaker.heard(now)

    def dispatched(self, handle: int, room: Room, now: float) -> None:
        """A request that wants ``room`` was sent."""
        if self.load == 0:
            self.breaker.heard(now)
        self._credit[handle] = (self._blocks(room.tokens), room.prefill_tokens)

    def cached_tokens(self, fingerprints: Sequence[int]) -> int:
        """How many tokens of a prompt, given the fingerprints of its whole blocks, are in its cache."""
        if self._ready is None:
            return 0
        found = 0
        for fingerprint in fingerprints:
            if fingerprint not in self._cached:
                break
            found += 1
        return found * self._ready.shape.block_tokens

    @property
    def load(self) -> int:
        """Requests there or on their way."""
        here = 0 if self._snapshot is None else self._snapshot.running + self._snapshot.waiting
        return here + len(self._credit)

    @property
    def free_blocks(self) -> int:
        """Blocks promised to nobody."""
        return 0 if self._snapshot is None else self._snapshot.unpromised - sum(blocks for blocks, _ in self._credit.values())

    @property
    def free_rows(self) -> int:
        return self.most_rows - self.load

    @property
    def most_rows(self) -> int:
        """Requests that may run at once: as many as the replica has rows, or as few as leave each the pace that is promised."""
        if self._ready is None:
            return 0
        if self._pace is None or self._snapshot is None:
            return self._ready.max_rows
        return min(self._pace.rows(self._snapshot, self._ready.shape.block_tokens), self._ready.max_rows)

    @property
    def prefill_tokens(self) -> int:
        """Prompts there or on their way that are still to compute."""
        here = 0 if self._snapshot is None else self._snapshot.prefill_tokens
        return here + sum(tokens for _, tokens in self._credit.values())

    def headroom(self, band: Band) -> tuple[int, int]:
        """Rows and blocks that ``band`` leaves to higher ones."""
        if self._ready is None:
            return 0, 0
        return int(self.most_rows * _HEADROOM[band]), int(self._ready.shape.blocks * _HEADROOM[band])

    def fits(self, room: Room, now: float) -> bool:
        """Whether such a request would start at once. An empty replica takes anything."""
        if self._ready is None or self._snapshot is None:
            return False
        load = self.load
        if not self.breaker.takes(now, busy=load > 0):
            return False
        if load == 0:
            return True
        rows, blocks = self.headroom(room.band)
        if load + rows >= self.most_rows or self._snapshot.waiting + len(self._credit) >= self._ready.most_waiting:
            return False
        return self._blocks(room.tokens) + blocks + -(-room.kept_tokens // self._ready.shape.block_tokens) <= self.free_blocks

    def _blocks(self, tokens: int) -> int:
        if self._ready is None:
            return 0
        return -(-min(tokens, self._ready.context_tokens) // self._ready.shape.block_tokens)


def choose(ledgers: Sequence[ReplicaLedger], rooms: Sequence[Room], turn: int, now: float) -> int | None:
    """Index of the replica where a request, which wants ``rooms[index]`` at each, has its first token soonest; ties go round
    by ``turn``. ``None``: it fits nowhere.
    """
    best: tuple[int, int] | None = None
    chosen: int | None = None
    for index, (ledger, room) in enumerate(zip(ledgers, rooms, strict=True)):
        if ledger.fits(room, now):
            cost = room.prefill_tokens + ledger.prefill_tokens + _LOAD_TOKENS * ledger.load
            rank = (cost, (index - turn) % len(ledgers))
            if best is None or rank < best:
                best, chosen = rank, index
    return chosen


def serving_of(ledgers: Sequence[ReplicaLedger], running: Sequence[tuple[float, int]]) -> Serving:
    """The replicas that are ready as one, with what runs there: for each the tokens it will still write, and will hold at its end."""
    ready = [(ledger, ledger.ready, ledger.snapshot) for ledger in ledgers if ledger.ready is not None and ledger.snapshot is not None]
    if not ready:
        return _once_there([ledger.last for ledger in ledgers if ledger.last is not None], running)
    size = ready[0][1].shape.block_tokens
    headroom = {
        band: (sum(ledger.headroom(band)[0] for ledger, _, _ in ready), size * sum(ledger.headroom(band)[1] for ledger, _, _ in ready))
        for band in Band
    }
    return Serving(
        replicas=len(ready),
        tokens=size * sum(known.shape.blocks for _, known, _ in ready),
        free_tokens=size * sum(ledger.free_blocks for ledger, _, _ in ready),
        free_rows=sum(ledger.free_rows for ledger, _, _ in ready),
        running=running,
        step_ms=ready[0][2].step_ms,
        prefill_tokens=sum(ledger.prefill_tokens for ledger, _, _ in ready),
        headroom=headroom,
        block_tokens=size,
    )


def _once_there(last: Sequence[tuple[ReplicaReady, tuple[float, ...]]], running: Sequence[tuple[float, int]]) -> Serving:
    """What replicas that are not there will be: as they were, with nothing to do. Where none ever was, nobody is known to wait."""
    if not last:
        return Serving(1, _UNSEEN_ROWS * _UNSEEN_TOKENS, _UNSEEN_ROWS * _UNSEEN_TOKENS, _UNSEEN_ROWS, running)
    tokens = sum(known.shape.blocks * known.shape.block_tokens for known, _ in last)
    rows = sum(known.max_rows for known, _ in last)
    return Serving(len(last), tokens, tokens, rows, running, last[0][1], block_tokens=last[0][0].shape.block_tokens)


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

    def forget(self, now: float, seen_s: float, rate: float) -> None:
        """Believe ``rate``, as if it had been seen for the last ``seen_s`` and nothing before."""
        self._began, self._at = now - seen_s, now
        self._weight = rate * self._span_s * (1 - math.exp(-seen_s / self._span_s))
