"""What callers get to see of API keys."""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.core.clock import rfc3339
from antiphon.core.tenancy import ApiKey


@dataclass(frozen=True, slots=True)
class KeyAnswer:
    """``priority`` is ``null`` where the key waits as its owner's plan says."""

    id: str
    name: str
    scopes: list[str]
    last4: str
    created_at: str
    revoked_at: str | None
    priority: str | None


@dataclass(frozen=True, slots=True)
class NewKeyAnswer:
    """``key`` is shown this once."""

    id: str
    name: str
    scopes: list[str]
    last4: str
    created_at: str
    revoked_at: str | None
    priority: str | None
    key: str


@dataclass(frozen=True, slots=True)
class KeysAnswer:
    data: list[KeyAnswer]


def key_answer(key: ApiKey) -> KeyAnswer:
    return KeyAnswer(
        id=key.id,
        name=key.name,
        scopes=sorted(scope.value for scope in key.scopes),
        last4=key.last4,
        created_at=rfc3339(key.created_at),
        revoked_at=None if key.revoked_at is None else rfc3339(key.revoked_at),
        priority=None if key.band is None else key.band.name.lower(),
    )


def new_key_answer(key: ApiKey, text: str) -> NewKeyAnswer:
    shown = key_answer(key)
    return NewKeyAnswer(shown.id, shown.name, shown.scopes, shown.last4, shown.created_at, shown.revoked_at, shown.priority, text)
