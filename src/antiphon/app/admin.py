"""Accounts as the commands manage them: short writers beside a server that may be running."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from antiphon.app.config import Config
from antiphon.app.data_folder import DataFolder
from antiphon.app.system import SystemClock, SystemIds
from antiphon.app.wiring import open_stores
from antiphon.core.clock import Clock
from antiphon.core.errors import FieldFault, InvalidRequest, NotFound
from antiphon.core.ids import IdKind, IdSource, KeyId, TenantId, UserId
from antiphon.core.plans import OWNER_PLAN
from antiphon.core.tenancy import ApiKey, Band, Scope, Tenant, User, UserRole
from antiphon.edge.auth import new_api_key, new_token
from antiphon.edge.passwords import check_new_password, encode_password, new_hasher
from antiphon.stores.accounts.base import Accounts, UserChange

LINK_LIFETIME = timedelta(days=1)
OWNER_NAME = "owner"
HOME_TENANT = "home"


@dataclass(frozen=True, slots=True)
class Admin:
    """Users, keys and links of one installation. People are named by name or id; nobody named means the owner.

    Every method may raise ``NotFound``, ``Conflict`` and the store's errors.
    """

    accounts: Accounts
    config: Config
    clock: Clock
    ids: IdSource

    async def owner(self) -> User:
        """The installation's owner, made with its tenant on the first call."""
        now = self.clock.now()
        tenant = Tenant(TenantId(self.ids.new(IdKind.TENANT)), HOME_TENANT, now)
        built_in = any(plan is OWNER_PLAN for plan in self.config.plans)
        plan = OWNER_PLAN.name if built_in else self.config.default_plan
        owner = User(UserId(self.ids.new(IdKind.USER)), tenant.id, OWNER_NAME, UserRole.OWNER, plan, disabled=False, created_at=now)
        return await self.accounts.ensure_owner(tenant, owner)

    async def create_tenant(self, name: str) -> TenantId:
        tenant = Tenant(TenantId(self.ids.new(IdKind.TENANT)), name, self.clock.now())
        await self.accounts.create_tenant(tenant)
        return tenant.id

    async def tenants(self) -> tuple[Tenant, ...]:
        return await self.accounts.tenants()

    async def create_user(self, name: str, *, tenant: str | None, plan: str | None, role: UserRole) -> UserId:
        """Raises ``InvalidRequest`` for a plan that is not configured."""
        plan = plan or self.config.default_plan
        if plan not in {known.name for known in self.config.plans}:
            raise InvalidRequest([FieldFault("plan", "unknown")], f"There is no plan {plan!r}.")
        tenant_id = (await self.owner()).tenant_id if tenant is None else await self._tenant_id(tenant)
        user = User(UserId(self.ids.new(IdKind.USER)), tenant_id, name, role, plan, disabled=False, created_at=self.clock.now())
        await self.accounts.create_user(user)
        return user.id

    async def users(self, *, tenant: str | None) -> tuple[User, ...]:
        return await self.accounts.users(None if tenant is None else await self._tenant_id(tenant))

    async def disable_user(self, user: str) -> None:
        await self.accounts.disable_user((await self._user(user)).id)

    async def enable_user(self, user: str) -> None:
        holder = await self._user(user)
        await self.accounts.change_user(holder.tenant_id, holder.id, UserChange(disabled=False))

    async def set_password(self, password: str, *, user: str | None) -> None:
        """Every session and link of theirs ends. Raises ``InvalidRequest`` for a password that will not do."""
        holder = await self._user(user)
        check_new_password(password, name=holder.name)
        encoded = await asyncio.to_thread(encode_password, new_hasher(), password)
        await self.accounts.set_password(holder.id, encoded, keep=None)

    async def owner_has_password(self) -> bool:
        return await self.accounts.password((await self.owner()).id) is not None

    async def create_key(self, name: str, *, user: str | None, scopes: frozenset[Scope], band: Band | None = None) -> str:
        """The key's text; it is not kept and cannot be shown again."""
        holder = await self._user(user)
        key_id, text, digest, last4 = new_api_key(self.ids)
        key = ApiKey(key_id, holder.tenant_id, holder.id, name, scopes, last4, self.clock.now(), band=band)
        await self.accounts.create_key(key, digest)
        return text

    async def keys(self, *, user: str | None) -> tuple[ApiKey, ...]:
        """Keys of ``user``, of everybody when nobody is named; revoked ones too."""
        if user is not None:
            holder = await self._user(user)
            return await self.accounts.keys(holder.tenant_id, holder.id)
        found: list[ApiKey] = []
        for tenant in await self.accounts.tenants():
            found.extend(await self.accounts.keys(tenant.id, None))
        return tuple(found)

    async def revoke_key(self, key: str) -> None:
        """Revoke the key with that id, whoever holds it; harmless when it is revoked already."""
        for known in await self.keys(user=None):
            if known.id == key:
                await self.accounts.revoke_key(known.tenant_id, KeyId(key), now=self.clock.now())
                return
        raise NotFound(f"There is no key {key!r}.")

    async def link(self, *, user: str | None, url: str) -> str:
        """A one-time sign-in link below ``url``, valid for a day."""
        holder = await self._user(user)
        token, digest = new_token(self.ids)
        await self.accounts.create_link(digest, holder.id, expires_at=self.clock.now() + LINK_LIFETIME)
        return f"{url}/?token={token}"

    async def _user(self, name: str | None) -> User:
        if name is None:
            return await self.owner()
        try:
            return await self.accounts.user_by_name(name)
        except NotFound:
            raise NotFound(f"There is no user {name!r}, or more than one: `antiphon users list` has their ids.") from None

    async def _tenant_id(self, name: str) -> TenantId:
        for tenant in await self.accounts.tenants():
            if name in {tenant.id, tenant.name}:
                return tenant.id
        raise NotFound(f"There is no tenant {name!r}.")


@asynccontextmanager
async def open_admin(config: Config) -> AsyncGenerator[Admin]:
    """Open the accounts of ``config``'s store for as long as the context lasts."""
    async with open_stores(config) as stores:
        yield Admin(stores.accounts, config, SystemClock(), SystemIds())


def server_url(config: Config) -> str:
    """Where people reach the server: its public URL, where the running one says it listens, else where it would. Blocking."""
    if config.server.public_url:
        return config.server.public_url
    return DataFolder(config.data_dir).server_url() or local_url(config.server.host, config.server.port)


def local_url(host: str, port: int) -> str:
    """An address for a browser on this machine; a wildcard host is reached by the loopback's name."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{reachable}:{port}"
