"""What a program is told whose completion cannot be computed: the field, what it takes, what it got."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Union, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from antiphon.edge.body import JsonValue
from antiphon.edge.completion_faults import TAKES, completion_faults
from antiphon.edge.schemas import ChatCompletion

TEXT = "a text of 1 to 64 characters"
WHOLE = "a whole number from 1 to 9223372036854775807"
CONTENT = "a text, or a list of 1 to 256 parts of the type text"


def faults_of(body: JsonValue) -> list[str]:
    with pytest.raises(ValidationError) as refused:
        ChatCompletion.model_validate(body)
    return [f"{fault.path}: {fault.reason}" for fault in completion_faults(refused.value, body)]


def asked(**fields: JsonValue) -> JsonValue:
    return {"messages": [{"role": "user", "content": "hello"}], **fields}


def said(role: JsonValue, content: JsonValue) -> JsonValue:
    return {"messages": [{"role": role, "content": content}]}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (asked(stop=list("abcde")), [f"stop: Takes {TEXT}, or a list of at most 4 of them, but got a list of 5."]),
        (asked(stop=""), [f'stop: Takes {TEXT}, or a list of at most 4 of them, but got "".']),
        (asked(stop=7), [f"stop: Takes {TEXT}, or a list of at most 4 of them, but got 7."]),
        (asked(stop={}), [f"stop: Takes {TEXT}, or a list of at most 4 of them, but got an empty object."]),
        (asked(stop=["a", "b" * 65]), [f"stop.1: Takes {TEXT}, but got a text of 65 characters."]),
        (asked(n=3), ["n: Takes 1, since a request has one answer here, but got 3."]),
        (asked(logprobs=True), ["logprobs: Takes false, since no probabilities are told here, but got true."]),
        (asked(top_logprobs=21), ["top_logprobs: Takes 0, since no probabilities are told here, but got 21."]),
        (asked(temperature=3.5), ["temperature: Takes a number from 0 to 2, but got 3.5."]),
        (asked(temperature="hot"), ['temperature: Takes a number from 0 to 2, but got "hot".']),
        (asked(top_p=0), ["top_p: Takes a number above 0, up to 1, but got 0."]),
        (asked(max_tokens=0), [f"max_tokens: Takes {WHOLE}, but got 0."]),
        (asked(max_tokens=2**63), [f"max_tokens: Takes {WHOLE}, but got 9223372036854775808."]),
        (asked(max_completion_tokens=10**60), [f"max_completion_tokens: Takes {WHOLE}, but got a number of more than 40 digits."]),
        (asked(logit_bias={"hello": 3}), ["logit_bias: Takes an empty object, since no token is favoured here, but got an object of 1."]),
        (asked(logit_bias={"7": "x"}), ["logit_bias: Takes an empty object, since no token is favoured here, but got an object of 1."]),
        ({}, ["messages: Is missing: takes a list of 1 to 4096 messages."]),
        ({"messages": []}, ["messages: Takes a list of 1 to 4096 messages, but got an empty list."]),
        ([], ["body: Takes an object with messages, but got an empty list."]),
        (said("tool", "x"), ['messages.0.role: Takes "system", "developer", "user" or "assistant", but got "tool".']),
        (said("assistant", None), [f"messages.0.content: Takes {CONTENT}, but got null."]),
        (said("user", []), [f"messages.0.content: Takes {CONTENT}, but got an empty list."]),
        (
            said("user", [{"type": "text", "text": "what is this?"}, {"type": "image_url", "image_url": {"url": "x"}}]),
            ['messages.0.content.1.type: Takes "text", since nothing else is read here, but got "image_url".'],
        ),
        (said("user", [{"type": "text"}]), ["messages.0.content.0.text: Is missing: takes a text."]),
        (asked(stream=True, stream_options={"usage": True}), ["stream_options.usage: There is no such field here."]),
        (asked(stream_options={"include_usage": 1}), ["stream_options.include_usage: Takes true or false, but got 1."]),
        (asked(best_of=2, n=2), ["n: Takes 1, since a request has one answer here, but got 2.", "best_of: There is no such field here."]),
    ],
)
def test_a_fault_names_the_field_what_it_takes_and_what_it_got(body: JsonValue, told: list[str]) -> None:
    assert faults_of(body) == told


def test_stream_options_without_a_stream_ask_for_nothing() -> None:
    ChatCompletion.model_validate(asked(stream_options={"include_usage": True}))


def _paths(kind: object, path: str = "") -> Iterator[str]:
    """Of every field below ``kind``, as ``TAKES`` names them."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            below = f"{path}.{name}".lstrip(".")
            yield below
            yield from _paths(field.annotation, below)
    elif get_origin(kind) is list:
        (item,) = get_args(kind)
        yield from _paths(item, f"{path}.*")
    elif get_origin(kind) in {Union, types.UnionType, Annotated}:
        for one in get_args(kind):
            yield from _paths(one, path)


def test_it_is_known_what_every_field_takes() -> None:
    paths = set(_paths(ChatCompletion))
    assert {"stop", "messages.*.content.*.type", "stream_options.include_usage"} <= paths
    assert paths <= TAKES.keys()
    assert {path.removesuffix(".*") for path in TAKES} - {""} <= paths, "nothing is said of what is not there"


FIELDS = st.sampled_from([path.rpartition(".")[2] for path in TAKES if not path.endswith("*")] + ["str", "list[TextPart]", "x"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=80),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(FIELDS, inner, max_size=6),
    max_leaves=12,
)


@given(ANYTHING | st.dictionaries(FIELDS, ANYTHING, max_size=8) | st.builds(said, ANYTHING, ANYTHING))
def test_whatever_comes_is_answered_with_sentences(body: JsonValue) -> None:
    try:
        ChatCompletion.model_validate(body)
    except ValidationError as error:
        faults = completion_faults(error, body)
        assert faults
        assert len({fault.path for fault in faults}) == len(faults)
        for fault in faults:
            assert fault.path and fault.reason.endswith(".") and "Input should" not in fault.reason
