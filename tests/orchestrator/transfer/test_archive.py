"""ZIPs of every kind: good ones, odd ones, and ones made to hurt."""

from __future__ import annotations

import io
import os
import struct
import zipfile

import pytest

from antiphon.orchestrator.transfer.archive import Bounds, Item, items_of
from antiphon.orchestrator.transfer.source import Unreadable
from tests.orchestrator.transfer.uploads import as_zip

SMALL = Bounds(unpacked_bytes=1 << 20, unpacked_free_bytes=256 << 10, unpacked_per_packed_byte=2, directory_bytes=4096)


def items(file: bytes, bounds: Bounds = SMALL) -> list[Item]:
    return list(items_of(io.BytesIO(file), bounds))


def test_many_files_in_one_zip() -> None:
    found = items(as_zip(**{"b/conversations-000__json": '[{"x":1},{"x":2}]', "conversations-001__json": '{"x":3}', "chat__html": "<p>"}))
    assert [(item.member, item.number, item.raw) for item in found] == [
        ("conversations-000.json", 1, b'{"x":1}'),
        ("conversations-000.json", 2, b'{"x":2}'),
        ("conversations-001.json", 1, b'{"x":3}'),
    ]


def test_names_lead_nowhere() -> None:
    found = items(as_zip(**{"../../etc/passwd__json": "{}", "/absolute/a__json": "{}", "c:\\b__json": "{}", "__MACOSX/._c__json": "\0"}))
    assert [item.member for item in found if not item.fault] == ["passwd.json", "a.json", "b.json"]


@pytest.mark.parametrize(
    "file",
    [
        b"PK\x03\x04" + os.urandom(500), b"PK\x05\x06", b"PK\x07\x08abc", b"\x1f\x8b\x08zz", as_zip(readme__txt="hello"),
        as_zip(user__json="{}"), as_zip(a__json="{}")[:-10],
    ],
)  # fmt: skip
def test_what_is_no_zip_of_json(file: bytes) -> None:
    with pytest.raises(Unreadable):
        items(file)


def test_a_damaged_member_leaves_the_others() -> None:
    packed = bytearray(as_zip(a__json='[{"x":"' + "hello" * 50 + '"}]', b__json='{"x":2}'))
    packed[45] ^= 0xFF
    faults = {item.member: item.fault for item in items(bytes(packed))}
    assert faults["a.json"]
    assert faults["b.json"] == ""


def test_an_encrypted_member_is_a_fault() -> None:
    packed = bytearray(as_zip(a__json="{}"))
    for signature, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = packed.index(signature)
        packed[start + place] |= 1
    assert [bool(item.fault) for item in items(bytes(packed))] == [True]


def test_a_bomb_is_cut_off() -> None:
    bomb = as_zip(a__json="[" + " " * (5 << 20) + "]")
    assert len(bomb) < 20_000
    with pytest.raises(Unreadable, match="unpacks to more"):
        items(bomb)


def test_a_table_of_contents_that_fills_the_memory_is_not_read() -> None:
    with pytest.raises(Unreadable, match="too many files"):
        items(as_zip(**{f"file_with_a_long_name_{number:06}__json": "{}" for number in range(100)}))
    packed = bytearray(as_zip(a__json="{}"))
    struct.pack_into("<L", packed, packed.rindex(b"PK\x05\x06") + 12, 0xFFFFFFFF)
    with pytest.raises(Unreadable):
        items(bytes(packed))


def test_a_member_larger_than_it_says() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.json", "[" + " " * 400_000 + "{}]")
    raw = bytearray(packed.getvalue())
    for signature, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        struct.pack_into("<L", raw, raw.index(signature) + place, 10)
    found: list[Item] = []
    try:
        found = items(bytes(raw))
    except Unreadable:
        return
    assert all(item.fault for item in found)
