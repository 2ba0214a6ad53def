"""Request bodies: the one JSON parser of the edge, and the text rules that hold for every string in it."""

from __future__ import annotations

import hashlib
import json
import re
from typing import NoReturn

from antiphon.core.errors import BadJson, InvalidText

MAX_BODY_BYTES = 1 << 20
MAX_DEPTH = 64

JsonValue = str | int | float | bool | None | list["JsonValue"] | dict[str, "JsonValue"]

_FORBIDDEN_TEXT = re.compile("[\x00\ud800-\udfff]")


def parse_json(raw: bytes) -> JsonValue:
    """The value of a JSON body in UTF-8.

    Raises ``BadJson`` for what RFC 8259 does not allow (NaN, Infinity), for numbers no double or int of 4300 digits holds,
    for a member given twice and for nesting deeper than ``MAX_DEPTH``; ``InvalidText`` for NUL and lone surrogates anywhere.
    """
    try:
        value: JsonValue = _DECODER.decode(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadJson from error
    _check(value)
    return value


def check_text(text: str) -> str:
    """``text`` itself; raises ``InvalidText`` for NUL and lone surrogates."""
    if _FORBIDDEN_TEXT.search(text):
        raise InvalidText
    return text


def fingerprint(route: str, value: JsonValue) -> str:
    """SHA-256 in hex over the route and the canonical form of a parsed body: member order and spacing do not matter."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(f"{route}\n{canonical}".encode("ascii")).hexdigest()


def _check(root: JsonValue) -> None:
    level: list[JsonValue] = [root]
    for _ in range(MAX_DEPTH):
        below: list[JsonValue] = []
        for value in level:
            if isinstance(value, str):
                check_text(value)
            elif isinstance(value, list):
                below.extend(value)
            elif isinstance(value, dict):
                below.extend(value.keys())
                below.extend(value.values())
        if not below:
            return
        level = below
    raise BadJson("The body is nested too deeply.")


def _unique_members(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member is given twice")
    return members


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("a number does not fit a double")
    return number


def _no_constants(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_members, parse_float=_finite, parse_constant=_no_constants)
