"""The JSON items of an uploaded file, be it one JSON text or a ZIP of many, within bounds that no file can talk its way out of.

Nothing is unpacked to disk and no name inside a ZIP is used as a path. Blocking throughout; run it in a thread.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from antiphon.orchestrator.transfer.source import Unreadable
from antiphon.orchestrator.transfer.splitter import ItemSplitter, TooLarge

CHUNK_BYTES = 256 * 1024
_ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
_END_RECORD = struct.Struct("<4s4H2LH")
_END_SEARCHED = _END_RECORD.size + 0xFFFF
_ZIP64_ONLY = 0xFFFFFFFF
_SUFFIXES = (".json", ".jsonl", ".ndjson")
# What ChatGPT's export and ours hold beside conversations.
_OTHER_FILES = frozenset(
    {
        "account.json",
        "feedback.json",
        "group_chats.json",
        "keys.json",
        "message_feedback.json",
        "model_comparisons.json",
        "settings.json",
        "shared_conversations.json",
        "shares.json",
        "user.json",
        "user_settings.json",
    }
)
_ZIP_FAULTS = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much one file may hold. Unpacked bytes are counted as they come; what a ZIP says about itself is not believed."""

    item_bytes: int = 32 << 20
    unpacked_bytes: int = 4 << 30
    unpacked_free_bytes: int = 64 << 20
    unpacked_per_packed_byte: int = 50
    directory_bytes: int = 4 << 20


DEFAULT_BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class Item:
    """One value of a file: ``raw`` JSON, or why it could not be had. ``member`` is the file's name inside a ZIP, else empty."""

    member: str
    number: int
    raw: bytes = b""
    fault: str = ""


def items_of(file: IO[bytes], bounds: Bounds = DEFAULT_BOUNDS) -> Iterator[Item]:
    """Every item in ``file``, in order; faults of single members or items are items themselves.

    Raises ``Unreadable`` for a file that is neither JSON nor a ZIP with JSON in it.
    """
    start = file.read(4)
    file.seek(0)
    if start not in _ZIP_MAGIC:
        if start[:2] == b"PK" or start[:2] == b"\x1f\x8b":
            raise Unreadable("This kind of archive cannot be read; send a ZIP or JSON file.")
        yield from _items_in(file, "", _Allowance(bounds.unpacked_bytes), bounds)
        return
    packed = file.seek(0, 2)
    allowance = _Allowance(min(bounds.unpacked_bytes, bounds.unpacked_free_bytes + packed * bounds.unpacked_per_packed_byte))
    _check_directory(file, packed, bounds)
    try:
        archive = zipfile.ZipFile(file)
    except _ZIP_FAULTS:
        raise Unreadable("The ZIP file is damaged.") from None
    with archive:
        members = [info for info in archive.infolist() if _may_hold_conversations(info)]
        if not members:
            raise Unreadable("There is no JSON file in this ZIP.")
        for info in members:
            yield from _items_of_member(archive, info, allowance, bounds)


class _Allowance:
    """Bytes that may still be unpacked."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise Unreadable("The file unpacks to more than is allowed.")


def _check_directory(file: IO[bytes], packed: int, bounds: Bounds) -> None:
    """Refuse a table of contents that alone would fill the memory: it is read whole by whoever opens the ZIP."""
    file.seek(max(0, packed - _END_SEARCHED))
    tail = file.read(_END_SEARCHED)
    place = tail.rfind(b"PK\x05\x06")
    if place < 0 or len(tail) - place < _END_RECORD.size:
        raise Unreadable("The ZIP file is damaged.")
    directory_bytes = int(_END_RECORD.unpack_from(tail, place)[5])
    if directory_bytes == _ZIP64_ONLY:
        raise Unreadable("The ZIP file's table of contents is too large.")
    if directory_bytes > bounds.directory_bytes:
        raise Unreadable("The ZIP file has too many files.")


def _may_hold_conversations(info: zipfile.ZipInfo) -> bool:
    name = _base_name(info.filename)
    if info.is_dir() or info.filename.startswith("__MACOSX/") or name.startswith("."):
        return False
    return name.lower().endswith(_SUFFIXES) and name not in _OTHER_FILES


def _base_name(name: str) -> str:
    return name.replace("\\", "/").rpartition("/")[2]


def _items_of_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, allowance: _Allowance, bounds: Bounds) -> Iterator[Item]:
    name = _base_name(info.filename).encode("utf-8", "replace").decode()[:200]
    try:
        with archive.open(info) as member:
            yield from _items_in(member, name, allowance, bounds)
    except _ZIP_FAULTS:
        yield Item(name, 0, fault="This file in the ZIP is damaged, encrypted or packed in an unknown way.")


def _items_in(file: IO[bytes], name: str, allowance: _Allowance, bounds: Bounds) -> Iterator[Item]:
    splitter = ItemSplitter(bounds.item_bytes)
    number = 0
    while chunk := file.read(CHUNK_BYTES):
        allowance.take(len(chunk))
        try:
            for item in splitter.feed(chunk):
                number += 1
                if isinstance(item, TooLarge):
                    yield Item(name, number, fault=f"It is larger than {bounds.item_bytes >> 20} MiB.")
                else:
                    yield Item(name, number, raw=item)
        except Unreadable as error:
            yield Item(name, number + 1, fault=error.reason)
            return
    try:
        splitter.finish()
    except Unreadable as error:
        yield Item(name, number + 1, fault=error.reason)
