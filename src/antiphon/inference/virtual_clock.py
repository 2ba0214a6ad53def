"""Start tags of start-time fair queueing (Goyal et al., SIGCOMM 1996): whose turn it is, by what each was given. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_IDLE = 4096
"""So many names are remembered; then those whose last request has ended are forgotten."""


@dataclass(slots=True)
class VirtualClock:
    """Start tags of those that share something: ``ends`` by name, and the virtual time: how much each of those that wait has
    been given by now, at an equal share.
    """

    now: float = 0.0
    ends: dict[str, float] = field(default_factory=dict[str, float])
    owed: float = 0.0
    """By how much the virtual time has to go further yet, or less far, since what was started has cost something else."""

    def tag(self, name: str) -> float:
        return max(self.ends.get(name, 0.0), self.now)

    def extend(self, name: str, charge: float) -> float:
        """The tag of a new request of ``name``."""
        if name not in self.ends and len(self.ends) >= MOST_IDLE:
            self.ends = {other: end for other, end in self.ends.items() if end > self.now}
        tag = self.tag(name)
        self.ends[name] = tag + charge
        return tag

    def correct(self, name: str, charge: float) -> None:
        if name in self.ends:
            self.ends[name] += charge

    def settle(self, name: str, more: float, sharers: int) -> None:
        """A request of ``name`` that was started has cost so much ``more`` than it was charged, while ``sharers`` want something.

        The virtual time follows as the ends do: one that ran ahead of them would take from all whose tags it gives what they had left,
        and leave it to those whose tags were given long ago.
        """
        self.correct(name, more)
        self.owed += more / max(sharers, 1)

    def start(self, tag: float, charge: float, sharers: int) -> None:
        """A request is started while ``sharers`` want something, of whom the first has ``tag``: not always the one that is started, which
        may be the first that is ready.
        """
        step = charge / max(sharers, 1) + self.owed
        self.owed = min(step, 0.0)
        self.now = max(self.now + max(step, 0.0), tag)

    def rest(self) -> None:
        """Nobody waits any more: what anybody was given until now is nobody's loss."""
        self.now = max(self.now, *self.ends.values()) if self.ends else self.now
        self.ends.clear()
        self.owed = 0.0
