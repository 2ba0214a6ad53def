"""From a configuration to objects: the one module that names concrete drivers."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from antiphon import __version__
from antiphon.app.config import Config
from antiphon.app.data_folder import DataFolder
from antiphon.app.logging import LogFormat
from antiphon.app.models import model_folder
from antiphon.app.system import SystemClock, SystemIds
from antiphon.core.clock import Clock
from antiphon.core.errors import ConfigErrors
from antiphon.core.pools import PoolSpec
from antiphon.edge.metrics import PrometheusTelemetry
from antiphon.edge.services import EdgeServices, ServerState
from antiphon.engines.base import ReplicaSpec, Tokenizer
from antiphon.engines.reference import ReferenceTokenizer
from antiphon.engines.tokenizer import load_tokenizer
from antiphon.inference.gateway import Gateway, PoolRuntime
from antiphon.orchestrator.acceptance import TurnDesk
from antiphon.orchestrator.completion import Completions
from antiphon.orchestrator.ports import Ports
from antiphon.orchestrator.runner import Runner
from antiphon.orchestrator.upkeep import Upkeep
from antiphon.stores.accounts.base import Accounts
from antiphon.stores.accounts.sql import SqlAccounts
from antiphon.stores.conversations.base import Conversations
from antiphon.stores.conversations.sql import SqlConversations
from antiphon.stores.custody.sql import SqlCustody
from antiphon.stores.generations.sql import SqlGenerations
from antiphon.stores.log.base import GenerationLog
from antiphon.stores.log.journal import JournalLog
from antiphon.stores.log.memory import MemoryLog
from antiphon.stores.shares.sql import SqlShares
from antiphon.stores.sql.database import SqliteDatabase
from antiphon.stores.sql.probe import WriteProbe
from antiphon.stores.transfers.base import Transfers
from antiphon.stores.transfers.sql import SqlTransfers

_REFERENCE_ANSWER_TOKENS = 64
_STATIC_FOLDER = Path(__file__).parent.parent / "edge" / "static"


@dataclass(frozen=True, slots=True)
class Server:
    """Everything a serving process holds, open. The gateway's replicas and the runner are not started yet."""

    services: EdgeServices
    gateway: Gateway
    runner: Runner
    accounts: Accounts
    upkeep: Upkeep


@asynccontextmanager
async def open_accounts(config: Config) -> AsyncGenerator[Accounts]:
    """Accounts for a command: a short writer beside a running server. The database is made if there is none."""
    DataFolder(config.data_dir).create()
    database = SqliteDatabase(config.store.sqlite_path)
    await database.open()
    try:
        yield SqlAccounts(database)
    finally:
        await database.close()


@dataclass(frozen=True, slots=True)
class Stores:
    """What a command that moves conversations needs."""

    accounts: Accounts
    conversations: Conversations
    transfers: Transfers


@asynccontextmanager
async def open_stores(config: Config) -> AsyncGenerator[Stores]:
    """Stores for a command, as ``open_accounts``."""
    DataFolder(config.data_dir).create()
    database = SqliteDatabase(config.store.sqlite_path)
    await database.open()
    try:
        yield Stores(SqlAccounts(database), SqlConversations(database), SqlTransfers(database))
    finally:
        await database.close()


@asynccontextmanager
async def open_server(config: Config, log_format: LogFormat) -> AsyncGenerator[Server]:
    """Open store and log, and build every plane over them; closed in the opposite order, whatever happens in between.

    Raises ``ModelUnusable`` for a pool whose model is missing, ``StoreUnavailable`` or ``DiskFull``.
    """
    clock, ids, telemetry = SystemClock(), SystemIds(), PrometheusTelemetry()
    async with AsyncExitStack() as stack:
        pools = await asyncio.to_thread(lambda: tuple(_pool_runtime(spec, config.models_dir) for spec in config.pools))
        database = SqliteDatabase(config.store.sqlite_path)
        await database.open()
        stack.push_async_callback(database.close)
        log = await _open_log(config, clock)
        stack.push_async_callback(log.close)
        gateway = Gateway(pools, clock, telemetry, runtime_dir=_runtime_folder(config.data_dir), log_format=log_format)
        stack.push_async_callback(gateway.close)
        plans = {plan.name: plan for plan in config.plans}
        ports = Ports(
            conversations=SqlConversations(database),
            generations=SqlGenerations(database),
            log=log,
            gateway=gateway,
            plans=plans,
            clock=clock,
            ids=ids,
            timing=config.timing,
            telemetry=telemetry,
            default_output_tokens={pool.name: _REFERENCE_ANSWER_TOKENS for pool in config.pools if pool.engine == "reference"},
        )
        runner = Runner(ports)
        accounts = SqlAccounts(database)
        custody = SqlCustody(database)
        services = EdgeServices(
            accounts=accounts,
            conversations=ports.conversations,
            generations=ports.generations,
            transfers=SqlTransfers(database),
            shares=SqlShares(database),
            custody=custody,
            log=log,
            desk=TurnDesk(ports, runner),
            runner=runner,
            completions=Completions(ports, runner),
            gateway=gateway,
            plans=plans,
            clock=clock,
            ids=ids,
            timing=config.timing,
            telemetry=telemetry,
            public_url=config.server.public_url,
            loopback=is_loopback(config.server.host),
            static_dir=_STATIC_FOLDER,
            version=__version__,
            state=ServerState(store_takes_writes=WriteProbe(database, clock)),
        )
        upkeep = Upkeep(custody, log, clock, purge_seconds=config.timing.purge_seconds)
        yield Server(services=services, gateway=gateway, runner=runner, accounts=accounts, upkeep=upkeep)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    return host in {"localhost", "::1"} or host.startswith("127.")


async def _open_log(config: Config, clock: Clock) -> GenerationLog:
    if config.log.scheme == "memory":
        return MemoryLog(clock, config.timing.log_seconds)
    return await JournalLog.open_folder(DataFolder(config.data_dir).log, clock, config.timing.log_seconds)


def _pool_runtime(spec: PoolSpec, models_folder: Path) -> PoolRuntime:
    """Blocking: reads the pool's tokenizer."""
    if spec.engine == "reference":
        return PoolRuntime(spec, _replica_spec(spec, ""), ReferenceTokenizer(spec.vocabulary))
    if spec.engine == "openvino":
        folder = model_folder(models_folder, spec.model)
        tokenizer: Tokenizer = load_tokenizer(folder)
        return PoolRuntime(spec, _replica_spec(spec, str(folder)), tokenizer)
    raise ConfigErrors([(f"pools.{spec.name}.engine", f"{spec.engine!r} is not available in this version")])


def _replica_spec(spec: PoolSpec, model_path: str) -> ReplicaSpec:
    assert spec.engine in {"openvino", "reference"}
    return ReplicaSpec(
        pool=spec.name,
        engine="reference" if spec.engine == "reference" else "openvino",
        model=spec.model,
        model_path=model_path,
        precision=spec.precision,
        kv_bytes=spec.kv_bytes,
        context_tokens=spec.context_tokens,
        prefill_tokens_per_s=spec.prefill_tokens_per_s,
        output_tokens_per_s=spec.output_tokens_per_s,
        blocks=spec.blocks,
        vocabulary=spec.vocabulary,
    )


def _runtime_folder(data: Path) -> Path:
    """A short private folder for sockets, the same for every start on this data folder, so that a restart finds what to remove."""
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    return base / f"antiphon-{os.getuid()}-{hashlib.sha256(str(data.resolve()).encode()).hexdigest()[:12]}"
