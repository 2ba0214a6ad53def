"""Accounts in memory: the reference driver."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from antiphon.core.errors import Conflict, NotFound
from antiphon.core.ids import KeyId, TenantId, UserId
from antiphon.core.tenancy import ApiKey, Identity, Tenant, User, UserRole
from antiphon.stores.accounts.base import LAST_OWNER, KeyOwner, Password, Session, SessionOwner, UserChange
from antiphon.stores.memory import MemoryState, StoredKey, StoredToken


class MemoryAccounts:
    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def ensure_owner(self, tenant: Tenant, user: User) -> User:
        owner = next(iter(_oldest_users(one for one in self._state.users.values() if one.role is UserRole.OWNER)), None)
        if owner is not None:
            return owner
        if tenant.id not in self._state.tenants:
            await self.create_tenant(tenant)
        await self.create_user(user)
        return user

    async def create_tenant(self, tenant: Tenant) -> None:
        if tenant.id in self._state.tenants or any(one.name == tenant.name for one in self._state.tenants.values()):
            raise Conflict("There is a tenant of that name.")
        self._state.tenants[tenant.id] = tenant

    async def tenants(self) -> tuple[Tenant, ...]:
        return tuple(sorted(self._state.tenants.values(), key=lambda tenant: (tenant.created_at, tenant.id)))

    async def create_user(self, user: User) -> None:
        if user.tenant_id not in self._state.tenants:
            raise NotFound
        taken = any((one.tenant_id, one.name) == (user.tenant_id, user.name) for one in self._state.users.values())
        if taken or user.id in self._state.users:
            raise Conflict("There is a user of that name.")
        self._state.users[user.id] = user

    async def create_user_of_identity(self, user: User, identity: Identity) -> None:
        if identity in self._state.identities:
            raise Conflict("This identity is known.")
        await self.create_user(user)
        self._state.identities[identity] = user.id

    async def user_of_identity(self, identity: Identity) -> User | None:
        user_id = self._state.identities.get(identity)
        return None if user_id is None else self._state.users[user_id]

    async def identities(self, user_id: UserId) -> tuple[Identity, ...]:
        theirs = (identity for identity, one in self._state.identities.items() if one == user_id)
        return tuple(sorted(theirs, key=lambda identity: (identity.issuer, identity.subject)))

    async def users(self, tenant_id: TenantId | None) -> tuple[User, ...]:
        return _oldest_users(user for user in self._state.users.values() if tenant_id is None or user.tenant_id == tenant_id)

    async def user(self, user_id: UserId) -> User:
        user = self._state.users.get(user_id)
        if user is None:
            raise NotFound
        return user

    async def user_by_name(self, name: str) -> User:
        found = [user for user in self._state.users.values() if name in {user.name, user.id}]
        if len(found) != 1:
            raise NotFound
        return found[0]

    async def disable_user(self, user_id: UserId) -> None:
        await self.change_user((await self.user(user_id)).tenant_id, user_id, UserChange(disabled=True))

    async def change_user(self, tenant_id: TenantId, user_id: UserId, change: UserChange) -> User:
        user = await self.user(user_id)
        if user.tenant_id != tenant_id:
            raise NotFound
        changed = replace(
            user,
            role=user.role if change.role is None else change.role,
            plan=user.plan if change.plan is None else change.plan,
            disabled=user.disabled if change.disabled is None else change.disabled,
        )
        if changed.disabled or changed.role is not UserRole.OWNER:
            self._check_owner_is_left(user)
        self._state.users[user_id] = changed
        if changed.disabled:
            self._end_entries(user_id, keep=None)
        return changed

    async def delete_user(self, user_id: UserId) -> None:
        state = self._state
        user = await self.user(user_id)
        self._check_owner_is_left(user)
        state.users[user_id] = replace(user, name=user.id, disabled=True)
        state.passwords.pop(user_id, None)
        state.identities = {identity: one for identity, one in state.identities.items() if one != user_id}
        self._end_entries(user_id, keep=None)
        state.keys = {name: one for name, one in state.keys.items() if one.key.user_id != user_id}

    def _check_owner_is_left(self, leaving: User) -> None:
        if leaving.role is UserRole.OWNER and not any(
            one.role is UserRole.OWNER and not one.disabled and one.id != leaving.id for one in self._state.users.values()
        ):
            raise Conflict(LAST_OWNER)

    def _end_entries(self, user_id: UserId, *, keep: bytes | None) -> None:
        state = self._state
        state.sessions = {token: one for token, one in state.sessions.items() if one.user_id != user_id or token == keep}
        state.links = {token: one for token, one in state.links.items() if one.user_id != user_id}

    async def set_password(self, user_id: UserId, encoded: str, *, keep: bytes | None) -> None:
        await self.user(user_id)
        self._state.passwords[user_id] = encoded
        self._end_entries(user_id, keep=keep)

    async def password(self, user_id: UserId) -> str | None:
        return self._state.passwords.get(user_id)

    async def password_of(self, name: str, tenant: str | None) -> Password | None:
        state = self._state
        found = [
            Password(user, state.passwords[user.id])
            for user in state.users.values()
            if user.name == name
            and not user.disabled
            and user.id in state.passwords
            and (tenant is None or state.tenants[user.tenant_id].name == tenant)
        ]
        return found[0] if len(found) == 1 else None

    async def open_session(self, session: Session) -> None:
        if (await self.user(session.user_id)).disabled:
            raise NotFound
        stored = StoredToken(session.user_id, session.expires_at, session.created_at, session.agent)
        self._state.sessions[session.token_sha256] = stored

    async def sessions(self, user_id: UserId, *, now: datetime) -> tuple[Session, ...]:
        found = (
            Session(token, user_id, one.created_at or one.expires_at, one.expires_at, one.agent)
            for token, one in self._state.sessions.items()
            if one.user_id == user_id and one.expires_at > now
        )
        return tuple(sorted(found, key=lambda session: (session.created_at, session.token_sha256)))

    async def create_link(self, token_sha256: bytes, user_id: UserId, *, expires_at: datetime) -> None:
        await self.user(user_id)
        self._state.links[token_sha256] = StoredToken(user_id, expires_at)

    async def redeem_link(
        self, token_sha256: bytes, session_sha256: bytes, *, now: datetime, expires_at: datetime, agent: str = ""
    ) -> User | None:
        link = self._state.links.get(token_sha256)
        if link is None or link.expires_at <= now:
            return None
        user = self._state.users[link.user_id]
        if user.disabled:
            return None
        del self._state.links[token_sha256]
        self._state.sessions[session_sha256] = StoredToken(user.id, expires_at, now, agent)
        return user

    async def session(self, token_sha256: bytes, *, now: datetime) -> SessionOwner | None:
        session = self._state.sessions.get(token_sha256)
        if session is None or session.expires_at <= now:
            return None
        user = self._state.users[session.user_id]
        return None if user.disabled else SessionOwner(user, session.expires_at)

    async def end_session(self, token_sha256: bytes) -> None:
        self._state.sessions.pop(token_sha256, None)

    async def create_key(self, key: ApiKey, secret_sha256: bytes) -> None:
        user = await self.user(key.user_id)
        if user.tenant_id != key.tenant_id:
            raise NotFound
        if key.id in self._state.keys:
            raise Conflict
        self._state.keys[key.id] = StoredKey(key, secret_sha256)

    async def key(self, secret_sha256: bytes) -> KeyOwner | None:
        stored = next((one for one in self._state.keys.values() if one.secret_sha256 == secret_sha256), None)
        if stored is None or stored.key.revoked_at is not None:
            return None
        user = self._state.users[stored.key.user_id]
        return None if user.disabled else KeyOwner(user, stored.key, stored.secret_sha256)

    async def keys(self, tenant_id: TenantId, user_id: UserId | None) -> tuple[ApiKey, ...]:
        keys = (
            stored.key
            for stored in self._state.keys.values()
            if stored.key.tenant_id == tenant_id and (user_id is None or stored.key.user_id == user_id)
        )
        return tuple(sorted(keys, key=lambda key: (key.created_at, key.id)))

    async def revoke_key(self, tenant_id: TenantId, key_id: KeyId, *, now: datetime) -> None:
        stored = self._state.keys.get(key_id)
        if stored is None or stored.key.tenant_id != tenant_id:
            raise NotFound
        if stored.key.revoked_at is None:
            self._state.keys[key_id] = replace(stored, key=replace(stored.key, revoked_at=now))


def _oldest_users(users: Iterable[User]) -> tuple[User, ...]:
    return tuple(sorted(users, key=lambda user: (user.created_at, user.id)))
