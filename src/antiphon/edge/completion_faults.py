"""What is wrong with a body for ``POST /v1/chat/completions``: for each field what it takes and what it got, in one sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from pydantic import ValidationError

from antiphon.core.errors import FieldFault
from antiphon.edge.body import JsonValue

_MOST_FAULTS = 20
_MOST_QUOTED = 40

_Place = tuple[str | int, ...]

TAKES: Mapping[str, str] = MappingProxyType(
    {
        "": "an object with messages",
        "model": "the name of a model, of 1 to 200 characters",
        "messages": "a list of 1 to 4096 messages",
        "messages.*": "an object with a role and its content",
        "messages.*.role": '"system", "developer", "user" or "assistant"',
        "messages.*.content": "a text, or a list of 1 to 256 parts of the type text",
        "messages.*.content.*": "an object with a type and a text",
        "messages.*.content.*.type": '"text", since nothing else is read here',
        "messages.*.content.*.text": "a text",
        "messages.*.name": "a text of at most 64 characters",
        "messages.*.refusal": "null",
        "messages.*.tool_calls": "an empty list, since no tools are called here",
        "max_tokens": "a whole number from 1 to 9223372036854775807",
        "max_completion_tokens": "a whole number from 1 to 9223372036854775807",
        "temperature": "a number from 0 to 2",
        "top_p": "a number above 0, up to 1",
        "seed": "a whole number from -9223372036854775808 to 9223372036854775807",
        "stop": "a text of 1 to 64 characters, or a list of at most 4 of them",
        "stop.*": "a text of 1 to 64 characters",
        "stream": "true or false",
        "stream_options": "an object with include_usage and include_obfuscation",
        "stream_options.include_usage": "true or false",
        "stream_options.include_obfuscation": "true or false",
        "n": "1, since a request has one answer here",
        "frequency_penalty": "0, since there are no penalties here",
        "presence_penalty": "0, since there are no penalties here",
        "logit_bias": "an empty object, since no token is favoured here",
        "logprobs": "false, since no probabilities are told here",
        "top_logprobs": "0, since no probabilities are told here",
        "response_format": "an object with the type text",
        "response_format.type": '"text", since no other format is kept to here',
        "tools": "an empty list, since no tools are called here",
        "tool_choice": '"none" or "auto"',
        "parallel_tool_calls": "true or false",
        "modalities": 'a list of at most one, "text"',
        "modalities.*": '"text", since answers are nothing else here',
        "store": "false, since completions are not stored here",
        "metadata": "an object of at most 16 texts of at most 512 characters",
        "service_tier": '"auto" or "default"',
        "user": "a text of at most 512 characters",
        "safety_identifier": "a text of at most 512 characters",
        "prompt_cache_key": "a text of at most 512 characters",
    }
)
"""What each field takes, by its path; ``*`` is a place in a list."""


def completion_faults(error: ValidationError, body: JsonValue) -> tuple[FieldFault, ...]:
    """One fault for each faulty field of ``body``, in the order in which pydantic found them: of a field that may be a text or a list,
    what is said is of what it is; of a part that is no text, only that.
    """
    found: dict[_Place, str] = {}
    for one in error.errors(include_url=False, include_context=False, include_input=False):
        fault = _fault(one["loc"], one["type"], body)
        if fault is not None:
            found.setdefault(*fault)
    typed = {place[:-1] for place in found if place[-1:] == ("type",)}
    kept = [FieldFault(_path(place), why) for place, why in found.items() if place[-1:] == ("type",) or place[:-1] not in typed]
    return tuple(kept[:_MOST_FAULTS])


def _fault(location: _Place, kind: str, body: JsonValue) -> tuple[_Place, str] | None:
    """Where it is and what to say; ``None`` for a finding about what the value is not."""
    about_name = kind in {"missing", "extra_forbidden"}
    there = _follow(location[:-1] if about_name else location, body)
    if there is None:
        return None
    place, value = there
    if about_name:
        place = (*place, location[-1])
        return place, "There is no such field here." if kind == "extra_forbidden" else f"Is missing: takes {TAKES[_pattern(place)]}."
    return place, f"Takes {TAKES[_pattern(place)]}, but got {told(value)}."


def _follow(location: _Place, body: JsonValue) -> tuple[_Place, JsonValue] | None:
    """The last place on the way of which is known what it takes, and what is there. pydantic's way names, between, what a value was taken
    for; ``None`` where that is not what it is and another way says more.
    """
    place: _Place = ()
    value, known = body, (place, body)
    for part in location:
        if isinstance(value, dict) and part in value:
            value = value[str(part)]
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part]
        elif isinstance(value, list | str) and _is_of(value) != str(part).partition("[")[0].removeprefix("constrained-"):
            return None
        else:
            continue
        place = (*place, part)
        if _pattern(place) in TAKES:
            known = (place, value)
    return known


def _is_of(value: list[JsonValue] | str) -> Literal["list", "str"]:
    return "list" if isinstance(value, list) else "str"


def _pattern(place: _Place) -> str:
    return ".".join("*" if isinstance(part, int) else part for part in place)


def _path(place: _Place) -> str:
    return ".".join(str(part)[:_MOST_QUOTED] for part in place) or "body"


def told(value: JsonValue) -> str:
    """What came, short: texts are quoted where they are short, and counted else."""
    match value:
        case list():
            return f"a list of {len(value)}" if value else "an empty list"
        case dict():
            return f"an object of {len(value)}" if value else "an empty object"
        case str() if len(value) > _MOST_QUOTED:
            return f"a text of {len(value)} characters"
        case int() if abs(value) >= 10**_MOST_QUOTED:
            return f"a number of more than {_MOST_QUOTED} digits"
        case _:
            return json.dumps(value)
