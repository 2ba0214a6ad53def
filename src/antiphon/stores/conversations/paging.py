"""Cursors of the conversation list: keyset positions in (updated_at, id), newest first."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass

from antiphon.core.clock import to_ms
from antiphon.core.errors import BadCursor
from antiphon.core.messages import Conversation

_POSITION = re.compile(r"(\d{1,15})\.([0-9a-zA-Z_-]{1,64})\Z", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class PagePosition:
    """A conversation's place in the list; pages go on at smaller positions."""

    updated_ms: int
    conversation_id: str


def position_of(conversation: Conversation) -> PagePosition:
    return PagePosition(to_ms(conversation.updated_at), conversation.id)


def cursor_of(position: PagePosition) -> str:
    """An opaque, URL-safe text for ``position``."""
    plain = f"{position.updated_ms}.{position.conversation_id}".encode()
    return base64.urlsafe_b64encode(plain).decode().rstrip("=")


def parse_page_cursor(cursor: str) -> PagePosition:
    """The inverse of ``cursor_of``; raises ``BadCursor`` for any other text."""
    try:
        plain = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise BadCursor from None
    found = _POSITION.match(plain)
    position = None if found is None else PagePosition(int(found[1]), found[2])
    if position is None or cursor_of(position) != cursor:
        raise BadCursor
    return position
