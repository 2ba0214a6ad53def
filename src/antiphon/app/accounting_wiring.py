"""From a configuration to limits and accounts: limiter, prices, terms, relay and ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog

from antiphon.app.config import Config
from antiphon.core.abuse import Unwatched
from antiphon.core.clock import Clock
from antiphon.core.errors import ConfigErrors, DiskFull, StoreUnavailable
from antiphon.core.plans import Plan
from antiphon.core.usage import UsageRecord
from antiphon.governance.abuse import AbuseWatch
from antiphon.governance.recall import Recall
from antiphon.governance.relay import Relay
from antiphon.governance.terms import Contracts, Terms, nobody_slowed
from antiphon.orchestrator.allowances import Allowances
from antiphon.stores.abuse.base import AbuseCases
from antiphon.stores.accounts.base import Accounts
from antiphon.stores.custody.base import Custody
from antiphon.stores.generations.base import Generations
from antiphon.stores.limits.base import Limiter
from antiphon.stores.limits.fallback import FallbackLimiter
from antiphon.stores.limits.memory import MemoryLimiter
from antiphon.stores.sql.base import Database
from antiphon.stores.usage.adding import readable_records
from antiphon.stores.usage.base import Feed, Ledger, Outbox, Route
from antiphon.stores.usage.local import LocalRoute
from antiphon.stores.usage.sql import SqlLedger, SqlOutbox

log = structlog.get_logger(__name__)

_MOST_OPEN = 10_000
_WATCHED = timedelta(hours=1)
_BROKER_S = 3.0
"""A start waits no longer for a broker."""


@dataclass(frozen=True, slots=True)
class Keepers:
    """Where people, what is known of them, and what is held against them are kept."""

    accounts: Accounts
    custody: Custody
    cases: AbuseCases


@dataclass(frozen=True, slots=True)
class Accounting:
    """What limits turns and adds up what they used. ``start`` before the first turn, ``background`` beside them, ``close`` last."""

    allowances: Allowances
    ledger: Ledger
    relay: Relay
    terms: Terms
    memory: MemoryLimiter
    route: Route
    feed: Feed | None
    outbox: Outbox
    plans: Mapping[str, Plan]
    shared: Limiter | None
    """Limits of all servers, without the share that is granted while they are away; ``None``: this process has its own."""
    watch: AbuseWatch | None
    """``None``: nobody watches for abuse."""

    async def start(self, generations: Generations) -> None:
        """Bring the ledger up to date and give the limiter in memory the memory of it. Raises ``StoreUnavailable``."""
        if self.watch is not None:
            self.watch.recall(await self.ledger.recent(since=self.allowances.clock.now() - _WATCHED))
            await self.watch.refresh()
        try:
            async with asyncio.timeout(None if self.feed is None else _BROKER_S):
                await self.relay.drain()
                if self.feed is not None:
                    await self.feed.drain()
        except (StoreUnavailable, DiskFull, TimeoutError) as outage:  # people must get at what is stored all the same
            log.warning("usage_waits", reason=type(outage).__name__)
            if self.feed is not None:  # it comes again by the broker, and the ledger will know it
                waiting = await self.outbox.unsent(limit=_MOST_OPEN)
                await self.ledger.put(tuple(readable_records(waiting).values()))
        await self.terms.refresh()
        recall = Recall(self.plans, self.terms.of, self.allowances.clock)
        self.memory.recall(await recall.spent(self.ledger))
        self.memory.hold(recall.held(await generations.opened(limit=_MOST_OPEN)))

    def background(self) -> tuple[Coroutine[object, object, None], ...]:
        """What runs until it is cancelled."""
        feeds = () if self.feed is None else (self.feed.run_for_ever(),)
        watch = () if self.watch is None else (self.watch.run_for_ever(),)
        return (self.relay.run_for_ever(), self.terms.run_for_ever(), *feeds, *watch)

    async def close(self) -> None:
        """Give connections back."""
        await self.allowances.limiter.close()
        await self.route.close()


def accounting_of(config: Config, database: Database, keepers: Keepers, clock: Clock, *, plans: Mapping[str, Plan]) -> Accounting:
    """Build it all; nothing is connected yet. Raises ``ConfigErrors`` where a driver's library is not installed."""
    ledger = SqlLedger(database)
    memory = MemoryLimiter(clock)
    watch = None
    if config.limits.abuse != "off":
        watch = AbuseWatch(keepers.cases, keepers.accounts, clock, throttles=config.limits.abuse == "throttle")
    throttle = nobody_slowed if watch is None else watch.throttle_of
    contracts = Contracts(config.money.budgets, config.money.levels)
    terms = Terms(contracts, ledger, keepers.accounts, keepers.custody, clock, throttle)
    shared = _shared_limiter(config, clock)
    limiter = memory if shared is None else FallbackLimiter(shared, memory, clock, share=config.limits.local_share)
    allowances = Allowances(
        limiter,
        clock,
        prices=config.money.prices,
        terms=terms.of,
        expects_most=config.limits.expects_most,
        watch=watch or Unwatched(),
    )

    async def settle(records: Sequence[UsageRecord]) -> None:
        """A server may have died between the end of a generation and its reconciling; a second time does nothing."""
        await asyncio.gather(*(allowances.settle_again(record, plans.get(record.plan) or Plan(record.plan)) for record in records))

    outbox, (route, feed) = SqlOutbox(database), _route(config, ledger)
    return Accounting(allowances, ledger, Relay(outbox, route, clock, settle), terms, memory, route, feed, outbox, plans, shared, watch)


def _route(config: Config, ledger: Ledger) -> tuple[Route, Feed | None]:
    """How usage gets into ``ledger``, and what fills it at a broker's far end."""
    if config.events.scheme == "local":
        return LocalRoute(ledger), None
    try:
        from antiphon.stores.usage.kafka import KafkaLedgerFeed, KafkaRoute, servers_of
    except ImportError as missing:
        raise ConfigErrors([("events.url", "needs the extra 'kafka': pip install 'antiphon[kafka]'")]) from missing
    servers = servers_of(config.events.url)
    return KafkaRoute(servers), KafkaLedgerFeed(servers, ledger)


def _shared_limiter(config: Config, clock: Clock) -> Limiter | None:
    if config.limits.scheme == "memory":
        return None
    try:
        from antiphon.stores.limits.redis import RedisLimiter
    except ImportError as missing:
        raise ConfigErrors([("limits.url", "needs the extra 'redis': pip install 'antiphon[redis]'")]) from missing
    return RedisLimiter.connect(config.limits.url, clock)
