"""Foreign JSON, taken apart without trust: every look-up answers ``None`` where a value is missing or of another kind."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import NoReturn

from antiphon.core.clock import from_ms, truncate_to_ms
from antiphon.orchestrator.transfer.source import Unreadable

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]
JsonObject = dict[str, Json]

MAX_NUMBER = 2**53
_MILLISECONDS_FROM = 10**11
_LAST_SECOND = 253_402_300_799

_SUSPECT = re.compile(rb"\\u(?:[dD][89abcdefABCDEF]|0000)|\x00")
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LONE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}\Z")


def parse_object(raw: bytes) -> tuple[JsonObject, bool]:
    """The JSON object in ``raw``, and whether its text had to be repaired.

    Lone surrogates and bytes that are no UTF-8 become U+FFFD, NUL goes. Raises ``Unreadable`` for anything but one object, for
    NaN and Infinity, and for nesting that no parser of ours takes.
    """
    text, repaired = _repaired(raw)
    try:
        value: Json = _DECODER.decode(text)
    except RecursionError:
        raise Unreadable("It is nested too deeply.") from None
    except ValueError:
        raise Unreadable("It is not valid JSON.") from None
    if not isinstance(value, dict):
        raise Unreadable("It is not a JSON object.")
    return value, repaired


def text_of(value: Json) -> str | None:
    return value if isinstance(value, str) else None


def name_of(value: Json) -> str | None:
    """A short text, such as the name of a model; at most 200 characters, ``None`` for the empty one."""
    return value.strip()[:200] or None if isinstance(value, str) else None


def id_of(value: Json) -> str | None:
    """An id: a text that is not empty, or a whole number."""
    if isinstance(value, str):
        return value or None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) < MAX_NUMBER else None


def count_of(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_NUMBER else None


def object_of(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}


def list_of(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def time_of(value: Json) -> datetime | None:
    """RFC 3339 text, or seconds (or milliseconds) since 1970; ``None`` for what is no moment between 1970 and 9999."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        try:
            moment = truncate_to_ms(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
        except OverflowError:
            return None
        return moment if moment.year >= 1970 else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _LAST_SECOND * 1000:
        return None
    seconds = value / 1000 if value > _MILLISECONDS_FROM else value
    return from_ms(int(seconds * 1000)) if seconds <= _LAST_SECOND else None


def rest_of(value: Mapping[str, Json], known: Iterable[str]) -> str:
    """A JSON object of the members that are not ``known``; empty when there are none."""
    unknown = {name: member for name, member in value.items() if name not in known}
    return dump(unknown) if unknown else ""


def dump(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _repaired(raw: bytes) -> tuple[str, bool]:
    if _SUSPECT.search(raw):
        raw, broken = _without_broken_escapes(raw)
    else:
        broken = False
    try:
        return raw.decode("utf-8"), broken
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace"), True


def _without_broken_escapes(raw: bytes) -> tuple[bytes, bool]:
    broken = b"\0" in raw

    def replace(found: re.Match[bytes]) -> bytes:
        nonlocal broken
        escape = found[0]
        if escape == b"\\u0000":
            broken = True
            return b""
        if _LONE.match(escape):
            broken = True
            return b"\\ufffd"
        return escape

    return _ESCAPE.sub(replace, raw.replace(b"\0", b"")), broken


def _no_constants(name: str) -> NoReturn:
    raise ValueError(name)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


_DECODER = json.JSONDecoder(parse_constant=_no_constants, parse_float=_finite, strict=False)
