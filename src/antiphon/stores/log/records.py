"""The journal's records: what one ``append`` looks like on disk.

A segment is a sequence of frames: length (u32, little endian), CRC-32 of the payload (u32), payload (msgpack). A frame whose
bytes are not all there, or whose checksum differs, ends the segment: it was being written when the process died.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence

import msgspec

from antiphon.core.events import Delta, Done, Failed, LogEntry, LogEvent, Meta, Reasoning, Retract, Snapshot, Sources
from antiphon.core.ids import GenerationId

_FRAME = struct.Struct("<II")
MAX_PAYLOAD_BYTES = 64 << 20


class Opened(msgspec.Struct, tag="o", array_like=True, frozen=True):
    """A writer claimed the log as ``epoch``."""

    generation_id: str
    epoch: int


class Appended(msgspec.Struct, tag="a", array_like=True, frozen=True):
    """Entries were added at ``at_ms``."""

    generation_id: str
    at_ms: int
    entries: list[StoredEntry]


class Whole(msgspec.Struct, tag="w", array_like=True, frozen=True):
    """The log in its folded form; it replaces all earlier records of its generation."""

    generation_id: str
    at_ms: int
    epoch: int
    entries: list[StoredEntry]
    token_ids: list[int]


class Discarded(msgspec.Struct, tag="d", array_like=True, frozen=True):
    generation_id: str


class StoredEntry(msgspec.Struct, array_like=True, frozen=True):
    epoch: int
    seq: int
    kind: str
    event: msgspec.Raw
    token_ids: list[int]


Record = Opened | Appended | Whole | Discarded

_KINDS: dict[str, type[LogEvent]] = {
    "meta": Meta,
    "delta": Delta,
    "reasoning": Reasoning,
    "sources": Sources,
    "snapshot": Snapshot,
    "retract": Retract,
    "done": Done,
    "error": Failed,
}
_KIND_OF = {event_type: kind for kind, event_type in _KINDS.items()}
_ENCODER = msgspec.msgpack.Encoder()
_RECORDS = msgspec.msgpack.Decoder(Record)
_EVENTS = {kind: msgspec.msgpack.Decoder(event_type) for kind, event_type in _KINDS.items()}


def appended(generation_id: GenerationId, at_ms: int, entries: Sequence[LogEntry]) -> Appended:
    return Appended(generation_id, at_ms, [_stored(entry) for entry in entries])


def whole(generation_id: GenerationId, at_ms: int, epoch: int, entries: Sequence[LogEntry], token_ids: Sequence[int]) -> Whole:
    return Whole(generation_id, at_ms, epoch, [_stored(entry) for entry in entries], list(token_ids))


def entries_of(record: Appended | Whole) -> list[LogEntry]:
    return [LogEntry(one.epoch, one.seq, _EVENTS[one.kind].decode(one.event), tuple(one.token_ids)) for one in record.entries]


def encode_frame(record: Record) -> bytes:
    payload = _ENCODER.encode(record)
    return _FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def decode_frames(data: bytes) -> Iterator[tuple[Record, int]]:
    """Each whole record with the offset behind it; stops before the first frame that is torn or damaged."""
    offset = 0
    view = memoryview(data)
    while offset + _FRAME.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, offset)
        end = offset + _FRAME.size + length
        if length > MAX_PAYLOAD_BYTES or end > len(data):
            return
        payload = view[offset + _FRAME.size : end]
        if zlib.crc32(payload) != checksum:
            return
        try:
            record = _RECORDS.decode(payload)
        except msgspec.DecodeError:
            return
        yield record, end
        offset = end


def _stored(entry: LogEntry) -> StoredEntry:
    event = msgspec.Raw(_ENCODER.encode(entry.event))
    return StoredEntry(entry.epoch, entry.seq, _KIND_OF[type(entry.event)], event, list(entry.token_ids))
