"""Token fairness between tenants: the virtual token counter of Sheng et al., «Fairness in Serving Large Language Models»,
OSDI 2024, with weights. Pure.

Whoever has been served the least (cost divided by weight) goes first. A tenant that had nothing waiting is lifted to the
least of those who have, so nobody saves up credit while idle. Between two tenants of one band that both always have
something waiting, the difference of served cost stays within ``2 · max(input cost of a prompt, output cost of a batch)``.
"""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.core.tenancy import Band

INPUT_COST = 1.0
OUTPUT_COST = 2.0
CACHED_COST = 0.1
"""Of a prompt token that was found in the cache."""

_MOST_ACCOUNTS = 4096


@dataclass(slots=True, eq=False)
class Account:
    """One tenant in one band. ``served`` is its virtual counter; ``cost`` what it really was served, unweighted."""

    band: Band
    tenant: str
    served: float = 0.0
    cost: float = 0.0
    waiting: int = 0

    def charge(self, cost: float, weight: float) -> None:
        self.served += cost / weight
        self.cost += cost


class FairShare:
    """The accounts of all tenants that have, or lately had, something to do."""

    def __init__(self) -> None:
        self._accounts: dict[Band, dict[str, Account]] = {band: {} for band in Band}
        self._last_left: dict[Band, float] = dict.fromkeys(Band, 0.0)

    def account(self, band: Band, tenant: str) -> Account:
        """The tenant's account in this band; a new one has been served nothing."""
        accounts = self._accounts[band]
        account = accounts.get(tenant)
        if account is None:
            if len(accounts) >= _MOST_ACCOUNTS:
                self._forget_idle(accounts)
            account = accounts[tenant] = Account(band, tenant)
        return account

    def enter(self, band: Band, tenant: str) -> Account:
        """A request begins to wait; the account it is charged to."""
        account = self.account(band, tenant)
        if account.waiting == 0:
            others = [other.served for other in self._accounts[band].values() if other.waiting]
            account.served = max(account.served, min(others, default=self._last_left[band]))
        account.waiting += 1
        return account

    def rejoin(self, account: Account) -> None:
        """A request that was started waits again; its tenant is not lifted for it."""
        account.waiting += 1

    def leave(self, account: Account) -> None:
        """A request waits no longer: it was started, or it was cancelled."""
        account.waiting -= 1
        if account.waiting == 0:
            self._last_left[account.band] = account.served

    def accounts(self, band: Band) -> tuple[Account, ...]:
        return tuple(self._accounts[band].values())

    @staticmethod
    def _forget_idle(accounts: dict[str, Account]) -> None:
        for tenant in [tenant for tenant, account in accounts.items() if not account.waiting]:
            del accounts[tenant]
