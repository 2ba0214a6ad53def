"""What may be used, by whom and how fast: the words that limiters, accounts of use and answers to callers share.

Amounts are integers: tokens, requests, messages, and money in nanos (a thousand-millionth of the currency's unit).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import NamedTuple

from antiphon.core.ids import GenerationId, TenantId

MOST_TOKENS = 1 << 31
MOST_NANOS = 1 << 52
"""No amount is larger, so that a double holds sums of them, and of tokens with a minute's milliseconds, exactly."""


class Measure(StrEnum):
    TOKENS = "tokens"
    REQUESTS = "requests"


@dataclass(frozen=True, slots=True)
class Rate:
    """At most ``per_minute`` at once, and as many again in each minute, flowing back evenly.

    For requests this is the generic cell rate algorithm (ITU-T I.371) with a burst of a minute's requests; for tokens the token
    bucket. One request larger than ``per_minute`` tokens is let in when nothing else is owed, and then owes the rest.
    """

    subject: str
    measure: Measure
    per_minute: int

    @property
    def most(self) -> int:
        return self.per_minute


@dataclass(frozen=True, slots=True)
class Concurrency:
    """At most ``most`` generations of ``subject`` at once."""

    subject: str
    most: int


@dataclass(frozen=True, slots=True)
class Cap:
    """At most ``most`` messages with ``model`` in any window of ``window_ms``."""

    subject: str
    model: str
    most: int
    window_ms: int


@dataclass(frozen=True, slots=True)
class Budget:
    """At most ``most_nanos`` of money in the calendar period ``period``, which ends in ``left_ms``."""

    subject: str
    period: str
    most_nanos: int
    left_ms: int

    @property
    def most(self) -> int:
        return self.most_nanos


Limit = Rate | Concurrency | Cap | Budget


@dataclass(frozen=True, slots=True)
class Reservation:
    """What one generation may come to use, held under all ``limits`` at once until it is reconciled.

    Raises ``ValueError`` for an amount that is negative, no whole number, or too large.
    """

    tenant_id: TenantId
    generation_id: GenerationId
    tokens: int
    cost_nanos: int
    limits: tuple[Limit, ...]

    def __post_init__(self) -> None:
        _check(self.tokens, MOST_TOKENS)
        _check(self.cost_nanos, MOST_NANOS)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a generation did use. ``counts``: it is a request and a message; not so one that failed without a token.

    ``limits`` are those of who was served by what in the end; caps that were held and are not among them are given back. Raises
    ``ValueError`` as ``Reservation`` does.
    """

    tenant_id: TenantId
    generation_id: GenerationId
    tokens: int
    cost_nanos: int
    limits: tuple[Limit, ...]
    counts: bool = True

    def __post_init__(self) -> None:
        _check(self.tokens, MOST_TOKENS)
        _check(self.cost_nanos, MOST_NANOS)


class Standing(NamedTuple):
    """A limit and where its subject stands. ``resets_in_ms``: until all that is used now has come back.

    For a ``Cap``, until the first message in its window leaves it; for ``Concurrency``, which nobody can tell, 0. A tuple, since each
    step of a limiter makes several.
    """

    limit: Limit
    used: int
    resets_in_ms: int

    @property
    def most(self) -> int:
        return self.limit.most

    @property
    def remaining(self) -> int:
        left = self.limit.most - self.used
        return max(0, left)


@dataclass(frozen=True, slots=True)
class Granted:
    """The amounts are held; ``standings`` are as they are with them."""

    standings: Sequence[Standing]


@dataclass(frozen=True, slots=True)
class Exhausted:
    """Nothing is held. ``limit`` is the one that keeps the caller waiting longest, ``retry_in_ms`` until all would grant it.

    When an answer that is being written ends nobody can tell, so ``Concurrency`` says when to ask again.
    """

    limit: Limit
    retry_in_ms: int
    standings: Sequence[Standing]


Verdict = Granted | Exhausted


@dataclass(frozen=True, slots=True)
class TenantTerms:
    """What holds for a whole tenant, and for an account of it that is throttled. 0 and ``None`` are no limit.

    ``throttle`` divides the account's own rates and concurrency; 1 for everybody who is not under suspicion.
    """

    tokens_per_minute: int = 0
    requests_per_minute: int = 0
    monthly_budget: Decimal | None = None
    throttle: int = 1


def _check(amount: int, most: int) -> None:
    if type(amount) is not int or not 0 <= amount <= most:
        raise ValueError(f"an amount is a whole number from 0 to {most}, not {amount!r}")
