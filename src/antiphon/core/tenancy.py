"""Who asks: tenants, users, keys, principals. What their plans allow is in ``plans``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum, StrEnum

from antiphon.core.ids import KeyId, TenantId, UserId


class UserRole(StrEnum):
    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"


def may_manage(actor: UserRole, other: UserRole) -> bool:
    """Whether ``actor`` may invite, change and disable people with the role ``other``: nobody gains a right they do not hold."""
    return actor is UserRole.OWNER or (actor is UserRole.ADMIN and other is UserRole.MEMBER)


class Scope(StrEnum):
    CHAT = "chat"
    USAGE = "usage"
    ADMIN = "admin"
    METRICS = "metrics"


class Band(IntEnum):
    """Priority bands of the gateway and the scheduler; the higher value goes first."""

    BATCH = 0
    LOW = 1
    STANDARD = 2
    HIGH = 3


@dataclass(frozen=True, slots=True)
class Tenant:
    id: TenantId
    name: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class User:
    id: UserId
    tenant_id: TenantId
    name: str
    role: UserRole
    plan: str
    disabled: bool
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Identity:
    """Who somebody is at an identity provider: ``subject`` is unique at its ``issuer`` and never reused there. No name, no address."""

    issuer: str
    subject: str


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key as it may be shown; the secret itself is shown once, at creation."""

    id: KeyId
    tenant_id: TenantId
    user_id: UserId
    name: str
    scopes: frozenset[Scope]
    last4: str
    created_at: datetime
    revoked_at: datetime | None = None
    band: Band | None = None
    """Where its requests wait, at most where its owner's plan lets them; ``None``: there."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated caller of one request, however it proved itself."""

    tenant_id: TenantId
    user_id: UserId
    name: str
    role: UserRole
    plan: str
    scopes: frozenset[Scope]
    key_id: KeyId | None = None
    band: Band | None = None
    """Its key's own."""
