"""From tokens to log entries: the first text at once, the rest on the grid that all generations share."""

from __future__ import annotations

import asyncio
from itertools import groupby

from antiphon.core.events import Delta, Reasoning
from antiphon.orchestrator.pace import Grid
from antiphon.orchestrator.writer import LogWriter


class Coalescer:
    """Collects what an engine yields. Ids whose text is not complete yet wait for it, so the ids of the log render its text.

    ``run`` writes until ``stop``; ``flush`` may be called only while ``run`` is not running.
    """

    def __init__(self, writer: LogWriter, grid: Grid) -> None:
        self._writer = writer
        self._grid = grid
        self._skip = ""
        self._ids: list[int] = []
        self._pieces: list[Delta | Reasoning] = []
        self._wake = asyncio.Event()
        self._written = False
        self._stopped = False

    def skip(self, text: str) -> None:
        """Readers already have ``text`` and the engine is going to repeat it: leave it out."""
        self._skip = text

    def add(self, token_ids: tuple[int, ...], text: str, reasoning: str = "") -> None:
        """Take new output; ``reasoning`` comes before ``text``."""
        self._ids.extend(token_ids)
        text = self._unseen(text)
        if reasoning:
            self._pieces.append(Reasoning(reasoning))
        if text:
            self._pieces.append(Delta(text))
        if text or reasoning:
            self._wake.set()

    async def run(self) -> None:
        """Write what is added, until ``stop``. Raises what the log raises."""
        while True:
            await self._wake.wait()
            if self._written and not self._stopped:
                await self._grid.tick()
            if self._stopped:
                return
            await self.flush()

    def stop(self) -> None:
        """Let ``run`` return within a tick, after a write that has begun; what is pending stays pending."""
        self._stopped = True
        self._wake.set()

    async def flush(self) -> None:
        """Write what is pending, thoughts apart."""
        self._wake.clear()
        if not self._pieces:
            return
        events = [kind("".join(piece.text for piece in same)) for kind, same in groupby(self._pieces, key=type)]
        ids = tuple(self._ids)
        self._pieces.clear()
        self._ids.clear()
        self._written = True
        await self._writer.append(*events, token_ids=ids)

    def _unseen(self, text: str) -> str:
        if not self._skip or not text:
            return text
        if self._skip.startswith(text):
            self._skip = self._skip[len(text) :]
            return ""
        skip, self._skip = self._skip, ""
        return text.removeprefix(skip)
