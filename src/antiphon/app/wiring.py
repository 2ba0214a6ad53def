"""From a configuration to objects: with ``pool_wiring`` and ``worker`` all that names concrete drivers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import structlog

from antiphon import __version__
from antiphon.app.accounting_wiring import Accounting, Keepers, accounting_of
from antiphon.app.config import Config
from antiphon.app.data_folder import DataFolder
from antiphon.app.pool_desk import RunningPools
from antiphon.app.system import SystemIds
from antiphon.core.clock import Clock
from antiphon.core.errors import ConfigErrors, DiskFull, StoreUnavailable
from antiphon.core.pools import PoolSpec
from antiphon.edge.metrics import PrometheusTelemetry
from antiphon.edge.oidc import OidcProviders, ProviderSettings
from antiphon.edge.passwords import Passwords
from antiphon.edge.services import EdgeServices, ServerState
from antiphon.edge.sign_in_gate import LocalGate, SharedGate
from antiphon.edge.sign_in_pace import SignInPace
from antiphon.engines.static_embedding import static_embedder
from antiphon.inference.gateway import Gateway
from antiphon.orchestrator.acceptance import TurnDesk
from antiphon.orchestrator.background import Background
from antiphon.orchestrator.books import Books
from antiphon.orchestrator.completion import Completions
from antiphon.orchestrator.ports import Ports
from antiphon.orchestrator.response_cache import ResponseCache
from antiphon.orchestrator.runner import Runner
from antiphon.orchestrator.shown_prompt import PromptDesk
from antiphon.orchestrator.upkeep import Temporary, Upkeep
from antiphon.stores.abuse.base import AbuseCases
from antiphon.stores.abuse.sql import SqlAbuseCases
from antiphon.stores.accounts.base import Accounts
from antiphon.stores.accounts.sql import SqlAccounts
from antiphon.stores.conversations.base import Conversations
from antiphon.stores.conversations.memory import MemoryConversations
from antiphon.stores.conversations.sql import SqlConversations
from antiphon.stores.custody.memory import MemoryCustody
from antiphon.stores.custody.sql import SqlCustody
from antiphon.stores.generations.memory import MemoryGenerations
from antiphon.stores.generations.sql import SqlGenerations
from antiphon.stores.log.base import GenerationLog
from antiphon.stores.log.journal import JournalLog
from antiphon.stores.log.memory import MemoryLog
from antiphon.stores.memory import MemoryState
from antiphon.stores.personal.sql import SqlPersonalTexts
from antiphon.stores.prompts.memory import MemoryPrompts
from antiphon.stores.prompts.sql import SqlPrompts
from antiphon.stores.shares.sql import SqlShares
from antiphon.stores.sql.backups import copy_to, put_back
from antiphon.stores.sql.database import Migration, SqlDatabase
from antiphon.stores.sql.postgres import PostgresDatabase
from antiphon.stores.sql.postgres_report import PostgresReport, report_of
from antiphon.stores.sql.probe import WriteProbe
from antiphon.stores.sql.sqlite import SqliteDatabase
from antiphon.stores.temporary import TemporaryConversations, TemporaryGenerations, TemporaryLog, TemporaryPrompts
from antiphon.stores.transfers.base import Transfers
from antiphon.stores.transfers.sql import SqlTransfers
from antiphon.stores.usage.base import Ledger
from antiphon.stores.usage.sql import SqlLedger

_log = structlog.get_logger(__name__)

_REFERENCE_ANSWER_TOKENS = 64
_MOST_RUNNING = 256
"""Generations at once, beside those that wait in the pools' lines."""
_ANY_CLOCK = timedelta(days=1)
"""What is open may be dated later than now, where the clock was set back."""
_STATIC_FOLDER = Path(__file__).parent.parent / "edge" / "static"


def _ends_by_length(pool: PoolSpec) -> bool:
    return pool.engine == "reference" and pool.vocabulary != "echo"


@dataclass(frozen=True, slots=True)
class Server:
    """Everything a serving process holds, open. The runner is not started yet."""

    services: EdgeServices
    gateway: Gateway
    runner: Runner
    accounts: Accounts
    upkeep: Upkeep
    accounting: Accounting
    books: Books


