"""How fast passwords may be tried: decided before any is hashed, so that neither guessing nor hashing runs away. Pure.

Three token buckets (allowances that refill steadily) per try: for a name from an address, for a name from anywhere, for an address.
Names that nobody has are counted like others, so that a refusal tells nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

_MOST_BUCKETS = 20_000
_V6_NETWORK_BITS = 64


@dataclass(frozen=True, slots=True)
class Try:
    """It may go on."""


@dataclass(frozen=True, slots=True)
class TryLater:
    retry_after_s: float


@dataclass(frozen=True, slots=True)
class Allowance:
    """``burst`` tries at once, then one every ``seconds``."""

    burst: float
    seconds: float


NAME_FROM_ADDRESS = Allowance(10, 30)
NAME = Allowance(100, 6)
ADDRESS = Allowance(100, 1)


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class SignInPace:
    """``ask`` spends a try. ``now`` is monotonic seconds and never decreases."""

    def __init__(
        self,
        *,
        name_from_address: Allowance = NAME_FROM_ADDRESS,
        name: Allowance = NAME,
        address: Allowance = ADDRESS,
    ) -> None:
        self._allowances = (name_from_address, name, address)
        self._buckets: dict[tuple[str, ...], _Bucket] = {}

    def ask(self, name: str, address: str, *, now: float) -> Try | TryLater:
        """Spend a try of all three allowances, or of none."""
        network = network_of(address)
        keys = (("both", name, network), ("name", name), ("address", network))
        buckets = [self._bucket(key, allowance, now) for key, allowance in zip(keys, self._allowances, strict=True)]
        waits = [(1 - bucket.left) * allowance.seconds for bucket, allowance in zip(buckets, self._allowances, strict=True)]
        if max(waits) > 0:
            return TryLater(max(waits))
        for bucket in buckets:
            bucket.left -= 1
        return Try()

    def check(self) -> None:
        """Raises ``AssertionError`` where a promise is broken."""
        assert len(self._buckets) <= _MOST_BUCKETS
        bursts = {"both": self._allowances[0].burst, "name": self._allowances[1].burst, "address": self._allowances[2].burst}
        assert all(0 <= bucket.left <= bursts[key[0]] for key, bucket in self._buckets.items())

    def _bucket(self, key: tuple[str, ...], allowance: Allowance, now: float) -> _Bucket:
        """The bucket as it stands ``now``; the one used longest ago makes room for a new one."""
        bucket = self._buckets.pop(key, None) or _Bucket(allowance.burst, now)
        while len(self._buckets) >= _MOST_BUCKETS:
            del self._buckets[next(iter(self._buckets))]
        self._buckets[key] = bucket
        bucket.left = min(allowance.burst, bucket.left + (now - bucket.at) / allowance.seconds)
        bucket.at = now
        return bucket


def network_of(address: str) -> str:
    """One household has a /64 of IPv6 addresses; text that is no address stands for itself."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        return str(int(parsed) >> (128 - _V6_NETWORK_BITS))
    return address
