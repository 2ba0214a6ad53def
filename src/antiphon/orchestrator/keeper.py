"""What keeps a running generation ours: the lease renewed, text and usage checkpointed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import structlog

from antiphon.core.errors import AntiphonError
from antiphon.core.generation import Generation, Usage
from antiphon.orchestrator.pace import is_outage
from antiphon.orchestrator.ports import Ports
from antiphon.orchestrator.writer import LogWriter

log = structlog.get_logger(__name__)


class Keeper:
    """``on_cancel`` is called when a heartbeat learns that a cancel was asked for, perhaps in another process.

    ``usage`` tells what the generation has cost so far.
    """

    def __init__(
        self, ports: Ports, generation: Generation, writer: LogWriter, *, on_cancel: Callable[[], None], usage: Callable[[], Usage]
    ) -> None:
        self._ports = ports
        self._generation = generation
        self._writer = writer
        self._on_cancel = on_cancel
        self._usage = usage
        self._saved_seq = writer.seq

    async def run(self) -> None:
        """Renew and checkpoint, for ever. An outage of the store is waited out; the text goes on. Raises ``StaleEpoch``."""
        clock, timing = self._ports.clock, self._ports.timing
        beat_at = clock.monotonic() + timing.heartbeat_seconds
        checkpoint_at = clock.monotonic() + timing.checkpoint_seconds
        told: set[type[Exception]] = set()
        while True:
            await asyncio.sleep(max(0.0, min(beat_at, checkpoint_at) - clock.monotonic()))
            try:
                if clock.monotonic() >= beat_at:
                    beat_at = clock.monotonic() + timing.heartbeat_seconds
                    await self._beat()
                    told.clear()
                if clock.monotonic() >= checkpoint_at:
                    checkpoint_at = clock.monotonic() + timing.checkpoint_seconds
                    await self._checkpoint()
            except Exception as error:
                if isinstance(error, AntiphonError) and not is_outage(error):
                    raise
                if type(error) not in told:
                    told.add(type(error))
                    log.warning("generation_not_kept", generation_id=self._generation.id, error=type(error).__name__)

    async def _beat(self) -> None:
        store, generation = self._ports.generations, self._generation
        await self._ports.allowances.renew(generation.tenant_id, generation.id)
        lease_until = await store.now() + timedelta(seconds=self._ports.timing.lease_seconds)
        if await store.heartbeat(generation.id, generation.epoch, lease_until=lease_until):
            self._on_cancel()

    async def _checkpoint(self) -> None:
        if self._writer.seq != self._saved_seq:
            seq, text = self._writer.seq, self._writer.text
            generation, usage = self._generation, self._usage()
            await self._ports.generations.checkpoint(generation.id, generation.epoch, text=text, seq=seq, usage=usage)
            self._saved_seq = seq
