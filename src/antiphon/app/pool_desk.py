"""Adding and removing OpenAI-compatible servers while the server runs: asked first, then kept, then served."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from contextvars import Context
from dataclasses import replace
from errno import ENOSPC

from antiphon.app.added_pools import AddedPools
from antiphon.app.config import Config
from antiphon.app.pool_table import address_fault
from antiphon.app.pool_wiring import outside_runtime
from antiphon.core.errors import Conflict, DiskFull, FieldFault, Forbidden, InvalidRequest, ModelUnusable, NotFound, StoreUnavailable
from antiphon.core.ids import TenantId
from antiphon.core.pools import PoolSpec
from antiphon.edge.pool_desk import AddedPool, OfferedModel
from antiphon.inference.gateway import Gateway
from antiphon.stores.accounts.base import Accounts

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}\Z")
_MOST = 32
"""Each is a process of its own."""
_READY_S, _POLL_S = 10.0, 0.05


class RunningPools:
    """Implements ``PoolDesk`` over the running gateway and the data folder's file. One change at a time."""

    def __init__(self, config: Config, gateway: Gateway, accounts: Accounts) -> None:
        self._config = config
        self._gateway = gateway
        self._accounts = accounts
        self._configured = {spec.name for spec in config.pools if not spec.added}
        self._file = AddedPools(config.data_dir)
        self._changing = asyncio.Lock()
        self._kept: tuple[PoolSpec, ...] | None = None

    async def offers(self, by: TenantId, url: str, key: str) -> tuple[OfferedModel, ...]:
        await self._check(by)
        return await _ask(url, key)

    async def add(self, by: TenantId, pool: AddedPool, key: str) -> AddedPool:
        await self._check(by)
        from antiphon.app.endpoint import pool_name

        name = pool.name or pool_name(pool.model)
        if not _NAME.match(name):
            raise _fault("name", "1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit")
        models = await _ask(pool.url, key)
        if pool.model not in {offered.model for offered in models}:
            listed = ", ".join(offered.model for offered in models[:20]) or "none"
            raise _fault("model", f"The server does not list {pool.model!r}; it lists: {listed}")
        spec = PoolSpec(name=name, model=pool.model, engine="openai", url=pool.url.rstrip("/"), api_key=key, added=True)
        async with self._changing:
            if name in {status.name for status in self._gateway.statuses()}:
                raise Conflict(f"There is a model called {name!r} already; give this one another name.")
            kept = await self._read()
            if len(kept) >= _MOST:
                raise Conflict(f"{_MOST} servers were added; remove one first.")
            await self._keep((*kept, spec))
            Context().run(self._gateway.add, outside_runtime(spec, self._config))  # what it logs later is not about this request
        await self._until_ready(name)
        return replace(pool, name=name, url=spec.url)

    async def _until_ready(self, name: str) -> None:
        """Whoever added it chats with it next; what takes longer shows as loading."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_READY_S):
                while True:
                    if all(status.status == "ready" for status in self._gateway.statuses() if status.name == name):
                        return
                    await asyncio.sleep(_POLL_S)

    async def remove(self, by: TenantId, name: str) -> None:
        if by != await self._home():
            raise NotFound
        async with self._changing:
            if name in self._configured:
                raise Conflict("This model is in the configuration file; it is removed there.")
            kept = await self._read()
            going = next((spec for spec in kept if spec.name == name), None)
            if going is None:
                raise NotFound
            needed = self._needed_by(going)
            if needed:
                raise Conflict(f"The configuration file names this model in {needed}; take it out there first.")
            await self._keep(tuple(spec for spec in kept if spec.name != name))
            await self._gateway.remove(name)

    async def added(self, by: TenantId) -> tuple[AddedPool, ...]:
        if by != await self._home():
            return ()
        return tuple(AddedPool(spec.name, spec.model, spec.url) for spec in await self._read() if spec.name not in self._configured)

    async def _read(self) -> tuple[PoolSpec, ...]:
        """What the file holds; nobody else writes it while the server runs."""
        if self._kept is None:
            self._kept = await asyncio.to_thread(self._file.read)
        return self._kept

    async def _keep(self, pools: tuple[PoolSpec, ...]) -> None:
        try:
            await asyncio.to_thread(self._file.write, pools)
            self._kept = pools
        except OSError as failure:
            raise (DiskFull() if failure.errno == ENOSPC else StoreUnavailable("The data folder cannot be written to.")) from failure

    def _needed_by(self, going: PoolSpec) -> str:
        """The list of the configuration that would name no pool any more without this one; empty where there is none."""
        staying = {name for status in self._gateway.statuses() if status.name != going.name for name in (status.name, status.model)}
        names = {going.name, going.model} - staying
        plans = {model for plan in self._config.plans for model in (*plan.models, *(cap.model for cap in plan.caps))}
        return "[[plans]]" if names & plans else "[[prices]]" if names & self._config.money.prices.prices.keys() else ""

    async def _check(self, by: TenantId) -> None:
        if by != await self._home():
            raise Forbidden("Models are this server's: its own organisation adds and removes them.")

    async def _home(self) -> TenantId:
        return (await self._accounts.tenants())[0].id


async def _ask(url: str, key: str) -> tuple[OfferedModel, ...]:
    from antiphon.app.endpoint import served_models  # its HTTP client is loaded by those alone who ask

    reason = address_fault(url)
    if reason:
        raise _fault("url", reason)
    if any(not " " < letter < "\x7f" for letter in key):
        raise _fault("key", "A key is letters, digits and signs without spaces")
    try:
        return await served_models(url, key)
    except ModelUnusable as failure:
        raise _fault("url", str(failure)) from failure


def _fault(path: str, reason: str) -> InvalidRequest:
    return InvalidRequest([FieldFault(path, reason if reason.endswith(".") else f"{reason}.")])
