"""Token ids to text, one token at a time."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence


class ByteTextStream:
    """A ``TextStream`` over a vocabulary of byte strings.

    The text is a pure function of the ids pushed, however they are grouped: bytes that cannot become a character render
    as U+FFFD, a character whose bytes are not all there is held, and so is any end of the text that could still grow
    into a stop string. Among several stop strings the one completed first wins, the longest of those that end together.
    Ids in ``hidden`` (control tokens) render as nothing.
    """

    __slots__ = ("_decoder", "_held", "_hidden", "_stop", "_stopped", "_token_bytes")

    def __init__(self, token_bytes: Callable[[int], bytes], stop: Sequence[str] = (), hidden: frozenset[int] = frozenset()) -> None:
        self._token_bytes = token_bytes
        self._stop = tuple(text for text in stop if text)
        self._hidden = hidden
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""
        self._stopped = False

    @property
    def stopped(self) -> bool:
        return self._stopped

    def push(self, token_id: int) -> str:
        """Text completed by this token. Raises ``ValueError`` after a stop string was completed."""
        if self._stopped:
            raise ValueError("a stop string has ended this text")
        if token_id in self._hidden:
            return ""
        text = self._decoder.decode(self._token_bytes(token_id))
        return self._release(text) if self._stop else text

    def finish(self) -> str:
        """The held beginning of a stop string that never came; an unfinished character is dropped, not replaced."""
        held, self._held = self._held, ""
        return "" if self._stopped else held

    def _release(self, text: str) -> str:
        text = self._held + text
        cut = _first_completed(text, self._stop)
        if cut is not None:
            self._held, self._stopped = "", True
            return text[:cut]
        keep = _possible_start(text, self._stop)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _first_completed(text: str, stop: Sequence[str]) -> int | None:
    """Where the stop string that is completed first begins, or ``None``."""
    found = [(start + len(word), start) for word in stop if (start := text.find(word)) >= 0]
    return min(found)[1] if found else None


def _possible_start(text: str, stop: Sequence[str]) -> int:
    """Length of the longest end of ``text`` that is a proper beginning of a stop string."""
    longest = min(len(text), max(map(len, stop)) - 1)
    for length in range(longest, 0, -1):
        if any(len(word) > length and text.endswith(word[:length]) for word in stop):
            return length
    return 0
