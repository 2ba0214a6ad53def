"""Cuts a long JSON text into its items, chunk by chunk: the elements of one top-level list, or values that follow each other.

Only as much is held as one item needs. The cutter follows strings and brackets; whether an item is valid JSON is for its parser
to say. Finding the end of an item costs one regular expression's pass over its bytes, whatever they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from antiphon.orchestrator.transfer.source import Unreadable

# Everything up to the next bracket, or to a string that does not end here.
_SKIPPED = re.compile(rb'(?:[^"{}\[\]]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+', re.DOTALL)
_STRING_REST = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_SPACE = re.compile(rb"[ \t\r\n]*+")
_LITERAL = re.compile(rb"[-+.0-9A-Za-z]*+")
_MAX_LITERAL = 64
_BOM = b"\xef\xbb\xbf"
_QUOTE = 0x22


@dataclass(frozen=True, slots=True)
class TooLarge:
    """In the place of an item that is larger than the limit; it was passed over."""


class _Place(Enum):
    START = auto()
    LIST_START = auto()
    LIST_ITEM = auto()
    LIST_AFTER = auto()
    SEQUENCE = auto()
    END = auto()


class ItemSplitter:
    """One text. ``feed`` it in order, then ``finish``; both raise ``Unreadable`` for a text that cannot be cut."""

    def __init__(self, max_item_bytes: int) -> None:
        self._max_item_bytes = max_item_bytes
        self._place = _Place.START
        self._depth = 0
        self._in_string = False
        self._item = bytearray()
        self._too_large = False
        self._held = b""

    def feed(self, chunk: bytes) -> Iterator[bytes | TooLarge]:
        """The items that end in ``chunk``."""
        data = self._held + chunk
        self._held = b""
        at = 0
        while at < len(data):
            if not self._depth:
                at = self._between(data, at)
                continue
            begin, at = at, self._inside(data, at)
            self._keep(data[begin:at])
            if self._depth == 0:
                yield self._taken()
            elif self._held:
                return

    def finish(self) -> None:
        """The text ends here."""
        if self._place is _Place.START and not self._held:
            raise Unreadable("The file is empty.")
        if self._depth or self._held or self._place not in {_Place.END, _Place.SEQUENCE}:
            raise Unreadable("The file ends in the middle.")

    def _between(self, data: bytes, at: int) -> int:
        """Go on outside of any item; returns where the next item, or what is not known yet, begins."""
        if self._place is _Place.START and at == 0:
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._held = data
                return len(data)
            at = len(_BOM) if data.startswith(_BOM) else 0
        found = _SPACE.match(data, at)
        assert found is not None
        at = found.end()
        if at == len(data):
            return at
        sign = data[at : at + 1]
        if sign in {b"{", b"["} and not (sign == b"[" and self._place is _Place.START):
            return self._open(at)
        return self._literal(data, at) if sign.isalnum() or sign == b"-" else self._punctuation(sign, at)

    def _open(self, at: int) -> int:
        if self._place in {_Place.LIST_AFTER, _Place.END}:
            raise Unreadable("The file is not valid JSON.")
        if self._place is _Place.START:
            self._place = _Place.SEQUENCE
        # The bracket itself is counted by ``_inside``, which starts at it with a depth that makes it the outermost.
        self._depth = -1
        return at

    def _punctuation(self, sign: bytes, at: int) -> int:
        following = {
            (_Place.START, b"["): _Place.LIST_START,
            (_Place.LIST_START, b"]"): _Place.END,
            (_Place.LIST_AFTER, b","): _Place.LIST_ITEM,
            (_Place.LIST_AFTER, b"]"): _Place.END,
        }.get((self._place, sign))
        if following is None:
            raise Unreadable("The file is not valid JSON.")
        self._place = following
        return at + 1

    def _literal(self, data: bytes, at: int) -> int:
        """Pass over ``null`` and the like between items; they are no conversations."""
        found = _LITERAL.match(data, at)
        assert found is not None
        if self._place not in {_Place.LIST_START, _Place.LIST_ITEM} or found.end() - at > _MAX_LITERAL:
            raise Unreadable("The file is not valid JSON.")
        if found.end() == len(data):
            self._held = data[at:]
            return len(data)
        self._place = _Place.LIST_AFTER
        return found.end()

    def _inside(self, data: bytes, at: int) -> int:
        """Follow the item; returns where it ends in ``data``, or where its part in ``data`` does."""
        if self._in_string:
            found = _STRING_REST.match(data, at)
            assert found is not None
            if found.end() == len(data):
                return len(data)
            if data[found.end()] != _QUOTE:
                return self._hold(data, found.end())
            self._in_string = False
            at = found.end() + 1
        while True:
            skipped = _SKIPPED.match(data, at)
            assert skipped is not None
            at = skipped.end()
            if at == len(data):
                return at
            sign = data[at]
            if sign == _QUOTE:
                return self._unfinished_string(data, at + 1)
            at += 1
            if sign in b"{[":
                self._depth = 1 if self._depth < 0 else self._depth + 1
            else:
                self._depth -= 1
                if self._depth == 0:
                    return at

    def _unfinished_string(self, data: bytes, at: int) -> int:
        self._in_string = True
        found = _STRING_REST.match(data, at)
        assert found is not None
        return len(data) if found.end() == len(data) else self._hold(data, found.end())

    def _hold(self, data: bytes, at: int) -> int:
        """Keep a backslash at the end of a chunk until what it escapes is there."""
        self._held = data[at:]
        return at

    def _keep(self, part: bytes) -> None:
        if self._too_large:
            return
        if len(self._item) + len(part) > self._max_item_bytes:
            self._too_large = True
            self._item = bytearray()
            return
        self._item += part

    def _taken(self) -> bytes | TooLarge:
        item: bytes | TooLarge = TooLarge() if self._too_large else bytes(self._item)
        self._item = bytearray()
        self._too_large = False
        if self._place in {_Place.LIST_START, _Place.LIST_ITEM}:
            self._place = _Place.LIST_AFTER
        return item
