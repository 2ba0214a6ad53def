"""Whole imports on memory stores: reports, repeats, bounds, and files made to break something."""

from __future__ import annotations

import io
import json
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antiphon.core.errors import DiskFull
from antiphon.core.ids import ConversationId
from antiphon.orchestrator.transfer.archive import Bounds
from antiphon.orchestrator.transfer.importing import Report
from antiphon.stores.transfers.base import WholeConversation
from tests.orchestrator.transfer.uploads import FIXTURES, ME, YOU, Place, as_json, as_zip, chatgpt, fixture, tree_of


def counts(report: Report) -> tuple[int, int, int]:
    return report.count("imported"), report.count("skipped"), report.count("failed")


@pytest.mark.parametrize("name", sorted(path.name for path in FIXTURES.iterdir()))
async def test_a_second_import_makes_no_doubles(name: str) -> None:
    place = Place()
    first = await place.take(fixture(name))
    again = await place.take(fixture(name))
    assert counts(first)[0] > 0
    assert counts(again) == (0, counts(first)[0], counts(first)[2])
    assert [line.conversation_id for line in again.lines] == [line.conversation_id for line in first.lines]
    assert len(place.state.conversations) == counts(first)[0]
    assert counts(await place.take(fixture(name), YOU)) == counts(first)


async def test_the_same_conversation_twice_in_one_file() -> None:
    place = Place()
    report = await place.take(as_zip(a__json=as_json([chatgpt("x", "hi")]), b__json=as_json([chatgpt("x", "hi"), chatgpt("y", "ho")])))
    assert counts(report) == (2, 1, 0)


async def test_one_that_was_deleted_comes_back() -> None:
    place = Place()
    (line,) = (await place.take(as_json([chatgpt("x", "hi")]))).lines
    assert line.conversation_id is not None
    await place.conversations.delete(ME, line.conversation_id, now=place.clock.now())
    (again,) = (await place.take(as_json([chatgpt("x", "hi")]))).lines
    assert again.status == "imported"
    assert again.conversation_id != line.conversation_id


async def test_one_without_an_id_is_known_by_its_text() -> None:
    place = Place()
    nameless = chatgpt("", "hi")
    assert counts(await place.take(as_json([nameless, chatgpt("", "ho")]))) == (2, 0, 0)
    assert counts(await place.take(as_json([nameless]))) == (0, 1, 0)


async def test_what_was_imported_is_found() -> None:
    place = Place()
    await place.take(fixture("chatgpt.json"))
    await place.take(fixture("antiphon.jsonl"))
    for question, title in (("ferry", "Travelling to Norway"), ("全部", "Ours"), ("norway", "Travelling to Norway")):
        hits = (await place.conversations.search(ME, question, limit=10, after=None)).hits
        assert title in {hit.title for hit in hits}
    assert (await place.conversations.search(YOU, "ferry", limit=10, after=None)).hits == ()


async def test_batches_follow_each_other() -> None:
    place = Place()
    report = await place.take(as_json(chatgpt(f"c{number}", *["text"] * (number % 7 + 1)) for number in range(100)))
    assert counts(report) == (100, 0, 0)
    assert [line.source_id for line in report.lines] == [f"c{number}" for number in range(100)]


