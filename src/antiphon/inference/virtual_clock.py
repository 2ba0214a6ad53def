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

    def start(self, tag: float, charge: float, sharers: int) -> None:
        """A request with ``tag`` is started, while ``sharers`` want something."""
        self.now = max(self.now + charge / max(sharers, 1), tag)

    def rest(self) -> None:
        """Nobody waits any more: what anybody was given until now is nobody's loss."""
        self.now = max(self.now, *self.ends.values()) if self.ends else self.now
        self.ends.clear()
