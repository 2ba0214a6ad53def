"""Which conversations stay with the smaller model they were given, so that no chat flips to and fro. Pure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

_MOST = 10_000


@dataclass(frozen=True, slots=True)
class StickinessRules:
    """A conversation goes back once nobody has asked there for ``idle_s``, or the larger pool's demand has not been high for
    a while (``Pressure`` has the hysteresis) and it was given the smaller model ``least_s`` ago.
    """

    idle_s: float = 600.0
    least_s: float = 60.0


class Stickiness:
    """The conversations of one pool that are with its smaller one. Bounded: the longest unused is forgotten."""

    def __init__(self, rules: StickinessRules | None = None) -> None:
        self._rules = rules or StickinessRules()
        self._given: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def holds(self, conversation: str, now: float, *, high: bool) -> bool:
        """Whether the conversation's next turn belongs to the smaller model still; one that goes back is forgotten."""
        given = self._given.get(conversation)
        if given is None:
            return False
        since, used = given
        if now - used > self._rules.idle_s or (not high and now - since >= self._rules.least_s):
            del self._given[conversation]
            return False
        return True

    def give(self, conversation: str, now: float) -> None:
        """One of its turns was downgraded."""
        if not conversation:
            return
        since, _ = self._given.pop(conversation, (now, now))
        self._given[conversation] = (since, now)
        if len(self._given) > _MOST:
            self._given.popitem(last=False)