async def test_reading_and_planting_leave_the_event_loop_alone() -> None:
    read_in: set[int] = set()

    class Watched(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            read_in.add(threading.get_ident())
            return super().read(size)

    place = Place()
    await place.importer.run(ME, Watched(as_json([chatgpt("x", "hi")])))
    assert threading.get_ident() not in read_in


async def test_a_file_that_ends_in_the_middle_keeps_what_came_before() -> None:
    place = Place()
    report = await place.take(as_json([chatgpt("x", "hi"), chatgpt("y", "ho")])[:-40])
    assert [(line.status, line.reason) for line in report.lines] == [("imported", None), ("failed", "The file ends in the middle.")]


async def test_a_conversation_beyond_the_limit_leaves_the_others() -> None:
    place = Place(bounds=Bounds(item_bytes=1 << 20))
    report = await place.take(as_json([chatgpt("x", "hi"), chatgpt("y", "ho" * (1 << 20)), chatgpt("z", "hi")]))
    assert [(line.status, line.reason) for line in report.lines] == [
        ("imported", None), ("failed", "It is larger than 1 MiB."), ("imported", None),
    ]  # fmt: skip


async def test_a_full_disk_ends_the_import_and_keeps_what_was_stored() -> None:
    place = Place()
    store = place.transfers.import_conversation

    async def fails(whole: WholeConversation) -> ConversationId | None:
        if len(place.state.conversations) == 20:
            raise DiskFull
        return await store(whole)

    place.transfers.import_conversation = fails  # type: ignore[method-assign]
    file = as_json(chatgpt(f"c{number}", "hi") for number in range(50))
    with pytest.raises(DiskFull):
        await place.take(file)
    place.transfers.import_conversation = store  # type: ignore[method-assign]
    assert counts(await place.take(file)) == (30, 20, 0)


LOOP = {"a": {"parent": "b", "children": ["b"]}, "b": {"parent": "a", "children": ["a"]}}
HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "white space": b" \n ",
    "an empty list": b"[]",
    "an empty object": b"{}",
    "text": b"hello",
    "a picture": b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
    "null": b"null",
    "numbers": b"[1, 2, 3]",
    "a zip of nothing": as_zip(readme__txt="x"),
    "half a zip": as_zip(a__json="[]")[:30],
    "deep": b"[" * 100_000,
    "deep and closed": b'[{"mapping": ' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}]",
    "a deep value": b'[{"id":"conv_x","messages":[],"deep":' + b"[" * 900 + b"]" * 900 + b"}]",
    "a list in a list": b"[[[{}]]]",
    "mapping of another kind": as_json([{"mapping": [1, 2]}, {"mapping": None, "id": "x"}, {"mapping": "x"}]),
    "nodes of another kind": as_json([{"mapping": {"a": 1, "b": None, "c": [], "d": {"message": 7}, "e": {"message": {"author": 1}}}}]),
    "a circle of nothing": as_json([{"mapping": LOOP}]),
    "history of another kind": as_json([{"chat": {"history": {"messages": [1], "currentId": {}}}}, {"chat": {"history": 1}}]),
    "messages of another kind": as_json(
        [{"conversationId": 1, "messages": [1, None, "x", {"children": {}}]}, {"conversationId": {}, "messagesTree": 3, "messages": 4}]
    ),
    "ours, broken": b'{"antiphon_export":1}\n{"id":"conv_1","messages":[{"id":"m"}]}\n{"id":"conv_2","messages":'
    b'[{"id":"m","role":"god","content":"x"}]}',
    "NaN": b'[{"mapping": {}, "create_time": NaN}]',
    "an integer of 5000 digits": b'[{"mapping": {}, "create_time": ' + b"9" * 5000 + b"}]",
    "1e999": b'[{"mapping": {}, "create_time": 1e999}]',
    "UTF-16": json.dumps([chatgpt("x", "hi")]).encode("utf-16"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_files_are_reported_and_nothing_is_imported(name: str) -> None:
    place = Place()
    report = await place.take(HOSTILE[name])
    if name != "a deep value":
        assert report.count("imported") == 0
    assert all(line.reason for line in report.lines if line.status == "failed")


async def test_a_circle_of_messages_is_opened() -> None:
    place = Place()
    one = chatgpt("x", "a", "b")
    mapping = one["mapping"]
    assert isinstance(mapping, dict)
    mapping["n0"]["parent"] = "n1"
    (line,) = (await place.take(as_json([one]))).lines
    assert (line.status, line.messages, line.reason) == ("imported", 2, "1 circle was opened.")


async def test_a_long_nested_conversation() -> None:
    """LibreChat nests a message in its parent: two levels for each."""
    nested: dict[str, object] = {"messageId": "m399", "text": "t399", "isCreatedByUser": True, "children": []}
    for number in range(398, -1, -1):
        nested = {"messageId": f"m{number}", "text": f"t{number}", "isCreatedByUser": number % 2 == 0, "children": [nested]}
    place = Place()
    (line,) = (await place.take(json.dumps({"conversationId": "x", "recursive": True, "messagesTree": [nested]}).encode())).lines
    assert (line.status, line.messages) == ("imported", 400)
    assert tree_of(await place.whole(line))[-1] == (398, "user", "t399")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["a", "b", "root", "user", "text"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["mapping", "a", "b", "message", "author", "role", "content", "parts", "parent", "children", "chat", "history", "messages",
                 "currentId", "parentId", "conversationId", "messageId", "text", "id", "current_node", "create_time", "metadata", "error"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)  # fmt: skip
SHAPES = st.sampled_from(["mapping", "chat", "conversationId", "conv"])


@given(SHAPES, JSON, JSON)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
async def test_any_json_is_imported_or_refused(shape: str, value: object, other: object) -> None:
    items: dict[str, object] = {
        "mapping": {"id": other, "mapping": value, "title": other, "current_node": "a"},
        "chat": {"id": other, "chat": {"history": {"messages": value, "currentId": other}, "messages": value}},
        "conversationId": {"conversationId": other, "messages": [value], "messagesTree": value},
        "conv": {"id": "conv_1", "messages": [value], "current_leaf_id": other, "new": value, "origin": other},
    }
    place = Place()
    report = await place.take(json.dumps([items[shape]]).encode())
    for line in report.lines:
        if line.status == "imported":
            assert b"".join([await place.give()])
