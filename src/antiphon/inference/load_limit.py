"""How long a replica may take to become ready before its load counts as hung. Pure."""

from __future__ import annotations

from dataclasses import dataclass

_MOST_DOUBLINGS = 3


@dataclass(frozen=True, slots=True)
class LoadLimit:
    """So many times as long as the model took the last time, which may have lain in the page cache, and ``least_s`` at least; ``unknown_s``
    for one that was never loaded here. Each load in a row that came to its limit doubles the next one's, eight times at most: a machine
    may be slower than it was.
    """

    usual_loads: float = 10.0
    least_s: float = 60.0
    unknown_s: float = 600.0
    most_overdue: int = 2
    """After so many overdue loads in a row nobody waits for the next one."""

    def seconds(self, usual_s: float | None, overdue_loads: int) -> float:
        """For the next load: ``usual_s`` is what the last one that succeeded took, ``overdue_loads`` how many came to their limit since."""
        first_s = self.unknown_s if usual_s is None else max(self.least_s, self.usual_loads * usual_s)
        return first_s * 2 ** min(overdue_loads, _MOST_DOUBLINGS)


LOAD_LIMIT = LoadLimit()
