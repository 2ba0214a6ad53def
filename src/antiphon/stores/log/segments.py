"""The journal's files: numbered segments in one folder, appended to by one thread of one process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

SEGMENT_BYTES = 16 << 20


@dataclass(slots=True)
class _OpenSegment:
    number: int
    fd: int
    size: int


class Segments:
    """Files ``<number>.seg``, oldest first. Every method blocks and belongs to the journal's writer thread."""

    def __init__(self, folder: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._open: _OpenSegment | None = None
        self._next_number = 1

    def scan(self) -> list[int]:
        """Make the folder if there is none; the numbers of the segments in it, oldest first."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        numbers = sorted(int(path.stem) for path in self._folder.glob("*.seg") if path.stem.isdecimal())
        self._next_number = max(numbers, default=0) + 1
        return numbers

    def load(self, number: int) -> bytes:
        return self._path(number).read_bytes()

    def cut(self, number: int, size: int) -> None:
        """Drop everything behind the first ``size`` bytes."""
        os.truncate(self._path(number), size)

    def write(self, data: bytes) -> int:
        """Append ``data`` whole to the open segment, a new one where there is none or it is full; returns its number.

        Raises ``OSError`` with nothing of ``data`` left in the segment, or with the segment given up at its last whole record.
        """
        segment = self._open
        if segment is not None and segment.size + len(data) > self._segment_bytes and segment.size > 0:
            self.rotate()
            segment = None
        if segment is None:
            segment = self._begin()
        try:
            _write_all(segment.fd, data)
        except OSError:
            self._undo(segment)
            raise
        segment.size += len(data)
        return segment.number

    def rotate(self) -> None:
        """Close the open segment; the next write begins another."""
        segment, self._open = self._open, None
        if segment is not None:
            os.close(segment.fd)

    def remove(self, number: int) -> None:
        if self._open is not None and self._open.number == number:
            self.rotate()
        self._path(number).unlink(missing_ok=True)

    def _begin(self) -> _OpenSegment:
        number = self._next_number
        fd = os.open(self._path(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._next_number = number + 1
        self._open = _OpenSegment(number, fd, 0)
        return self._open

    def _undo(self, segment: _OpenSegment) -> None:
        try:
            os.ftruncate(segment.fd, segment.size)
        except OSError:
            self.rotate()

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08d}.seg"


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
