"""How an account's conduct is scored, and what follows: flagged, then slowed, then looked at by a person. Pure.

Four signals, each from 0 (usual) to 1 (nobody does this by hand), joined as independent hints: ``1 - Π(1 - weight × level)``. One
alone, however loud, flags; what is flagged is slowed once a second signal joins in, or after half an hour of the same.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from antiphon.core.abuse import Case, CaseState, Signal

MINUTE_MS = 60_000
HOUR = 60
"""Minutes."""

FLAG_AT = 0.5
THROTTLE_AT = 0.75
CALM_AT = 0.25
THROTTLE = 4
"""Who is slowed has a quarter of their plan."""

LOOKED_AT_FIRST = timedelta(minutes=1)
PATIENCE = timedelta(minutes=30)
CALM_FOR = timedelta(hours=1)

_FAN_OUT_MINUTES = 10
_MOST_NAMES = 512
_TURNS_TO_REPEAT = 30


@dataclass(frozen=True, slots=True)
class Level:
    """Linear from ``usual`` (0) to ``extreme`` (1)."""

    name: str
    usual: float
    extreme: float
    weight: float

    def of(self, measured: float) -> float:
        return min(1.0, max(0.0, (measured - self.usual) / (self.extreme - self.usual)))


CONTINUOUS = Level("continuous_generation", 0.5, 0.95, 0.6)
"""The share of the last hour in which an engine worked for the account."""
FAN_OUT = Level("fan_out", 15, 100, 0.6)
"""Conversations in which it asked within ten minutes."""
KEYS = Level("many_keys", 3, 10, 0.4)
"""API keys that it used within an hour."""
REPEATED = Level("repeated_prompts", 0.5, 0.95, 0.6)
"""The share of an hour's questions, thirty or more, that it had asked before."""


@dataclass(slots=True)
class _Recent:
    """Names and when each was last heard; the ones heard longest ago make room."""

    at_ms: OrderedDict[str, int] = field(default_factory=OrderedDict[str, int])

    def hear(self, name: str, now_ms: int) -> bool:
        """Whether it was heard before."""
        known = self.at_ms.pop(name, None)
        self.at_ms[name] = now_ms
        while len(self.at_ms) > _MOST_NAMES:
            self.at_ms.popitem(last=False)
        return known is not None and now_ms - known < HOUR * MINUTE_MS

    def within(self, minutes: int, now_ms: int) -> int:
        return sum(now_ms - at < minutes * MINUTE_MS for at in self.at_ms.values())


@dataclass(slots=True)
class _Minutes:
    """A sum for each of the last sixty minutes."""

    sums: dict[int, int] = field(default_factory=dict[int, int])

    def add(self, at_ms: int, amount: int) -> None:
        minute = at_ms // MINUTE_MS
        self.sums[minute] = self.sums.get(minute, 0) + amount
        if len(self.sums) > HOUR:
            newest = max(self.sums)
            self.sums = {one: kept for one, kept in self.sums.items() if one > newest - HOUR}

    def last_hour(self, now_ms: int) -> int:
        return sum(kept for minute, kept in self.sums.items() if minute > now_ms // MINUTE_MS - HOUR)


@dataclass(slots=True)
class Activity:
    """What one account did in the last hour, in bounded memory. ``now_ms`` may come a little out of order."""

    _turns: _Minutes = field(default_factory=_Minutes)
    _repeated: _Minutes = field(default_factory=_Minutes)
    _ran: _Minutes = field(default_factory=_Minutes)
    _conversations: _Recent = field(default_factory=_Recent)
    _keys: _Recent = field(default_factory=_Recent)
    _asked: _Recent = field(default_factory=_Recent)
    _ran_until_ms: int = 0

    def began(self, now_ms: int, *, conversation: str, key: str | None, asked: str | None) -> None:
        """A turn; ``asked`` is a fingerprint of the question, ``None`` where that is forgotten."""
        self._conversations.hear(conversation, now_ms)
        if key is not None:
            self._keys.hear(key, now_ms)
        if asked is not None:
            self._turns.add(now_ms, 1)
            self._repeated.add(now_ms, int(self._asked.hear(asked, now_ms)))

    def ran(self, until_ms: int, ran_ms: int) -> None:
        """An engine worked for it so long until then; what overlaps counts once."""
        start = max(until_ms - ran_ms, self._ran_until_ms, until_ms - HOUR * MINUTE_MS)
        while start < until_ms:
            end = min(until_ms, (start // MINUTE_MS + 1) * MINUTE_MS)
            self._ran.add(start, end - start)
            start = end
        self._ran_until_ms = max(self._ran_until_ms, until_ms)

    def signals(self, now_ms: int) -> tuple[Signal, ...]:
        """All four, the usual ones too."""
        turns = self._turns.last_hour(now_ms)
        repeated = self._repeated.last_hour(now_ms) / turns if turns >= _TURNS_TO_REPEAT else 0.0
        measured = (
            (CONTINUOUS, self._ran.last_hour(now_ms) / (HOUR * MINUTE_MS)),
            (FAN_OUT, self._conversations.within(_FAN_OUT_MINUTES, now_ms)),
            (KEYS, self._keys.within(HOUR, now_ms)),
            (REPEATED, repeated),
        )
        return tuple(Signal(level.name, level.of(value)) for level, value in measured)

    def check(self) -> None:
        """Raises ``AssertionError`` where a bound is broken."""
        for names in (self._conversations, self._keys, self._asked):
            assert len(names.at_ms) <= _MOST_NAMES
        for sums in (self._turns, self._repeated, self._ran):
            assert len(sums.sums) <= HOUR
        assert all(0 <= ran <= MINUTE_MS for ran in self._ran.sums.values())


def score_of(signals: Sequence[Signal]) -> float:
    """From 0 to 1."""
    weights = {level.name: level.weight for level in (CONTINUOUS, FAN_OUT, KEYS, REPEATED)}
    return 1 - math.prod(1 - weights[signal.name] * signal.level for signal in signals)


@dataclass(frozen=True, slots=True)
class Keep:
    """All stays as it is."""


@dataclass(frozen=True, slots=True)
class Flag:
    """Told to the operator; the account feels nothing."""


@dataclass(frozen=True, slots=True)
class Slow:
    """Throttled until it has been calm for an hour, or somebody decides otherwise."""


@dataclass(frozen=True, slots=True)
class Lift:
    """Nothing is held against it any more."""


Decision = Keep | Flag | Slow | Lift


def decide(case: Case | None, score: float, now: datetime) -> Decision:
    """What a score leads to. What a person decided stays: trust until its end, a throttle until they lift it."""
    state = CaseState.CLEAR if case is None else case.state
    if case is not None and case.trusted_until is not None and now < case.trusted_until:
        return Keep()
    if case is None or state is CaseState.CLEAR:
        return Flag() if score >= FLAG_AT else Keep()
    if case.reviewed_by is not None:
        return Keep()
    age = now - case.since
    if score < CALM_AT and age >= CALM_FOR:
        return Lift()
    if state is CaseState.FLAGGED and ((score >= THROTTLE_AT and age >= LOOKED_AT_FIRST) or (score >= FLAG_AT and age >= PATIENCE)):
        return Slow()
    return Keep()
