"""The books of generations that no row tells of: completions, and what the server asks of models for itself.

A usage record is opened as soon as there is a token, kept up to date while more come, and closed when the engine has ended. What a
server that died left open is closed by the next one as far as it was kept: estimated, and never more than was computed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import structlog

from antiphon.core.allowance import Customer, Serving
from antiphon.core.clock import Clock
from antiphon.core.generation import GenerationStatus, Usage
from antiphon.core.ids import ConversationId, GenerationId
from antiphon.core.usage import Purpose, UsageRecord, usage_json
from antiphon.engines.base import EngineEvent, Finished, Prefilling, Tokens
from antiphon.orchestrator.allowances import Allowances, Ended
from antiphon.orchestrator.ending import Meter, as_reported
from antiphon.orchestrator.pace import is_outage, persist
from antiphon.orchestrator.settings import Timing
from antiphon.stores.generations.base import Generations

log = structlog.get_logger(__name__)

_CLOSED_AT_ONCE = 200
_MISSED_ROUNDS = 4
"""So often a server fails to keep its records up to date before they count as left."""


_WAITED_S = 0.25


@dataclass(frozen=True, slots=True)
class Account:
    """Who is charged for a generation, for what, and what served it."""

    generation_id: GenerationId
    customer: Customer
    serving: Serving
    conversation_id: ConversationId | None = None
    purpose: Purpose = Purpose.ANSWER

    def record(self, usage: Usage, *, finish_reason: str | None, estimated: bool, at: datetime) -> UsageRecord:
        customer, serving = self.customer, self.serving
        return UsageRecord(
            generation_id=self.generation_id,
            tenant_id=customer.tenant_id,
            user_id=customer.user_id,
            key_id=customer.key_id,
            conversation_id=self.conversation_id,
            model=serving.model,
            requested_model=serving.model,
            pool=serving.pool,
            release=None,
            plan=customer.plan.name,
            usage=usage,
            finish_reason=finish_reason,
            estimated=estimated,
            finished_at=at,
            purpose=self.purpose,
        )


@dataclass(slots=True)
class Books:
    """Of one process. ``run_for_ever`` beside whatever opens records."""

    generations: Generations
    allowances: Allowances
    clock: Clock
    timing: Timing
    _open: dict[GenerationId, OpenRecord] = field(default_factory=dict["GenerationId", "OpenRecord"])
    _keeping: set[asyncio.Task[None]] = field(default_factory=set["asyncio.Task[None]"])
    _store_ahead: timedelta | None = None
    _new: list[OpenRecord] = field(default_factory=list["OpenRecord"])
    _next_kept: asyncio.Task[None] | None = None
    """Tells the store of all that is ``_new``."""

    def open(self, account: Account, *, prompt_tokens: int) -> OpenRecord:
        """A record that nothing is known of yet; whoever opens it closes it."""
        return OpenRecord(self, account, prompt_tokens)

    async def run_for_ever(self) -> None:
        """Keep what is open up to date, and close what other servers left. An outage of the store is waited out."""
        told = False
        while True:
            await asyncio.sleep(self.timing.checkpoint_seconds)
            try:
                await self.keep()
                await self.close_left(unkept_for=self._patience())
                told = False
            except Exception as error:  # a fault of ours ends no bookkeeping
                if not told:
                    told = True
                    log.warning("usage_not_kept", error=type(error).__name__, exc_info=not is_outage(error))

    async def keep(self) -> None:
        """Note in the store how far all that is open has got."""
        if self._open:
            now = await self._store_now(anew=True)
            records = [one.so_far(now) for one in self._open.values()]  # what was closed meanwhile is not opened again
            if records:
                await self.generations.keep_usage(records, now=now)

    async def close_left(self, *, unkept_for: timedelta) -> int:
        """Close what nobody has kept for so long; returns how many records that were."""
        left, before = 0, await self._store_now(anew=True) - unkept_for
        while records := await self.generations.left_usage(before=before, limit=_CLOSED_AT_ONCE):
            for record in records:
                ended = Ended(record.generation_id, GenerationStatus.FAILED, record.usage, record.finished_at)
                cost = self.allowances.cost(Serving(record.pool, record.model), ended)
                payload = usage_json(replace(record, usage=replace(record.usage, cost=cost)))
                await self.generations.add_usage(record.tenant_id, record.generation_id, payload, now=self.clock.now())
            left += len(records)
        if left:
            log.info("usage_closed", records=left)
        return left

    def began(self, record: OpenRecord) -> asyncio.Task[None]:
        """There is something to lose: the store is told at once."""
        self._open[record.account.generation_id] = record
        if not self._new:
            keeping = asyncio.create_task(self._keep_new(), name="usage records")
            self._keeping.add(keeping)
            keeping.add_done_callback(self._keeping.discard)
            self._next_kept = keeping
        self._new.append(record)
        assert self._next_kept is not None
        return self._next_kept

    def ended(self, record: OpenRecord) -> None:
        """It is closed. Kept once more meanwhile, it is closed once more, which adds nothing."""
        self._open.pop(record.account.generation_id, None)

    async def _keep_new(self) -> None:
        """All that have begun in one turn of the loop: the first tokens of a step come together."""
        new, self._new = self._new, []
        try:
            now = await self._store_now()
            records = [record.so_far(now) for record in new if record.account.generation_id in self._open]
            if records:
                await self.generations.keep_usage(records, now=now)
        except Exception as error:  # noqa: BLE001 - the next round tries again
            log.warning("usage_not_kept", generations=len(new), error=type(error).__name__)

    async def _store_now(self, *, anew: bool = False) -> datetime:
        """The store's time; it is asked once a round, and its clock goes like ours between."""
        if self._store_ahead is None or anew:
            self._store_ahead = await self.generations.now() - self.clock.now()
        return self.clock.now() + self._store_ahead

    def _patience(self) -> timedelta:
        return timedelta(seconds=max(self.timing.lease_seconds, _MISSED_ROUNDS * self.timing.checkpoint_seconds))


