"""A form with one file, however it is cut; and forms that are refused."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.errors import InvalidRequest, MediaType
from antiphon.edge.multipart import FilePart, boundary_of

HEAD = b'--xYz\r\nContent-Disposition: form-data; name="file"; filename="a.json"\r\nContent-Type: application/json\r\n\r\n'
TAIL = b"\r\n--xYz--\r\n"
LONG = "multipart/form-data; boundary=" + "a" * 71


def received(body: bytes, cuts: Sequence[int] = ()) -> bytes:
    part = FilePart(b"xYz")
    places = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    content = b"".join(piece for begin, end in pairwise(places) for piece in part.feed(body[begin:end]))
    part.finish()
    return content


@given(
    st.binary(max_size=60) | st.lists(st.sampled_from([b"\r", b"\n", b"-", b"xYz", b"a"]), max_size=12).map(b"".join),
    st.lists(st.integers(0, 250), max_size=9),
)
@settings(max_examples=200, deadline=None)
def test_the_file_comes_out_however_the_body_is_cut(content: bytes, cuts: list[int]) -> None:
    if b"\r\n--xYz" in b"\r\n" + content:
        return
    assert received(HEAD + content + TAIL, cuts) == content


@pytest.mark.parametrize(
    "body",
    [
        b"", b"--xYz--\r\n", HEAD, HEAD + b"abc", HEAD + b"abc\r\n--xYz", b"preamble\r\n" + HEAD + TAIL,
        HEAD.replace(b"file", b"other") + TAIL, HEAD + b"a\r\n" + HEAD + b"b" + TAIL, HEAD + b"a\r\n--xYzz--\r\n",
        b"--xYz\r\n" + b"h: v\r\n" * 2000, b"--xYz\r\nContent-Type: x\r\n\r\n" + TAIL, b"--xY\r\n", b"\0" * 100,
    ],
)  # fmt: skip
def test_forms_that_are_not_ours(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        received(body)


@pytest.mark.parametrize(
    ("content_type", "wanted"),
    [
        ("multipart/form-data; boundary=abc", b"abc"),
        ('Multipart/Form-Data; charset=utf-8; boundary="a b:c"', b"a b:c"),
        ("multipart/form-data;boundary=abc; charset=utf-8", b"abc"),
    ],
)
def test_boundaries(content_type: str, wanted: bytes) -> None:
    assert boundary_of(content_type) == wanted


@pytest.mark.parametrize(
    "content_type",
    [None, "", "application/json", "multipart/form-data", "multipart/form-data; boundary=", "multipart/mixed; boundary=a", LONG],
)
def test_other_kinds_of_body(content_type: str | None) -> None:
    with pytest.raises(MediaType):
        boundary_of(content_type)
