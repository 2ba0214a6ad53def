"""The JSON parser's promises."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.errors import BadJson, InvalidText
from antiphon.edge.body import MAX_DEPTH, check_text, fingerprint, parse_json

TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), max_size=10)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
@settings(max_examples=80, deadline=None)
def test_json_is_read_as_it_is(value: object) -> None:
    for ascii_only in (True, False):
        assert parse_json(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@given(st.binary(max_size=40))
@settings(max_examples=80, deadline=None)
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    with contextlib.suppress(BadJson, InvalidText):
        parse_json(raw)


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[1,]", b"{'a': 1}", b"NaN", b"[-Infinity]", b"1e999", b"-1e999", b'{"a":1,"a":1}', b"1 2", b"9" * 5000]
)
def test_what_is_not_json(raw: bytes) -> None:
    with pytest.raises(BadJson):
        parse_json(raw)


def test_depth() -> None:
    assert parse_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    for depth in (MAX_DEPTH + 2, 1500, 400_000):
        with pytest.raises(BadJson):
            parse_json(b"[" * depth + b"1" + b"]" * depth)


@pytest.mark.parametrize("text", ["\x00", "a\ud800", "\udfff", "\udc00\ud800"])
def test_text_rules(text: str) -> None:
    with pytest.raises(InvalidText):
        check_text(text)
    for value in (text, [text], {"a": {"b": text}}, {text: 1}):
        with pytest.raises(InvalidText):
            parse_json(json.dumps(value).encode())


def test_a_pair_of_surrogates_is_a_character() -> None:
    assert parse_json(rb'"\ud83d\ude00"') == "\U0001f600"


def test_the_fingerprint_sees_what_was_asked_not_how_it_was_written() -> None:
    one, other = parse_json(b'{"a": 1, "b": [1, 2]}'), parse_json(b'{"b":[1,2],\n"a":1}')
    assert fingerprint("POST /x", one) == fingerprint("POST /x", other)
    assert fingerprint("POST /y", one) != fingerprint("POST /x", one)
    assert fingerprint("POST /x", {"a": 1, "b": [2, 1]}) != fingerprint("POST /x", one)
    assert fingerprint("POST /x", {"a": True}) != fingerprint("POST /x", {"a": 1})
