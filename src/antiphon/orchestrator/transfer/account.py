"""Everything a person has here, as one ZIP that is written while it is sent: conversations, feedback, keys without secrets, settings."""

from __future__ import annotations

import asyncio
import zipfile
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import IO

from antiphon.core.clock import rfc3339
from antiphon.core.tenancy import ApiKey, Principal, User
from antiphon.orchestrator.transfer import own
from antiphon.orchestrator.transfer.exporting import Exporter
from antiphon.orchestrator.transfer.values import Json, JsonObject, dump
from antiphon.stores.accounts.base import Accounts
from antiphon.stores.conversations.base import Owner
from antiphon.stores.shares.base import Share, Shares
from antiphon.stores.transfers.base import WholeConversation

README = """Everything this account held when it was exported.

conversations.jsonl   every conversation with all its branches, one per line; `antiphon import` reads it
feedback.json         ratings given to answers
keys.json             API keys, without their secrets
shares.json           links that show a conversation to others
account.json          the person and how they may use this server
"""


@dataclass(frozen=True, slots=True)
class Person:
    """Who asks, and what of their account goes along."""

    user: User
    keys: tuple[ApiKey, ...]
    shares: tuple[Share, ...]
    scopes: tuple[str, ...]


async def person_of(accounts: Accounts, shares: Shares, caller: Principal) -> Person:
    """The caller's account, but for the conversations. Raises ``NotFound``."""
    user = await accounts.user(caller.user_id)
    keys = await accounts.keys(caller.tenant_id, caller.user_id)
    shared = await _all_shares(shares, Owner(caller.tenant_id, caller.user_id))
    return Person(user, keys, shared, tuple(sorted(scope.value for scope in caller.scopes)))


async def _all_shares(shares: Shares, owner: Owner) -> tuple[Share, ...]:
    found: list[Share] = []
    after: str | None = None
    while True:
        page = await shares.page(owner, limit=100, after=after)
        found += page.shares
        after = page.next_cursor
        if after is None:
            return tuple(found)


async def archive_of(person: Person, exporter: Exporter, owner: Owner) -> AsyncGenerator[bytes]:
    """The ZIP in pieces of about a conversation. Packing runs in a thread."""
    sink = _Sink()
    feedback: list[Json] = []
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as archive:
        archive.writestr(_entry("README.txt"), README)
        archive.writestr(_entry("account.json"), dump(_account(person)))
        archive.writestr(_entry("keys.json"), dump([_key(key) for key in person.keys]))
        archive.writestr(_entry("shares.json"), dump([_share(share) for share in person.shares]))
        yield sink.taken()
        with archive.open(_entry("conversations.jsonl"), "w", force_zip64=True) as lines:
            lines.write(own.HEADER.encode())
            async for whole in exporter.all(owner):
                await asyncio.to_thread(_write_line, lines, whole)
                feedback += _feedback(whole)
                yield sink.taken()
        archive.writestr(_entry("feedback.json"), dump(feedback))
    yield sink.taken()


def _write_line(lines: IO[bytes], whole: WholeConversation) -> None:
    lines.write(own.line_of(whole).encode())


class _Sink:
    """Where the ZIP goes: a file that cannot be rewound, emptied piece by piece."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Nothing is open."""

    def taken(self) -> bytes:
        pieces = b"".join(self._pieces)
        self._pieces.clear()
        return pieces


def _entry(name: str) -> zipfile.ZipInfo:
    """An entry without a moment, so that the same account is the same ZIP."""
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o600 << 16
    return entry


def _account(person: Person) -> JsonObject:
    user = person.user
    return {
        "user_id": user.id,
        "tenant_id": user.tenant_id,
        "name": user.name,
        "role": user.role.value,
        "plan": user.plan,
        "scopes": list[Json](person.scopes),
        "created_at": rfc3339(user.created_at),
    }


def _key(key: ApiKey) -> JsonObject:
    return {
        "id": key.id,
        "name": key.name,
        "scopes": list[Json](sorted(scope.value for scope in key.scopes)),
        "last4": key.last4,
        "created_at": rfc3339(key.created_at),
        "revoked_at": None if key.revoked_at is None else rfc3339(key.revoked_at),
    }


def _share(share: Share) -> JsonObject:
    return {"id": share.id, "conversation_id": share.conversation_id, "title": share.title, "created_at": rfc3339(share.created_at)}


def _feedback(whole: WholeConversation) -> list[Json]:
    return [
        {
            "conversation_id": whole.head.id,
            "message_id": message_id,
            "rating": given.rating,
            "reasons": list[Json](given.reasons),
            "comment": given.comment,
        }
        for message_id, given in whole.feedback.items()
    ]
