"""Reserved tokens per second: who has some left goes before everybody else. Pure.

A token bucket for each organisation that has a reserve. It works conservingly: what its owner does not ask for is nobody's
loss, and it is not saved up beyond a few seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

_BURST_S = 5.0


@dataclass(slots=True)
class _Reserve:
    rate: float
    level: float
    at: float

    def refill(self, now: float) -> float:
        self.level = min(self.level + self.rate * (now - self.at), self.rate * _BURST_S)
        self.at = now
        return self.level


class Reserves:
    """The reserves of all organisations that have asked for something."""

    def __init__(self) -> None:
        self._reserves: dict[str, _Reserve] = {}

    def know(self, tenant: str, tokens_per_s: float, now: float) -> None:
        """A request of ``tenant`` came, whose plan reserves so much; the latest word counts."""
        known = self._reserves.get(tenant)
        if known is not None:
            known.refill(now)
            known.rate = tokens_per_s
            if tokens_per_s <= 0:
                del self._reserves[tenant]
        elif tokens_per_s > 0:
            self._reserves[tenant] = _Reserve(tokens_per_s, tokens_per_s * _BURST_S, now)

    def spend(self, tenant: str, tokens: int, now: float) -> None:
        """A request that takes ``tokens`` was started; beyond its reserve a tenant queues as all others do."""
        known = self._reserves.get(tenant)
        if known is not None:
            known.refill(now)
            known.level = max(known.level - tokens, -known.rate * _BURST_S)

    def ahead(self, now: float) -> list[str]:
        """Tenants that have some of their reserve left, the largest part first."""
        left = [(-reserve.refill(now) / reserve.rate, name) for name, reserve in self._reserves.items()]
        return [name for share, name in sorted(left) if share < 0]

    def levels(self, now: float) -> dict[str, float]:
        """What is left, in tokens, of those that have any."""
        return {name: self._reserves[name].level for name in self.ahead(now)}