@dataclass(frozen=True, slots=True)
class Stores:
    """What commands need."""

    accounts: Accounts
    conversations: Conversations
    transfers: Transfers
    ledger: Ledger
    cases: AbuseCases


@asynccontextmanager
async def open_stores(config: Config) -> AsyncGenerator[Stores]:
    """Stores for a command: a short writer beside a running server. The database is made if there is none.

    One with an older schema is migrated where no server has the folder; else raises ``DataFolderInUse``.
    """
    folder = DataFolder(config.data_dir)
    folder.create()
    database = _database(config)
    try:
        outdated = await database.outdated()
        if outdated and config.store.scheme != "sqlite":
            raise _older_schema()
        with folder.held() if outdated else nullcontext():
            await database.open()
        yield Stores(
            SqlAccounts(database), SqlConversations(database), SqlTransfers(database), SqlLedger(database), SqlAbuseCases(database)
        )
    finally:
        await database.close()


async def migrate(config: Config) -> Migration:
    """Bring the database up to date, or make it, while no server has it. Raises ``DataFolderInUse`` and as ``SqliteDatabase.migrate``."""
    with DataFolder(config.data_dir).held():
        database = _database(config)
        try:
            return await database.migrate()
        finally:
            await database.close()


async def backup(config: Config, file: Path) -> None:
    """Copy the database into the new ``file``, whoever writes to it meanwhile. Raises as ``copy_to``, and ``ConfigErrors`` for one
    that its own server copies.
    """
    _check_is_file(config, "pg_dump --format=custom --file=FILE")
    await asyncio.to_thread(copy_to, config.store.sqlite_path, file)


async def restore(config: Config, file: Path) -> Path | None:
    """Put a backup in the database's place while no server has it; where what was there is kept.

    Raises ``DataFolderInUse``, and as ``put_back``; ``ConfigErrors`` as ``backup``.

    Journals of the database that was there are removed: they are about other generations.
    """
    _check_is_file(config, "pg_restore --clean --if-exists --dbname=…")
    folder = DataFolder(config.data_dir)
    with folder.held():
        kept = await asyncio.to_thread(put_back, file, config.store.sqlite_path)
        for segment in folder.log.glob("*.seg") if folder.log.is_dir() else ():
            segment.unlink()
        return kept


def postgres_report(config: Config) -> PostgresReport:
    """What the PostgreSQL of a ``postgresql://`` store says of itself. Blocking. Raises as ``report_of``."""
    return report_of(config.store.url)


