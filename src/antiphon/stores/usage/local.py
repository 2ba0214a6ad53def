"""The route of one machine: straight into the ledger."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.stores.usage.adding import readable_records
from antiphon.stores.usage.base import Ledger, OutboxEntry


class LocalRoute:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def send(self, entries: Sequence[OutboxEntry]) -> frozenset[int]:
        readable = readable_records(entries)
        await self._ledger.put(tuple(readable.values()))
        return frozenset(readable)

    async def close(self) -> None:
        pass
