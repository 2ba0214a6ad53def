"""Items come out whole however the text is cut, and a text that cannot be cut says so."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.orchestrator.transfer.source import Unreadable
from antiphon.orchestrator.transfer.splitter import ItemSplitter, TooLarge

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='ab"\\{}[],: \n\u2028é🎉', max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='k"\\]}', max_size=4), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.lists(st.dictionaries(st.text(alphabet='k"\\]}', max_size=4), VALUES, max_size=4), max_size=5)


def split(text: bytes, cuts: Sequence[int] = (), limit: int = 1 << 20) -> list[bytes | TooLarge]:
    splitter = ItemSplitter(limit)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    found = [item for begin, end in pairwise(places) for item in splitter.feed(text[begin:end])]
    splitter.finish()
    return found


def loaded(items: list[bytes | TooLarge]) -> list[object]:
    return [json.loads(item) for item in items if isinstance(item, bytes)]


@given(OBJECTS, st.lists(st.integers(0, 400), max_size=12), st.booleans(), st.sampled_from([None, 2]))
@settings(max_examples=150, deadline=None)
def test_a_list_however_it_is_cut(values: list[object], cuts: list[int], ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(values, ensure_ascii=ascii_only, indent=indent).encode()
    assert loaded(split(text, cuts)) == values


@given(OBJECTS, st.lists(st.integers(0, 400), max_size=12))
@settings(max_examples=80, deadline=None)
def test_lines_however_they_are_cut(values: list[object], cuts: list[int]) -> None:
    text = "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values or [{}]).encode()
    assert loaded(split(text, cuts)) == (values or [{}])


def test_byte_by_byte_with_a_mark_in_front() -> None:
    text = b'\xef\xbb\xbf [ {"a": "\\\\\\"]}"}, null, -1.5e9, true, {"b": [[]]} ] \n'
    assert loaded(split(text, range(len(text)))) == [{"a": '\\"]}'}, {"b": [[]]}]


@pytest.mark.parametrize(
    "text",
    [
        b"", b"  \n", b"[", b"[{}", b"[{},", b'[{"a": "', b'[{"a": "\\', b'{"a": 1', b"[{}]]", b"[{}] {}", b"[,{}]", b"[{} {}]", b"hello",
        b'"text"', b'["text"]', b"[{}}]", b"]", b"<html>", b"[" + b"x" * 70 + b"]", b"\xef\xbb",
    ],
)  # fmt: skip
def test_what_is_no_list_of_objects(text: bytes) -> None:
    with pytest.raises(Unreadable):
        split(text, range(0, len(text), 3))


def test_an_item_beyond_the_limit_is_passed_over() -> None:
    text = b'[{"a": 1}, {"b": "' + b"x" * 200 + b'"}, {"c": 3}]'
    assert split(text, range(0, len(text), 7), limit=100) == [b'{"a": 1}', TooLarge(), b'{"c": 3}']