class OpenRecord:
    """What one generation has cost so far, by what its engine says and by our own count until then."""

    def __init__(self, books: Books, account: Account, prompt_tokens: int) -> None:
        self.account = account
        self.finished: Finished | None = None
        self._books = books
        self._meter = Meter(books.clock)
        self._meter.asked(prompt_tokens, base_tokens=0, earlier_tokens=0)
        self._begun = False
        self._first_kept: asyncio.Task[None] | None = None

    @property
    def begun(self) -> bool:
        """Whether an engine has done anything."""
        return self._begun

    @property
    def usage(self) -> Usage:
        return self._meter.measured() if self.finished is None else as_reported(self.finished.usage)

    def note(self, event: EngineEvent) -> bool:
        """Count what came; whether it brought the first token."""
        self._begun = True
        match event:
            case Prefilling(done_tokens):
                self._meter.prefilled(done_tokens)
            case Finished():
                self.finished = event
            case Tokens(token_ids):
                self._meter.sampled(len(token_ids))
                if self._first_kept is None:
                    self._first_kept = self._books.began(self)
                    return True
        return False

    async def kept(self) -> None:
        """Return when the store knows of the record: from the second token on nothing is handed on before, but where the store is slow."""
        if self._first_kept is not None and not self._first_kept.done():
            await asyncio.wait((self._first_kept,), timeout=_WAITED_S)

    def so_far(self, now: datetime) -> UsageRecord:
        """What would be billed if nothing more came."""
        return self.account.record(self.usage, finish_reason=None, estimated=True, at=now)

    async def close(self, status: GenerationStatus) -> None:
        """Store what it cost, through any outage of the store, and charge it: an answer to its limits, other work to budgets alone."""
        books, account = self._books, self.account
        now = books.clock.now()
        ended = Ended(account.generation_id, status, self.usage, now)
        ended = replace(ended, usage=replace(ended.usage, cost=books.allowances.cost(account.serving, ended)))
        reason = None if self.finished is None else self.finished.reason.value
        record = account.record(ended.usage, finish_reason=reason, estimated=self.finished is None, at=now)
        charge = books.allowances.settle if account.purpose is Purpose.ANSWER else books.allowances.charge
        try:
            await persist(
                lambda: books.generations.add_usage(record.tenant_id, record.generation_id, usage_json(record), now=now),
                what="add_usage",
                forever=True,
            )
        finally:
            books.ended(self)  # until here it is kept: in an outage nobody takes it for a dead server's
            await charge(account.customer, account.serving, ended)
