"""However a text is cut into tokens, what is shown is the same."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engines.text import ByteTextStream

LETTERS = st.text(alphabet="ab🙂é\n\u2028", max_size=24)


def shown(pieces: list[bytes], stop: list[str]) -> tuple[str, bool]:
    stream = ByteTextStream(pieces.__getitem__, stop)
    text = ""
    for index in range(len(pieces)):
        text += stream.push(index)
        if stream.stopped:
            break
    return text + stream.finish(), stream.stopped


def expected(text: str, stop: list[str]) -> tuple[str, bool]:
    """The definition, character by character: the first stop string that is complete ends the text before its start."""
    for end in range(1, len(text) + 1):
        starts = [end - len(word) for word in stop if text[:end].endswith(word)]
        if starts:
            return text[: min(starts)], True
    return text, False


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted({place % (len(data) + 1) for place in cuts}), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


@settings(max_examples=150)
@given(LETTERS, st.lists(st.integers(0, 200), max_size=30), st.lists(st.text(alphabet="ab🙂é", min_size=1, max_size=4), max_size=4))
def test_any_split_shows_the_same(text: str, cuts: list[int], stop: list[str]) -> None:
    assert shown(cut(text.encode(), cuts), stop) == expected(text, stop)


@settings(max_examples=80)
@given(st.binary(max_size=24), st.lists(st.integers(0, 200), max_size=30))
def test_any_bytes_decode_as_a_whole_but_for_an_unfinished_end(data: bytes, cuts: list[int]) -> None:
    text, _ = shown(cut(data, cuts), [])
    whole = data.decode("utf-8", "replace")
    assert whole.startswith(text)
    assert whole[len(text) :] in {"", "\ufffd"}


def test_nothing_that_may_become_a_stop_string_is_shown_early() -> None:
    stream = ByteTextStream([b"Hi\n", b"Us", b"eful", b"\nUser:"].__getitem__, ["\nUser:"])
    assert [stream.push(0), stream.push(1), stream.push(2)] == ["Hi", "", "\nUseful"]
    assert stream.push(3) == ""
    assert stream.stopped
    assert stream.finish() == ""
    with pytest.raises(ValueError, match="ended"):
        stream.push(0)


def test_control_tokens_render_as_nothing_and_split_no_character() -> None:
    half, rest = "é".encode()[:1], "é".encode()[1:]
    stream = ByteTextStream([half, b"<|im_end|>", rest].__getitem__, (), frozenset({1}))
    assert [stream.push(0), stream.push(1), stream.push(2)] == ["", "", "é"]


def test_an_answer_cut_in_mid_character_ends_before_it() -> None:
    boat = "⛵".encode()
    stream = ByteTextStream([b"a", boat[:2], boat[2:]].__getitem__, ["b"])
    assert [stream.push(0), stream.push(1)] == ["a", ""]
    assert stream.finish() == ""


def test_a_stop_string_may_begin_inside_a_character_s_bytes_and_span_tokens() -> None:
    stop = "é⛵"
    data = f"x{stop}y".encode()
    stream = ByteTextStream([bytes([value]) for value in data].__getitem__, [stop])
    assert "".join(stream.push(index) for index in range(len(data) - 1)) == "x"
    assert stream.stopped


def test_a_token_that_completes_a_stop_string_and_goes_on_shows_nothing_of_it() -> None:
    stream = ByteTextStream([b"one ", b"two###three"].__getitem__, ["##", "###t"])
    assert stream.push(0) + stream.push(1) == "one two"
    assert stream.stopped
