"""Loads and unloads the models of pools that share a memory budget, as ``Residency`` says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from antiphon.core.clock import Clock
from antiphon.inference.pool import Pool
from antiphon.inference.residency import Leave, Load, Move, Presence, Residency, Stay, Unload

log = structlog.get_logger(__name__)


class ResidentModels:
    """Implements ``Residence`` for each of ``pools``; ``start`` starts the replicas of one. One event loop."""

    def __init__(self, pools: Sequence[Pool], residency: Residency, clock: Clock, start: Callable[[Pool], None]) -> None:
        self._pools = {pool.name: pool for pool in pools}
        self._residency = residency
        self._clock = clock
        self._start = start
        self._unloading: set[asyncio.Task[None]] = set()
        self._looking = False
        self._closed = False
        self.opened = False
        """Whether a model of theirs was ever ready."""
        for pool in pools:
            pool.residence = self

    def __contains__(self, name: str) -> bool:
        return name in self._pools

    def begin(self) -> None:
        """Load what fits."""
        self._act(self._residency.begin(self._clock.monotonic()))

    async def close(self) -> None:
        """Nothing is loaded or unloaded any more when this returns; what is there stays."""
        self._closed = True
        if self._unloading:
            await asyncio.wait(self._unloading)

    # --- what pools say and ask (``Residence``) -------------------------------------------------

    def changed(self) -> None:
        """Somebody came, or something ended: look at it as soon as that is through."""
        if not self._looking and not self._closed:
            self._looking = True
            asyncio.get_running_loop().call_soon(self.look)

    def loaded(self, name: str, load_s: float) -> None:
        self.opened = True
        self._residency.loaded(name, self._clock.monotonic(), load_s)
        self.changed()

    def presence(self, name: str) -> Presence:
        return self._residency.presence(name)

    def loadable(self, name: str) -> bool:
        return self._residency.loadable(name, self._clock.monotonic())

    def opening_s(self, name: str) -> float:
        return self._residency.opening_s(name, self._clock.monotonic())

    # --- acting ---------------------------------------------------------------------------------

    def look(self) -> None:
        """Decide now, and act on it."""
        self._looking = False
        if not self._closed:
            needs = {name: pool.need() for name, pool in self._pools.items()}
            self._act(self._residency.decide(needs, self._clock.monotonic()))

    def _act(self, moves: Sequence[Move]) -> None:
        for move in moves:
            pool = self._pools[move.name]
            log.info("model_moves", pool=move.name, move=type(move).__name__.lower())
            match move:
                case Load():
                    self._start(pool)
                case Leave():
                    pool.pause()
                case Stay():
                    pool.resume()
                case Unload():
                    pool.pause()  # at once: the task begins later
                    task = asyncio.create_task(self._unload(pool), name=f"unload {pool.name}")
                    self._unloading.add(task)
                    task.add_done_callback(self._unloading.discard)

    async def _unload(self, pool: Pool) -> None:
        try:
            await pool.unload()
        except Exception:  # the processes are supervised ones: whatever went wrong, they are gone or will be
            log.exception("unload_failed", pool=pool.name)
        self._residency.unloaded(pool.name)
        self.changed()
