"""Cursors: of the conversation list, keyset positions in (updated_at, id), newest first; of search, places in its windows."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass

from antiphon.core.clock import to_ms
from antiphon.core.errors import BadCursor
from antiphon.core.ids import IdKind, ShareId, is_id
from antiphon.core.messages import Conversation

_POSITION = re.compile(r"(\d{1,15})\.([0-9a-zA-Z_-]{1,64})\Z", re.ASCII)
_SEARCH = re.compile(r"s(\d{1,18})\.(\d{1,4})\Z", re.ASCII)
_NUMBER = re.compile(r"n(\d{1,18})\Z", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class PagePosition:
    """A conversation's place in the list; pages go on at smaller positions."""

    updated_ms: int
    conversation_id: str


def position_of(conversation: Conversation) -> PagePosition:
    return PagePosition(to_ms(conversation.updated_at), conversation.id)


def cursor_of(position: PagePosition) -> str:
    """An opaque, URL-safe text for ``position``."""
    return _encoded(f"{position.updated_ms}.{position.conversation_id}")


def parse_page_cursor(cursor: str) -> PagePosition:
    """The inverse of ``cursor_of``; raises ``BadCursor`` for any other text."""
    found = _POSITION.match(_decoded(cursor))
    position = None if found is None else PagePosition(int(found[1]), found[2])
    if position is None or cursor_of(position) != cursor:
        raise BadCursor
    return position


@dataclass(frozen=True, slots=True)
class SearchPosition:
    """Skip ``offset`` of the ranked window whose newest document is ``start``."""

    start: int
    offset: int


def search_cursor_of(position: SearchPosition) -> str:
    """An opaque, URL-safe text for ``position``."""
    return _encoded(f"s{position.start}.{position.offset}")


def parse_search_cursor(cursor: str) -> SearchPosition:
    """The inverse of ``search_cursor_of``; raises ``BadCursor`` for any other text."""
    found = _SEARCH.match(_decoded(cursor))
    position = None if found is None else SearchPosition(int(found[1]), int(found[2]))
    if position is None or search_cursor_of(position) != cursor:
        raise BadCursor
    return position


def number_cursor_of(number: int) -> str:
    """An opaque text for a place in a list that is numbered."""
    return _encoded(f"n{number}")


def parse_number_cursor(cursor: str) -> int:
    """The inverse of ``number_cursor_of``; raises ``BadCursor`` for any other text."""
    found = _NUMBER.match(_decoded(cursor))
    if found is None or number_cursor_of(int(found[1])) != cursor:
        raise BadCursor
    return int(found[1])


def place_cursor_of(at_ms: int, name: str) -> str:
    """An opaque text for a place in a list that is ordered by time, then by id."""
    return _encoded(f"{at_ms}.{name}")


def parse_place_cursor(cursor: str) -> tuple[int, str]:
    """The inverse of ``place_cursor_of``; raises ``BadCursor`` for any other text."""
    position = parse_page_cursor(cursor)
    return position.updated_ms, position.conversation_id


def share_cursor_of(share_id: ShareId) -> str:
    """An opaque text for a place in the list of shares."""
    return _encoded(share_id)


def parse_share_cursor(cursor: str) -> ShareId:
    """The inverse of ``share_cursor_of``; raises ``BadCursor`` for any other text."""
    plain = _decoded(cursor)
    if not is_id(plain, IdKind.SHARE):
        raise BadCursor
    return ShareId(plain)


def _encoded(plain: str) -> str:
    return base64.urlsafe_b64encode(plain.encode()).decode().rstrip("=")


def _decoded(cursor: str) -> str:
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise BadCursor from None
