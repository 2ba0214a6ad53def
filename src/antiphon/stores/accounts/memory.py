"""Accounts in memory: the reference driver."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from antiphon.core.errors import Conflict, NotFound
from antiphon.core.ids import KeyId, TenantId, UserId
from antiphon.core.tenancy import ApiKey, Tenant, User, UserRole
from antiphon.stores.accounts.base import LAST_OWNER, KeyOwner, SessionOwner
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
        self._state.users[user_id] = replace(await self.user(user_id), disabled=True)

    async def delete_user(self, user_id: UserId) -> None:
        state = self._state
        user = await self.user(user_id)
        if user.role is UserRole.OWNER and not any(
            one.role is UserRole.OWNER and not one.disabled and one.id != user_id for one in state.users.values()
        ):
            raise Conflict(LAST_OWNER)
        state.users[user_id] = replace(user, name=user.id, disabled=True)
        state.sessions = {token: one for token, one in state.sessions.items() if one.user_id != user_id}
        state.links = {token: one for token, one in state.links.items() if one.user_id != user_id}
        state.keys = {name: one for name, one in state.keys.items() if one.key.user_id != user_id}

    async def create_link(self, token_sha256: bytes, user_id: UserId, *, expires_at: datetime) -> None:
        await self.user(user_id)
        self._state.links[token_sha256] = StoredToken(user_id, expires_at)

    async def redeem_link(self, token_sha256: bytes, session_sha256: bytes, *, now: datetime, expires_at: datetime) -> User | None:
        link = self._state.links.get(token_sha256)
        if link is None or link.expires_at <= now:
            return None
        user = self._state.users[link.user_id]
        if user.disabled:
            return None
        del self._state.links[token_sha256]
        self._state.sessions[session_sha256] = StoredToken(user.id, expires_at)
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

    async def key(self, key_id: KeyId) -> KeyOwner | None:
        stored = self._state.keys.get(key_id)
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