@asynccontextmanager
async def open_server(config: Config, gateway: Gateway, clock: Clock, telemetry: PrometheusTelemetry) -> AsyncGenerator[Server]:
    """Open store and log, and build the planes above ``gateway``; closed in the opposite order, whatever happens in between.

    Raises ``StoreUnavailable`` or ``DiskFull``.
    """
    ids = SystemIds()
    async with AsyncExitStack() as stack:
        database = _database(config)
        stack.push_async_callback(database.close)
        await _open_database(database)
        state = MemoryState()
        fleeting_log = MemoryLog(clock, config.timing.log_seconds)
        log = TemporaryLog(await _open_log(config, clock), fleeting_log, state)
        stack.push_async_callback(log.close)
        conversations = TemporaryConversations(SqlConversations(database), MemoryConversations(state), state)
        accounts, custody, plans = SqlAccounts(database), SqlCustody(database), config.plans_by_name()
        keepers = Keepers(accounts, custody, SqlAbuseCases(database))
        accounting = accounting_of(config, database, keepers, clock, plans=plans)
        stack.push_async_callback(accounting.close)
        ports = Ports(
            conversations=conversations,
            generations=TemporaryGenerations(SqlGenerations(database), MemoryGenerations(state, clock), state),
            prompts=TemporaryPrompts(SqlPrompts(database), MemoryPrompts(state), state),
            personal=SqlPersonalTexts(database),
            response_cache=ResponseCache(config.starter_prompts),
            embedder=static_embedder(),
            log=log,
            gateway=gateway,
            allowances=accounting.allowances,
            plans=plans,
            clock=clock,
            ids=ids,
            timing=config.timing,
            telemetry=telemetry,
            default_output_tokens={pool.name: _REFERENCE_ANSWER_TOKENS for pool in config.pools if _ends_by_length(pool)},
        )
        await _close_left(ports.books)
        await accounting.start(ports.generations)
        runner = Runner(ports, concurrency=_MOST_RUNNING + sum(pool.queue_limit for pool in config.pools))
        background = Background(ports, runner.planner, config.background)
        runner.on_end, background.on_title = background.after, runner.entitle
        gate = LocalGate(SignInPace(), clock) if accounting.shared is None else SharedGate(accounting.shared, ids)
        passwords = Passwords(accounts, gate, ids, clock)
        stack.callback(passwords.close)
        services = EdgeServices(
            accounts=accounts,
            passwords=passwords,
            conversations=ports.conversations,
            generations=ports.generations,
            transfers=SqlTransfers(database),
            shares=SqlShares(database),
            custody=custody,
            cases=keepers.cases,
            log=log,
            desk=TurnDesk(ports, runner),
            runner=runner,
            completions=Completions(ports, runner),
            prompts=PromptDesk(ports, runner.planner),
            personal=ports.personal,
            background=background,
            gateway=gateway,
            pools=RunningPools(config, gateway, accounts),
            allowances=accounting.allowances,
            ledger=accounting.ledger,
            plans=plans,
            default_plan=config.default_plan,
            clock=clock,
            ids=ids,
            timing=config.timing,
            telemetry=telemetry,
            public_url=config.server.public_url,
            loopback=is_loopback(config.server.host),
            static_dir=_STATIC_FOLDER,
            version=__version__,
            state=ServerState(store_takes_writes=WriteProbe(database, clock)),
            oidc=_oidc(config, clock),
        )
        temporary = Temporary(conversations, MemoryCustody(state))
        upkeep = Upkeep(custody, log, clock, purge_seconds=config.timing.purge_seconds, temporary=temporary)
        yield Server(services, gateway, runner, accounts, upkeep, accounting, ports.books)


def _oidc(config: Config, clock: Clock) -> OidcProviders:
    """Raises ``ConfigErrors``: a provider sends people back to one address, which has to be known."""
    if config.providers and not config.server.public_url and not is_loopback(config.server.host):
        raise ConfigErrors([("server.public_url", "providers send people back to this address; it is missing")])
    settings = (
        ProviderSettings(one.name, one.label, one.issuer, one.client_id, one.secret(), one.domains, one.tenant, config.default_plan)
        for one in config.providers
    )
    return OidcProviders(tuple(settings), clock)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    return host in {"localhost", "::1"} or host.startswith("127.")


async def _close_left(books: Books) -> None:
    """The data folder is ours alone, so all that is open was left. Where the store takes no writes, that can wait."""
    try:
        await books.close_left(unkept_for=-_ANY_CLOCK)
    except (DiskFull, StoreUnavailable) as refusal:
        _log.warning("usage_not_closed", reason=refusal.code)


def _database(config: Config) -> SqlDatabase:
    """Not open yet. Raises ``ConfigErrors`` where a driver's library is not installed."""
    if config.store.scheme == "sqlite":
        return SqliteDatabase(config.store.sqlite_path)
    return PostgresDatabase(config.store.url)


async def _open_database(database: SqlDatabase) -> None:
    """For the one server that works on it. Raises ``ConfigErrors`` where another does, or where people have to migrate first."""
    if isinstance(database, PostgresDatabase):
        await database.hold()
        if await database.outdated():
            raise _older_schema()
    migration = await database.migrate()
    if migration.backup is not None:
        _log.info("migrated", before=migration.before, after=migration.after, backup=str(migration.backup))


def _older_schema() -> ConfigErrors:
    return ConfigErrors([("store.url", "the database has an older schema: copy it (pg_dump), then run antiphon migrate")])


def _check_is_file(config: Config, instead: str) -> None:
    if config.store.scheme != "sqlite":
        raise ConfigErrors([("store.url", f"{config.store.place} is PostgreSQL, which makes and restores its own backups: {instead}")])


async def _open_log(config: Config, clock: Clock) -> GenerationLog:
    if config.log.scheme == "memory":
        return MemoryLog(clock, config.timing.log_seconds)
    return await JournalLog.open_folder(DataFolder(config.data_dir).log, clock, config.timing.log_seconds)
