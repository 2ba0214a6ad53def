"""Watches what accounts do while they do it, and acts on the score: a flag, a throttle, a case for a person to review.

A question's text is never kept, only a fingerprint in memory. People who manage others are left alone: whoever runs the server is in
nobody's way. Every change is stored with its audit entry; reviews made elsewhere are felt within seconds.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import structlog

from antiphon.core.abuse import Case, CaseState
from antiphon.core.allowance import Customer
from antiphon.core.clock import Clock, to_ms
from antiphon.core.errors import AntiphonError, Conflict, NotFound
from antiphon.core.ids import GenerationId, TenantId, UserId
from antiphon.core.tenancy import UserRole
from antiphon.core.usage import Purpose, UsageRecord
from antiphon.governance.abuse_policy import THROTTLE, Activity, Flag, Keep, Lift, Slow, decide, score_of
from antiphon.stores.abuse.base import AbuseCases
from antiphon.stores.accounts.base import Accounts
from antiphon.stores.conversations.base import Owner

log = structlog.get_logger(__name__)

_PERIOD_S = 5.0
_MOST_ACCOUNTS = 10_000
_FINGERPRINTED = 4096
"""Characters of a question that tell it from others."""

_Account = tuple[TenantId, UserId]


class AbuseWatch:
    """``throttles``: flags lead to a throttle; else they are only told."""

    def __init__(self, cases: AbuseCases, accounts: Accounts, clock: Clock, *, throttles: bool = True) -> None:
        self._cases = cases
        self._accounts = accounts
        self._clock = clock
        self._throttles = throttles
        self._activities: OrderedDict[_Account, Activity] = OrderedDict()
        self._stirred: set[_Account] = set()
        self._open: dict[_Account, Case] = {}
        self._throttled: frozenset[UserId] = frozenset()

    def began(self, customer: Customer, generation_id: GenerationId, conversation: str, asked: str) -> None:
        """See ``core.abuse.Watch``."""
        self._activity(customer).began(
            to_ms(self._clock.now()), conversation=conversation or generation_id, key=customer.key_id, asked=_fingerprint(asked)
        )

    def ran(self, customer: Customer, ended_at: datetime, ran_ms: int) -> None:
        """See ``core.abuse.Watch``."""
        self._activity(customer).ran(to_ms(ended_at), ran_ms)

    def recall(self, records: Sequence[UsageRecord]) -> None:
        """What was done before a restart, oldest first; the questions are forgotten."""
        for record in (one for one in records if one.purpose is Purpose.ANSWER):
            activity = self._activity_of((record.tenant_id, record.user_id))
            usage, ended_ms = record.usage, to_ms(record.finished_at)
            ran_ms = usage.prefill_ms + usage.decode_ms
            conversation = record.conversation_id or record.generation_id
            activity.began(ended_ms - ran_ms - usage.queued_ms, conversation=conversation, key=record.key_id, asked=None)
            activity.ran(ended_ms, ran_ms)

    def throttle_of(self, user_id: UserId) -> int:
        """By what the account's rates are divided now; 1 for nearly everybody."""
        return THROTTLE if user_id in self._throttled else 1

    async def run_for_ever(self) -> None:
        """Look every few seconds until cancelled; what cannot be read or written now is looked at again."""
        while True:
            try:
                await self.refresh()
            except AntiphonError as outage:
                log.warning("abuse_not_looked_at", reason=outage.code)
            await asyncio.sleep(_PERIOD_S)

    async def refresh(self) -> None:
        """Read what others decided, and decide on every account that did something. Raises ``StoreUnavailable``, ``DiskFull``."""
        self._open = {(case.tenant_id, case.user_id): case for case in await self._cases.open()}
        stirred, self._stirred = self._stirred, set()
        for account in sorted(stirred | self._open.keys()):
            try:
                await self._look(account)
            except Conflict:
                self._stirred.add(account)  # somebody reviewed it just now
            except NotFound:
                self._activities.pop(account, None)
            except AntiphonError:
                self._stirred |= stirred
                raise
        self._throttled = frozenset(user for (_, user), case in self._open.items() if case.state is CaseState.THROTTLED)

    def check(self) -> None:
        """Raises ``AssertionError`` where a bound is broken."""
        assert len(self._activities) <= _MOST_ACCOUNTS
        for activity in self._activities.values():
            activity.check()

    # --- inside -------------------------------------------------------------------------------

    async def _look(self, account: _Account) -> None:
        now, case = self._clock.now(), self._open.get(account)
        signals = self._activities.get(account, Activity()).signals(to_ms(now))
        score = score_of(signals)
        decision = decide(case, score, now)
        if isinstance(decision, Keep) or (isinstance(decision, Slow) and not self._throttles):
            return
        tenant_id, user_id = account
        if isinstance(decision, Flag) and (await self._accounts.user(user_id)).role is not UserRole.MEMBER:
            return
        state, action = _STEPS[type(decision)]
        loud = tuple(signal for signal in signals if signal.level > 0)
        before = case or Case(tenant_id, user_id, CaseState.CLEAR, 0, (), now, version=0)
        changed = replace(
            before, state=state, score=score, signals=loud, since=now, version=before.version + 1, reviewed_by=None, trusted_until=None
        )
        await self._cases.put(changed, Owner(tenant_id, user_id), action, now=now, by_server=True)
        log.warning(action, tenant_id=tenant_id, user_id=user_id, score=round(score, 2), signals=[signal.name for signal in loud])
        self._open[account] = changed

    def _activity(self, customer: Customer) -> Activity:
        account = (customer.tenant_id, customer.user_id)
        self._stirred.add(account)
        return self._activity_of(account)

    def _activity_of(self, account: _Account) -> Activity:
        activity = self._activities.pop(account, None) or Activity()
        self._activities[account] = activity
        while len(self._activities) > _MOST_ACCOUNTS:
            self._activities.popitem(last=False)
        return activity


_STEPS = {
    Flag: (CaseState.FLAGGED, "abuse.flag"),
    Slow: (CaseState.THROTTLED, "abuse.throttle"),
    Lift: (CaseState.CLEAR, "abuse.lift"),
}


def _fingerprint(asked: str) -> str:
    words = " ".join(asked[:_FINGERPRINTED].casefold().split())
    return hashlib.blake2b(words.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
