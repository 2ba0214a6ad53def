"""Accounts on SQL. Secrets, links and user ids name their tenant themselves, so their look-ups go across tenants."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from antiphon.core.clock import from_ms, to_ms
from antiphon.core.errors import Conflict, NotFound
from antiphon.core.ids import KeyId, TenantId, UserId
from antiphon.core.tenancy import ApiKey, Tenant, User, UserRole
from antiphon.stores.accounts.base import LAST_OWNER, KeyOwner, SessionOwner
from antiphon.stores.sql import rows
from antiphon.stores.sql.base import Database, across_tenants
from antiphon.stores.sql.tables import api_keys, links, sessions, tenants, users


class SqlAccounts:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def ensure_owner(self, tenant: Tenant, user: User) -> User:
        def ensure(tx: sa.Connection) -> User:
            owners = sa.select(users).where(users.c.role == UserRole.OWNER.value).order_by(users.c.created_at, users.c.id).limit(1)
            oldest = tx.execute(across_tenants(owners, "ensure_owner")).one_or_none()
            if oldest is not None:
                return rows.user_of(oldest)
            if not _has_tenant(tx, tenant.id):
                _insert_tenant(tx, tenant)
            _insert_user(tx, user)
            return user

        return await self._db.write(ensure)

    async def create_tenant(self, tenant: Tenant) -> None:
        await self._db.write(lambda tx: _insert_tenant(tx, tenant))

    async def tenants(self) -> tuple[Tenant, ...]:
        query = across_tenants(sa.select(tenants).order_by(tenants.c.created_at, tenants.c.tenant_id), "tenants")
        return tuple(rows.tenant_of(row) for row in await self._db.read(lambda tx: tx.execute(query).all()))

    async def create_user(self, user: User) -> None:
        await self._db.write(lambda tx: _insert_user(tx, user))

    async def users(self, tenant_id: TenantId | None) -> tuple[User, ...]:
        query = sa.select(users).order_by(users.c.created_at, users.c.id)
        query = across_tenants(query, "users") if tenant_id is None else query.where(users.c.tenant_id == tenant_id)
        return tuple(rows.user_of(row) for row in await self._db.read(lambda tx: tx.execute(query).all()))

    async def user(self, user_id: UserId) -> User:
        return await self._db.read(lambda tx: _select_user(tx, user_id))

    async def user_by_name(self, name: str) -> User:
        query = across_tenants(sa.select(users).where(sa.or_(users.c.name == name, users.c.id == name)).limit(2), "user_by_name")
        found = await self._db.read(lambda tx: tx.execute(query).all())
        if len(found) != 1:
            raise NotFound
        return rows.user_of(found[0])

    async def disable_user(self, user_id: UserId) -> None:
        def disable(tx: sa.Connection) -> None:
            user = _select_user(tx, user_id)
            tx.execute(users.update().where(users.c.tenant_id == user.tenant_id, users.c.id == user.id).values(disabled=1))

        await self._db.write(disable)

    async def delete_user(self, user_id: UserId) -> None:
        owners = sa.select(users.c.id).where(users.c.role == UserRole.OWNER.value, users.c.disabled == 0)

        def end(tx: sa.Connection) -> None:
            user = _select_user(tx, user_id)
            if user.role is UserRole.OWNER and not {*tx.execute(across_tenants(owners, "delete_user")).scalars()} - {user_id}:
                raise Conflict(LAST_OWNER)
            for table in (sessions, links, api_keys):
                tx.execute(table.delete().where(table.c.tenant_id == user.tenant_id, table.c.user_id == user.id))
            named = users.update().where(users.c.tenant_id == user.tenant_id, users.c.id == user.id)
            tx.execute(named.values(name=user.id, disabled=1))

        await self._db.write(end)

    async def create_link(self, token_sha256: bytes, user_id: UserId, *, expires_at: datetime) -> None:
        def insert(tx: sa.Connection) -> None:
            user = _select_user(tx, user_id)
            made = {"token_sha256": token_sha256, "tenant_id": user.tenant_id, "user_id": user.id, "expires_at": to_ms(expires_at)}
            tx.execute(links.insert().values(made))

        await self._db.write(insert)

    async def redeem_link(self, token_sha256: bytes, session_sha256: bytes, *, now: datetime, expires_at: datetime) -> User | None:
        def redeem(tx: sa.Connection) -> User | None:
            query = sa.select(links).where(links.c.token_sha256 == token_sha256).with_for_update()
            link = tx.execute(across_tenants(query, "redeem_link")).one_or_none()
            if link is None or link.expires_at <= to_ms(now):
                return None
            user = _select_user(tx, link.user_id)
            if user.disabled:
                return None
            _drop_used_and_expired(tx, user, token_sha256, now)
            tx.execute(
                sessions.insert().values(
                    token_sha256=session_sha256,
                    tenant_id=user.tenant_id,
                    user_id=user.id,
                    created_at=to_ms(now),
                    expires_at=to_ms(expires_at),
                )
            )
            return user

        return await self._db.write(redeem)

    async def session(self, token_sha256: bytes, *, now: datetime) -> SessionOwner | None:
        query = (
            sa.select(users, sessions.c.expires_at)
            .join(sessions, sa.and_(sessions.c.tenant_id == users.c.tenant_id, sessions.c.user_id == users.c.id))
            .where(sessions.c.token_sha256 == token_sha256, sessions.c.expires_at > to_ms(now), users.c.disabled == 0)
        )
        row = await self._db.read(lambda tx: tx.execute(across_tenants(query, "session")).one_or_none())
        return None if row is None else SessionOwner(rows.user_of(row), from_ms(row.expires_at))

    async def end_session(self, token_sha256: bytes) -> None:
        ended = across_tenants(sessions.delete().where(sessions.c.token_sha256 == token_sha256), "end_session")
        await self._db.write(lambda tx: tx.execute(ended))

    async def create_key(self, key: ApiKey, secret_sha256: bytes) -> None:
        def insert(tx: sa.Connection) -> None:
            if _select_user(tx, key.user_id).tenant_id != key.tenant_id:
                raise NotFound
            tx.execute(api_keys.insert().values(rows.key_values(key, secret_sha256)))

        try:
            await self._db.write(insert)
        except IntegrityError as error:
            raise Conflict from error

    async def key(self, key_id: KeyId) -> KeyOwner | None:
        def load(tx: sa.Connection) -> KeyOwner | None:
            living = sa.select(api_keys).where(api_keys.c.id == key_id, api_keys.c.revoked_at.is_(None))
            row = tx.execute(across_tenants(living, "key")).one_or_none()
            if row is None:
                return None
            user = _select_user(tx, row.user_id)
            return None if user.disabled else KeyOwner(user, rows.key_of(row), row.secret_sha256)

        return await self._db.read(load)

    async def keys(self, tenant_id: TenantId, user_id: UserId | None) -> tuple[ApiKey, ...]:
        query = sa.select(api_keys).where(api_keys.c.tenant_id == tenant_id).order_by(api_keys.c.created_at, api_keys.c.id)
        if user_id is not None:
            query = query.where(api_keys.c.user_id == user_id)
        return tuple(rows.key_of(row) for row in await self._db.read(lambda tx: tx.execute(query).all()))

    async def revoke_key(self, tenant_id: TenantId, key_id: KeyId, *, now: datetime) -> None:
        def revoke(tx: sa.Connection) -> None:
            named = (api_keys.c.tenant_id == tenant_id, api_keys.c.id == key_id)
            first = sa.func.coalesce(api_keys.c.revoked_at, to_ms(now))
            if tx.execute(api_keys.update().where(*named).values(revoked_at=first)).rowcount != 1:
                raise NotFound

        await self._db.write(revoke)


def _select_user(tx: sa.Connection, user_id: UserId) -> User:
    row = tx.execute(across_tenants(sa.select(users).where(users.c.id == user_id), "user")).one_or_none()
    if row is None:
        raise NotFound
    return rows.user_of(row)


def _has_tenant(tx: sa.Connection, tenant_id: TenantId) -> bool:
    return tx.execute(sa.select(tenants.c.tenant_id).where(tenants.c.tenant_id == tenant_id)).first() is not None


def _insert_tenant(tx: sa.Connection, tenant: Tenant) -> None:
    try:
        tx.execute(tenants.insert().values(rows.tenant_values(tenant)))
    except IntegrityError as error:
        raise Conflict("There is a tenant of that name.") from error


def _insert_user(tx: sa.Connection, user: User) -> None:
    if not _has_tenant(tx, user.tenant_id):
        raise NotFound
    try:
        tx.execute(users.insert().values(rows.user_values(user)))
    except IntegrityError as error:
        raise Conflict("There is a user of that name.") from error


def _drop_used_and_expired(tx: sa.Connection, user: User, token_sha256: bytes, now: datetime) -> None:
    """Burn the link; forget the user's links and sessions that have ended, so that their tables stay small."""
    ended = links.c.expires_at <= to_ms(now)
    own = (links.c.tenant_id == user.tenant_id, links.c.user_id == user.id)
    tx.execute(links.delete().where(*own, sa.or_(links.c.token_sha256 == token_sha256, ended)))
    own = (sessions.c.tenant_id == user.tenant_id, sessions.c.user_id == user.id)
    tx.execute(sessions.delete().where(*own, sessions.c.expires_at <= to_ms(now)))
