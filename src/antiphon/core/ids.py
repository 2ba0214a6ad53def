"""Typed ids. On the wire and in the store an id is ``<kind>_<dashed UUIDv7>``; it says when it was made, never who may read it."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NewType, Protocol

TenantId = NewType("TenantId", str)
UserId = NewType("UserId", str)
KeyId = NewType("KeyId", str)
ConversationId = NewType("ConversationId", str)
MessageId = NewType("MessageId", str)
GenerationId = NewType("GenerationId", str)
ShareId = NewType("ShareId", str)
MemoryId = NewType("MemoryId", str)


class IdKind(StrEnum):
    TENANT = "tenant"
    USER = "user"
    KEY = "key"
    CONVERSATION = "conv"
    MESSAGE = "msg"
    GENERATION = "gen"
    FILE = "file"
    SHARE = "share"
    MEMORY = "mem"
    REQUEST = "req"


class IdSource(Protocol):
    """Where new ids and secrets come from."""

    def new(self, kind: IdKind) -> str:
        """A fresh id of ``kind``, greater than every id this source made before it."""
        ...

    def secret(self, random_bytes: int) -> str:
        """A URL-safe secret with ``random_bytes`` bytes of cryptographic randomness."""
        ...


_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")


def is_id(text: str, kind: IdKind) -> bool:
    """Whether ``text`` has the exact form of an id of ``kind``."""
    prefix = f"{kind.value}_"
    return text.startswith(prefix) and _UUID.match(text, len(prefix)) is not None
