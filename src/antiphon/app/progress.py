"""Progress on stderr: a bar that redraws on a terminal, one line per finished label elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

_WIDTH = 30


class ProgressBars:
    """A context manager; ``show`` is a progress callback ``(label, done, total)``. A ``total`` of 0 means unknown."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._drawn = ""
        self._finished = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._drawn:
            sys.stderr.write("\n")

    def show(self, label: str, done: int, total: int) -> None:
        finished = total > 0 and done >= total
        if finished and label == self._finished:
            return
        self._finished = label if finished else ""
        if self._terminal:
            self._draw(label, done, total)
        if finished:
            sys.stderr.write("\n" if self._terminal else f"{label}: done\n")
            self._drawn = ""
        sys.stderr.flush()

    def _draw(self, label: str, done: int, total: int) -> None:
        share = min(done / total, 1.0) if total > 0 else 0.0
        bar = "█" * round(share * _WIDTH)
        line = f"{label:<24} {bar:·<{_WIDTH}} {share:4.0%}" if total > 0 else f"{label:<24} …"
        if line != self._drawn:
            sys.stderr.write(f"\r\x1b[K{line}")
            self._drawn = line
