"""From an uploaded file to conversations: every item is shown to every reader, and one of them knows it, or nobody does."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import IO

from antiphon.orchestrator.transfer import chatgpt, librechat, openwebui, own
from antiphon.orchestrator.transfer.archive import DEFAULT_BOUNDS, Bounds, Item, items_of
from antiphon.orchestrator.transfer.source import SourceConversation, Unreadable
from antiphon.orchestrator.transfer.values import JsonObject, id_of, parse_object

_MAX_HELD_FAULTS = 1000
_REPAIRED = "Characters that are no text were replaced."

_READERS: tuple[tuple[Callable[[JsonObject], bool], Callable[[JsonObject], SourceConversation]], ...] = (
    (own.recognises, own.read),
    (chatgpt.recognises, chatgpt.read),
    (openwebui.recognises, openwebui.read),
    (librechat.recognises, librechat.read),
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A conversation that cannot be imported. ``source_id`` is its own, or its place in the file where it has none."""

    source_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Readable:
    conversation: SourceConversation
    raw_bytes: int


def conversations_in(file: IO[bytes], bounds: Bounds = DEFAULT_BOUNDS) -> Iterator[Readable | Fault]:
    """What ``file`` holds, one by one, in its order. Raises ``Unreadable`` for a file as a whole. Blocking.

    In a ZIP, files that hold no conversation at all are passed over without a word, unless there is nothing else.
    """
    others: list[Fault] = []
    held: list[Fault] = []
    member, known_here, known_anywhere = "", False, False
    for item in items_of(file, bounds):
        if item.member != member:
            others += held[: _MAX_HELD_FAULTS - len(others)]
            held, member, known_here = [], item.member, False
        result, known = _read(item)
        known_here = known_here or known or bool(item.fault)
        known_anywhere = known_anywhere or known_here
        if known_here:
            yield from held
            held = []
            if result is not None:
                yield result
        elif isinstance(result, Fault) and len(held) < _MAX_HELD_FAULTS:
            held.append(result)
    if held and not member:
        yield from held
    elif not known_anywhere:
        yield from (*others, *held)


def _read(item: Item) -> tuple[Readable | Fault | None, bool]:
    """What the item is, ``None`` for a header; and whether some reader knows it."""
    place = f"{item.member}#{item.number}"
    if item.fault:
        return Fault(place, item.fault), False
    try:
        value, repaired = parse_object(item.raw)
        if own.is_header(value):
            return None, True
        reader = next((read for recognises, read in _READERS if recognises(value)), None)
    except Unreadable as error:
        return Fault(place, error.reason), False
    if reader is None:
        return Fault(id_of(value.get("id")) or place, "It is not a conversation of a format that we know."), False
    return _told(item, value, repaired, reader), True


def _told(item: Item, value: JsonObject, repaired: bool, read: Callable[[JsonObject], SourceConversation]) -> Readable | Fault:
    try:
        conversation = read(value)
    except Unreadable as error:
        return Fault(error.source_id or f"{item.member}#{item.number}", error.reason)
    except RecursionError:
        return Fault(f"{item.member}#{item.number}", "It is nested too deeply.")
    if not conversation.source_id:
        # The same text is the same conversation.
        conversation = replace(conversation, source_id="sha256:" + hashlib.sha256(item.raw).hexdigest())
    if repaired:
        conversation = replace(conversation, notes=(_REPAIRED,))
    return Readable(conversation, len(item.raw))
