"""The port of accounts. Secrets arrive here already hashed; unknown and foreign ids raise the same ``NotFound``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from antiphon.core.ids import KeyId, TenantId, UserId
from antiphon.core.tenancy import ApiKey, Identity, Tenant, User, UserRole

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


@dataclass(frozen=True, slots=True)
class Session:
    """A signed-in browser; ``agent`` is what it says of itself."""

    token_sha256: bytes
    user_id: UserId
    created_at: datetime
    expires_at: datetime
    agent: str = ""


@dataclass(frozen=True, slots=True)
class Password:
    """``encoded`` is an Argon2 hash with its parameters."""

    user: User
    encoded: str


@dataclass(frozen=True, slots=True)
class UserChange:
    """What is ``None`` stays."""

    role: UserRole | None = None
    plan: str | None = None
    disabled: bool | None = None


class Accounts(Protocol):
    async def ensure_owner(self, tenant: Tenant, user: User) -> User:
        """The oldest owner there is, else ``user`` of ``tenant``, inserted now."""
        ...

    async def create_tenant(self, tenant: Tenant) -> None: ...

    async def tenants(self) -> tuple[Tenant, ...]: ...

    async def create_user(self, user: User) -> None:
        """Raises ``Conflict`` when the tenant has a user of that name, ``NotFound`` for an unknown tenant."""
        ...

    async def create_user_of_identity(self, user: User, identity: Identity) -> None:
        """In one act: the user, and that ``identity`` is theirs. As ``create_user``; ``Conflict`` for a known identity too."""
        ...

    async def user_of_identity(self, identity: Identity) -> User | None:
        """Whose identity it is, disabled or not; ``None`` for an unknown one."""
        ...

    async def identities(self, user_id: UserId) -> tuple[Identity, ...]:
        """At which providers the user is known."""
        ...

    async def users(self, tenant_id: TenantId | None) -> tuple[User, ...]:
        """Users of a tenant (all tenants for ``None``), oldest first."""
        ...

    async def user(self, user_id: UserId) -> User: ...

    async def user_by_name(self, name: str) -> User:
        """The user with that name or id; ``NotFound`` when there is none or more than one."""
        ...

    async def disable_user(self, user_id: UserId) -> None:
        """As ``change_user``, whosever user it is."""
        ...

    async def change_user(self, tenant_id: TenantId, user_id: UserId, change: UserChange) -> User:
        """Raises ``NotFound``, ``Conflict`` where the server would be left without an owner who may sign in.

        Who is disabled loses sessions and links for good; keys sleep.
        """
        ...

    async def delete_user(self, user_id: UserId) -> None:
        """End an account for good: no sessions, links, keys or identities, no name. Raises ``NotFound``, ``Conflict`` for the last owner.

        The row stays, disabled and named by its id, since usage and audit refer to it.
        """
        ...

    async def create_link(self, token_sha256: bytes, user_id: UserId, *, expires_at: datetime) -> None:
        """A one-time sign-in link."""
        ...

    async def set_password(self, user_id: UserId, encoded: str, *, keep: bytes | None) -> None:
        """In one act: the new hash, and the end of the user's links and sessions, except the one whose token's hash is ``keep``."""
        ...

    async def password(self, user_id: UserId) -> str | None:
        """The hash of the user's password, ``None`` where none is set."""
        ...

    async def password_of(self, name: str, tenant: str | None) -> Password | None:
        """Of the one enabled user with that name and a password, among all tenants where none is named; else ``None``."""
        ...

    async def open_session(self, session: Session) -> None:
        """Raises ``NotFound`` for an unknown or disabled user."""
        ...

    async def sessions(self, user_id: UserId, *, now: datetime) -> tuple[Session, ...]:
        """The user's living sessions, oldest first."""
        ...

    async def redeem_link(
        self, token_sha256: bytes, session_sha256: bytes, *, now: datetime, expires_at: datetime, agent: str = ""
    ) -> User | None:
        """Burn the link and open a session in one act; ``None`` for an unknown, used or expired link or a disabled user."""
        ...

    async def session(self, token_sha256: bytes, *, now: datetime) -> SessionOwner | None:
        """The living session of an enabled user, else ``None``."""
        ...

    async def end_session(self, token_sha256: bytes) -> None: ...

    async def create_key(self, key: ApiKey, secret_sha256: bytes) -> None: ...

    async def key(self, secret_sha256: bytes) -> KeyOwner | None:
        """The key with that secret, if it is not revoked and its user not disabled, else ``None``.

        It is found by the secret's hash alone, so an id that exists and one that does not take the same steps.
        """
        ...

    async def keys(self, tenant_id: TenantId, user_id: UserId | None) -> tuple[ApiKey, ...]:
        """Keys of a tenant (of one user when given), revoked ones too, oldest first."""
        ...

    async def revoke_key(self, tenant_id: TenantId, key_id: KeyId, *, now: datetime) -> None: ...
