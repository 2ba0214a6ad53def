"""Who asks: tenants, users, keys, principals, and the plan that binds them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum, StrEnum

from antiphon.core.ids import KeyId, TenantId, UserId


class UserRole(StrEnum):
    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"


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


@dataclass(frozen=True, slots=True)
class MessageCap:
    """At most ``messages`` turns with ``model`` in any window of ``window_seconds``."""

    model: str
    messages: int
    window_seconds: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What a user may use and how they wait; see ``[[plans]]`` in the configuration."""

    name: str
    models: tuple[str, ...] = ()
    band: Band = Band.STANDARD
    tokens_per_minute: int = 20_000
    requests_per_minute: int = 20
    concurrency: int = 2
    caps: tuple[MessageCap, ...] = ()
    max_output_tokens: int = 1024
    ttft_limit_ms: int = 10_000
    downgrade: bool = True
    on_abandon: str = "finish"
    reserved_tokens_per_s: int = 0
