"""The port of accounts. Secrets arrive here already hashed; unknown and foreign ids raise the same ``NotFound``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from antiphon.core.ids import KeyId, TenantId, UserId
from antiphon.core.tenancy import ApiKey, Tenant, User

LAST_OWNER = "The last owner of a server cannot leave it."


@dataclass(frozen=True, slots=True)
class SessionOwner:
    user: User
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class KeyOwner:
    user: User
    key: ApiKey
    secret_sha256: bytes


class Accounts(Protocol):
    async def ensure_owner(self, tenant: Tenant, user: User) -> User:
        """The oldest owner there is, else ``user`` of ``tenant``, inserted now."""
        ...

    async def create_tenant(self, tenant: Tenant) -> None: ...

    async def tenants(self) -> tuple[Tenant, ...]: ...

    async def create_user(self, user: User) -> None:
        """Raises ``Conflict`` when the tenant has a user of that name, ``NotFound`` for an unknown tenant."""
        ...

    async def users(self, tenant_id: TenantId | None) -> tuple[User, ...]:
        """Users of a tenant (all tenants for ``None``), oldest first."""
        ...

    async def user(self, user_id: UserId) -> User: ...

    async def user_by_name(self, name: str) -> User:
        """The user with that name or id; ``NotFound`` when there is none or more than one."""
        ...

    async def disable_user(self, user_id: UserId) -> None: ...

    async def delete_user(self, user_id: UserId) -> None:
        """End an account for good: no sessions, links or keys, no name. Raises ``NotFound``, ``Conflict`` for the last owner.

        The row stays, disabled and named by its id, since usage and audit refer to it.
        """
        ...

    async def create_link(self, token_sha256: bytes, user_id: UserId, *, expires_at: datetime) -> None:
        """A one-time sign-in link."""
        ...

    async def redeem_link(self, token_sha256: bytes, session_sha256: bytes, *, now: datetime, expires_at: datetime) -> User | None:
        """Burn the link and open a session in one act; ``None`` for an unknown, used or expired link or a disabled user."""
        ...

    async def session(self, token_sha256: bytes, *, now: datetime) -> SessionOwner | None:
        """The living session of an enabled user, else ``None``."""
        ...

    async def end_session(self, token_sha256: bytes) -> None: ...

    async def create_key(self, key: ApiKey, secret_sha256: bytes) -> None: ...

    async def key(self, key_id: KeyId) -> KeyOwner | None:
        """A key that is not revoked, of a user that is not disabled, else ``None``."""
        ...

    async def keys(self, tenant_id: TenantId, user_id: UserId | None) -> tuple[ApiKey, ...]:
        """Keys of a tenant (of one user when given), revoked ones too, oldest first."""
        ...

    async def revoke_key(self, tenant_id: TenantId, key_id: KeyId, *, now: datetime) -> None: ...
