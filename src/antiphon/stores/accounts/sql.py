"""Accounts on SQL. Secrets, links and user ids name their tenant themselves, so their look-ups go across tenants."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from antiphon.core.clock import from_ms, to_ms
from antiphon.core.errors import Conflict, NotFound
from antiphon.core.ids import KeyId, TenantId, UserId
from antiphon.core.tenancy import ApiKey, Identity, Tenant, User, UserRole
from antiphon.stores.accounts.base import LAST_OWNER, KeyOwner, Password, Session, SessionOwner, UserChange
from antiphon.stores.sql import rows
from antiphon.stores.sql.account_tables import api_keys, identities, links, passwords, sessions
from antiphon.stores.sql.base import Database, across_tenants, stand_alone
from antiphon.stores.sql.tables import tenants, users


class SqlAccounts:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def ensure_owner(self, tenant: Tenant, user: User) -> User:
        def ensure(tx: sa.Connection) -> User:
            stand_alone(tx)
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

    async def create_user_of_identity(self, user: User, identity: Identity) -> None:
        def insert(tx: sa.Connection) -> None:
            _insert_user(tx, user)
            values = {"tenant_id": user.tenant_id, "user_id": user.id, "issuer": identity.issuer, "subject": identity.subject}
            try:
                tx.execute(identities.insert().values(values))
            except IntegrityError as error:
                raise Conflict("This identity is known.") from error

        await self._db.write(insert)

    async def user_of_identity(self, identity: Identity) -> User | None:
        holder = sa.and_(users.c.tenant_id == identities.c.tenant_id, users.c.id == identities.c.user_id)
        known = (identities.c.issuer == identity.issuer, identities.c.subject == identity.subject)
        query = across_tenants(sa.select(users).join(identities, holder).where(*known), "user_of_identity")
        row = await self._db.read(lambda tx: tx.execute(query).one_or_none())
        return None if row is None else rows.user_of(row)

    async def identities(self, user_id: UserId) -> tuple[Identity, ...]:
        theirs = sa.select(identities.c.issuer, identities.c.subject).where(identities.c.user_id == user_id)
        query = across_tenants(theirs.order_by(identities.c.issuer, identities.c.subject), "identities")
        return tuple(Identity(row.issuer, row.subject) for row in await self._db.read(lambda tx: tx.execute(query).all()))

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
        await self._db.write(lambda tx: _change(tx, _hold_user(tx, user_id), UserChange(disabled=True)))

    async def change_user(self, tenant_id: TenantId, user_id: UserId, change: UserChange) -> User:
        def alter(tx: sa.Connection) -> User:
            user = _hold_user(tx, user_id)
            if user.tenant_id != tenant_id:
                raise NotFound
            return _change(tx, user, change)

        return await self._db.write(alter)

    async def delete_user(self, user_id: UserId) -> None:
        def end(tx: sa.Connection) -> None:
            user = _hold_user(tx, user_id)
            _check_owner_is_left(tx, user)
            _end_entries(tx, user, keep=None)
            for table in (passwords, identities, api_keys):
                tx.execute(table.delete().where(table.c.tenant_id == user.tenant_id, table.c.user_id == user.id))
            named = users.update().where(users.c.tenant_id == user.tenant_id, users.c.id == user.id)
            tx.execute(named.values(name=user.id, disabled=1))

        await self._db.write(end)

    async def set_password(self, user_id: UserId, encoded: str, *, keep: bytes | None) -> None:
        def renew(tx: sa.Connection) -> None:
            user = _hold_user(tx, user_id)
            tx.execute(passwords.delete().where(passwords.c.tenant_id == user.tenant_id, passwords.c.user_id == user.id))
            tx.execute(passwords.insert().values(tenant_id=user.tenant_id, user_id=user.id, encoded=encoded))
            _end_entries(tx, user, keep=keep)

        await self._db.write(renew)

    async def password(self, user_id: UserId) -> str | None:
        query = across_tenants(sa.select(passwords.c.encoded).where(passwords.c.user_id == user_id), "user")
        return await self._db.read(lambda tx: tx.execute(query).scalar_one_or_none())

    async def password_of(self, name: str, tenant: str | None) -> Password | None:
        query = (
            sa.select(users, passwords.c.encoded)
            .join(passwords, sa.and_(passwords.c.tenant_id == users.c.tenant_id, passwords.c.user_id == users.c.id))
            .where(users.c.name == name, users.c.disabled == 0)
            .limit(2)
        )
        if tenant is not None:
            query = query.join(tenants, tenants.c.tenant_id == users.c.tenant_id).where(tenants.c.name == tenant)
        found = await self._db.read(lambda tx: tx.execute(across_tenants(query, "password_of")).all())
        return Password(rows.user_of(found[0]), found[0].encoded) if len(found) == 1 else None

    async def open_session(self, session: Session) -> None:
        def insert(tx: sa.Connection) -> None:
            user = _hold_user(tx, session.user_id)
            if user.disabled:
                raise NotFound
            _insert_session(tx, user, session)

        await self._db.write(insert)

    async def sessions(self, user_id: UserId, *, now: datetime) -> tuple[Session, ...]:
        query = (
            sa.select(sessions)
            .where(sessions.c.user_id == user_id, sessions.c.expires_at > to_ms(now))
            .order_by(sessions.c.created_at, sessions.c.token_sha256)
        )
        found = await self._db.read(lambda tx: tx.execute(across_tenants(query, "user")).all())
        return tuple(Session(one.token_sha256, one.user_id, from_ms(one.created_at), from_ms(one.expires_at), one.agent) for one in found)

    async def create_link(self, token_sha256: bytes, user_id: UserId, *, expires_at: datetime) -> None:
        def insert(tx: sa.Connection) -> None:
            user = _hold_user(tx, user_id)
            made = {"token_sha256": token_sha256, "tenant_id": user.tenant_id, "user_id": user.id, "expires_at": to_ms(expires_at)}
            tx.execute(links.insert().values(made))

        await self._db.write(insert)

    async def redeem_link(
        self, token_sha256: bytes, session_sha256: bytes, *, now: datetime, expires_at: datetime, agent: str = ""
    ) -> User | None:
        def redeem(tx: sa.Connection) -> User | None:
            query = sa.select(links).where(links.c.token_sha256 == token_sha256).with_for_update()
            link = tx.execute(across_tenants(query, "redeem_link")).one_or_none()
            if link is None or link.expires_at <= to_ms(now):
                return None
            user = _hold_user(tx, link.user_id)
            if user.disabled:
                return None
            _drop_used_and_expired(tx, user, token_sha256, now)
            _insert_session(tx, user, Session(session_sha256, user.id, now, expires_at, agent))
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
            if _hold_user(tx, key.user_id).tenant_id != key.tenant_id:
                raise NotFound
            tx.execute(api_keys.insert().values(rows.key_values(key, secret_sha256)))

        try:
            await self._db.write(insert)
        except IntegrityError as error:
            raise Conflict from error

    async def key(self, secret_sha256: bytes) -> KeyOwner | None:
        holder = sa.and_(users.c.tenant_id == api_keys.c.tenant_id, users.c.id == api_keys.c.user_id)
        living = (api_keys.c.secret_sha256 == secret_sha256, api_keys.c.revoked_at.is_(None), users.c.disabled == 0)
        query = across_tenants(sa.select(api_keys).join(users, holder).where(*living), "key")

        def load(tx: sa.Connection) -> KeyOwner | None:
            row = tx.execute(query).one_or_none()
            return None if row is None else KeyOwner(_select_user(tx, row.user_id), rows.key_of(row), row.secret_sha256)

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


def _hold_user(tx: sa.Connection, user_id: UserId) -> User:
    """As ``_select_user``, for a write that depends on what it says: nobody changes the user meanwhile."""
    query = sa.select(users).where(users.c.id == user_id).with_for_update(key_share=True)
    row = tx.execute(across_tenants(query, "user")).one_or_none()
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


def _insert_session(tx: sa.Connection, user: User, session: Session) -> None:
    tx.execute(
        sessions.insert().values(
            token_sha256=session.token_sha256,
            tenant_id=user.tenant_id,
            user_id=user.id,
            created_at=to_ms(session.created_at),
            expires_at=to_ms(session.expires_at),
            agent=session.agent,
        )
    )


def _change(tx: sa.Connection, user: User, change: UserChange) -> User:
    changed = replace(
        user,
        role=user.role if change.role is None else change.role,
        plan=user.plan if change.plan is None else change.plan,
        disabled=user.disabled if change.disabled is None else change.disabled,
    )
    if changed.disabled or changed.role is not UserRole.OWNER:
        _check_owner_is_left(tx, user)
    named = users.update().where(users.c.tenant_id == user.tenant_id, users.c.id == user.id)
    tx.execute(named.values(role=changed.role.value, plan=changed.plan, disabled=int(changed.disabled)))
    if changed.disabled:
        _end_entries(tx, user, keep=None)
    return changed


def _check_owner_is_left(tx: sa.Connection, leaving: User) -> None:
    owners = sa.select(users.c.id).where(users.c.role == UserRole.OWNER.value, users.c.disabled == 0).with_for_update()
    if leaving.role is UserRole.OWNER and not {*tx.execute(across_tenants(owners, "delete_user")).scalars()} - {leaving.id}:
        raise Conflict(LAST_OWNER)


def _end_entries(tx: sa.Connection, user: User, *, keep: bytes | None) -> None:
    tx.execute(links.delete().where(links.c.tenant_id == user.tenant_id, links.c.user_id == user.id))
    ended = sessions.delete().where(sessions.c.tenant_id == user.tenant_id, sessions.c.user_id == user.id)
    tx.execute(ended if keep is None else ended.where(sessions.c.token_sha256 != keep))


def _drop_used_and_expired(tx: sa.Connection, user: User, token_sha256: bytes, now: datetime) -> None:
    """Burn the link; forget the user's links and sessions that have ended, so that their tables stay small."""
    ended = links.c.expires_at <= to_ms(now)
    own = (links.c.tenant_id == user.tenant_id, links.c.user_id == user.id)
    tx.execute(links.delete().where(*own, sa.or_(links.c.token_sha256 == token_sha256, ended)))
    own = (sessions.c.tenant_id == user.tenant_id, sessions.c.user_id == user.id)
    tx.execute(sessions.delete().where(*own, sessions.c.expires_at <= to_ms(now)))
