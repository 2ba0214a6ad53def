"""Which models are in memory, where they cannot all be. Pure: given ``now``, it says what to load and what to unload.

A model that somebody waits for is loaded as soon as it fits. Where it does not, others make room for it: those that nobody
uses first, the least recently used of them first; then those in use that have been there for their tenure, the longest first.
What runs is never broken off: a model that makes room begins nothing new and is unloaded when its last answer has ended. The
tenure is the hysteresis: two models that are always wanted take turns, each serves for its tenure between two loads, and who
waits longest is next. Work in the background waits for its model, and takes the place of none that was used a moment ago.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

TENURE_S = 10.0
_TENURE_LOADS = 4.0
"""A model stays at least so many times as long as it took to load."""
_UNKNOWN_LOAD_S = 5.0
_REFUSED_S = 30.0
"""For so long a model that could not be loaded is not tried again."""


class Presence(StrEnum):
    ABSENT = "absent"
    LOADING = "loading"
    RESIDENT = "resident"
    LEAVING = "leaving"
    """It begins nothing new; what runs goes on."""
    UNLOADING = "unloading"


@dataclass(frozen=True, slots=True)
class Need:
    """What a pool has to do: answers under way, those that wait for it, and work in the background that does. ``broken``: its
    replicas cannot be started. ``emptied_s``: in about so long what is under way has ended.
    """

    running: int = 0
    waiting: int = 0
    background: int = 0
    broken: bool = False
    emptied_s: float = 0.0

    @property
    def idle(self) -> bool:
        return not (self.running or self.waiting)


@dataclass(frozen=True, slots=True)
class Load:
    name: str


@dataclass(frozen=True, slots=True)
class Leave:
    """Let it begin nothing new."""

    name: str


@dataclass(frozen=True, slots=True)
class Stay:
    """Let it go on: its room is not needed after all."""

    name: str


@dataclass(frozen=True, slots=True)
class Unload:
    """Nothing runs there, and nothing new will."""

    name: str


Move = Load | Leave | Stay | Unload


class Residence(Protocol):
    """Whoever loads and unloads the model, where not all models fit in memory."""

    def presence(self, name: str, /) -> Presence: ...

    def loadable(self, name: str, /) -> bool: ...

    def opening_s(self, name: str, /) -> float: ...

    def loaded(self, name: str, load_s: float, /) -> None: ...

    def changed(self) -> None: ...


class AlwaysResident:
    """Implements ``Residence`` for a model that is loaded at the start and stays."""

    def presence(self, _name: str) -> Presence:
        return Presence.RESIDENT

    def loadable(self, _name: str) -> bool:
        return True

    def opening_s(self, _name: str) -> float:
        return 0.0

    def loaded(self, _name: str, _load_s: float) -> None:
        pass

    def changed(self) -> None:
        pass


@dataclass(slots=True, eq=False)
class _Model:
    name: str
    size: int
    presence: Presence = Presence.ABSENT
    since: float = 0.0
    """When it became resident, or began to load."""
    used_at: float = float("-inf")
    wanted_at: float | None = None
    load_s: float | None = None
    refused_until: float = float("-inf")
    need: Need = Need()


class Residency:
    """``sizes`` in bytes, by name, of all models that share ``budget_bytes``; none is larger than that."""

    def __init__(self, budget_bytes: int, sizes: Mapping[str, int], *, tenure_s: float = TENURE_S) -> None:
        assert all(size <= budget_bytes for size in sizes.values()), "one that can never be loaded is a fault of the configuration"
        self._budget = budget_bytes
        self._tenure_s = tenure_s
        self._models = {name: _Model(name, size) for name, size in sizes.items()}

    def __contains__(self, name: str) -> bool:
        return name in self._models

    def presence(self, name: str) -> Presence:
        return self._models[name].presence

    def begin(self, now: float) -> tuple[Load, ...]:
        """What is loaded at the start, before anybody wants anything: as many as fit, in their order."""
        spare, moves = self._spare, list[Load]()
        for model in self._models.values():
            if model.size <= spare:
                spare -= model.size
                moves.append(self._load(model, now))
        return tuple(moves)

    def decide(self, needs: Mapping[str, Need], now: float) -> tuple[Move, ...]:
        """The moves to make now. All are taken to be made; ``loaded`` and ``unloaded`` tell when they are through."""
        for name, model in self._models.items():
            self._notice(model, needs.get(name, Need()), now)
        moves: list[Move] = []
        leaving, spare, later = list[_Model](), self._spare, self._spare + self._bytes(Presence.UNLOADING)
        kept = 0  # for those that nobody can make room for yet: whoever comes later fits beside them
        for model in self._wanting(now):
            victims: list[_Model] = []
            if later < model.size and not kept:
                victims = self._victims(model, leaving, model.size - later, now)
                later += sum(victim.size for victim in victims)
            if later < model.size or kept + model.size > self._budget:
                kept += model.size if model.need.waiting else 0
                continue
            leaving += victims
            later -= model.size
            if model.size <= spare:
                spare -= model.size
                moves.append(self._load(model, now))
        for model in self._models.values():
            moves += self._part(model, leaving, now)
        return tuple(moves)

    def loaded(self, name: str, now: float, load_s: float) -> None:
        """A replica of it is ready, for the first time since it was loaded."""
        model = self._models[name]
        if model.presence is Presence.LOADING:
            model.presence, model.since, model.load_s, model.used_at = Presence.RESIDENT, now, load_s, now

    def unloaded(self, name: str) -> None:
        """Its memory is free."""
        model = self._models[name]
        assert model.presence is Presence.UNLOADING
        model.presence = Presence.ABSENT

    def loadable(self, name: str, now: float) -> bool:
        """Whether it is there, or will be when somebody wants it."""
        return self._models[name].refused_until <= now

    def opening_s(self, name: str, now: float) -> float:
        """About how long it takes until it answers: until those that are wanted before it have been served and there is room for it,
        as far as that can be known, and its load.
        """
        model = self._models[name]
        if model.presence is Presence.RESIDENT:
            return 0.0
        if model.presence is Presence.LOADING:
            return self._loading_s(model, now)
        spare, at_s = self._spare, 0.0
        ends = [(self._going_s(other, now), other.size) for other in self._there]
        heapq.heapify(ends)
        for comer in self._up_to(model, now):
            while spare < comer.size and ends:
                end_s, size = heapq.heappop(ends)
                at_s, spare = max(at_s, end_s), spare + size
            spare -= comer.size
            heapq.heappush(ends, (at_s + self._load_s(comer) + self._tenure(comer), comer.size))
        return at_s + self._load_s(model)

    def check(self) -> None:
        """Raise ``AssertionError`` unless what is there fits."""
        assert sum(model.size for model in self._there) <= self._budget

    # --- inside -------------------------------------------------------------------------------

    @property
    def _there(self) -> list[_Model]:
        return [model for model in self._models.values() if model.presence is not Presence.ABSENT]

    @property
    def _spare(self) -> int:
        return self._budget - sum(model.size for model in self._there)

    def _bytes(self, presence: Presence) -> int:
        return sum(model.size for model in self._models.values() if model.presence is presence)

    def _tenure(self, model: _Model) -> float:
        return max(self._tenure_s, _TENURE_LOADS * (model.load_s or 0.0))

    def _load_s(self, model: _Model) -> float:
        """How long it takes to load: as it did, else as others of its size did."""
        known = [(other.load_s, other.size) for other in self._models.values() if other.load_s is not None]
        if model.load_s is not None or not known:
            return model.load_s or _UNKNOWN_LOAD_S
        return model.size * sum(load_s for load_s, _ in known) / max(sum(size for _, size in known), 1)

    def _loading_s(self, model: _Model, now: float) -> float:
        """What is left of its load; of one that takes longer than it was thought to, as long as it is late."""
        left_s = self._load_s(model) - (now - model.since)
        return max(abs(left_s), 0.1 * self._load_s(model))

    def _going_s(self, model: _Model, now: float) -> float:
        """In how long one that is there may have made room for others that people wait for."""
        match model.presence:
            case Presence.LOADING:
                return self._loading_s(model, now) + (0.0 if model.need.idle else self._tenure(model))
            case Presence.RESIDENT if not model.need.idle:
                return max(self._tenure(model) - (now - model.since), model.need.emptied_s)
            case _:
                return model.need.emptied_s

    def _up_to(self, model: _Model, now: float) -> list[_Model]:
        """Those that are loaded before it, and it."""
        wanting = self._wanting(now)
        return [*wanting[: wanting.index(model) if model in wanting else None], model]

    def _notice(self, model: _Model, need: Need, now: float) -> None:
        model.need = need
        if not need.idle:
            model.used_at = now
        away = model.presence in {Presence.ABSENT, Presence.LEAVING, Presence.UNLOADING}
        if not away or not (need.waiting or need.background):
            model.wanted_at = None
        elif model.wanted_at is None:
            model.wanted_at = now

    def _wanting(self, now: float) -> list[_Model]:
        """Absent models that are wanted: by people first, who has waited longest first."""
        wanted = [
            (not model.need.waiting, model.wanted_at, model)
            for model in self._models.values()
            if model.presence is Presence.ABSENT and model.wanted_at is not None and model.refused_until <= now
        ]
        return [model for _, _, model in sorted(wanted, key=lambda one: one[:2])]

    def _victims(self, comer: _Model, taken: list[_Model], missing: int, now: float) -> list[_Model]:
        """Who makes room for ``comer``; nobody where that would not be enough."""
        found: list[_Model] = []
        for model in sorted(self._there, key=_turn):
            if missing > 0 and model not in taken and self._may_go(model, comer, now):
                found.append(model)
                missing -= model.size
        return found if missing <= 0 else []

    def _may_go(self, model: _Model, comer: _Model, now: float) -> bool:
        if model.presence is Presence.LEAVING:
            return True
        if model.presence is not Presence.RESIDENT:
            return False
        if not comer.need.waiting:  # in the background: nobody waits
            return model.need.idle and not model.need.background and now - model.used_at >= self._tenure(model)
        return model.need.idle or now - model.since >= self._tenure(model)

    def _part(self, model: _Model, leaving: list[_Model], now: float) -> list[Move]:
        """What becomes of one that is there."""
        if model.presence is Presence.LOADING and model.need.broken:
            model.presence, model.refused_until = Presence.UNLOADING, now + _REFUSED_S
            return [Unload(model.name)]
        if model not in leaving:
            if model.presence is Presence.LEAVING:
                model.presence = Presence.RESIDENT
                return [Stay(model.name)]
            return []
        if not model.need.running:
            model.presence = Presence.UNLOADING
            return [Unload(model.name)]
        if model.presence is Presence.RESIDENT:
            model.presence = Presence.LEAVING
            return [Leave(model.name)]
        return []

    def _load(self, model: _Model, now: float) -> Load:
        model.presence, model.since, model.wanted_at = Presence.LOADING, now, None
        return Load(model.name)


def _turn(model: _Model) -> tuple[int, float]:
    """Who goes first: one that is about to, one that nobody uses, one that has been there longest."""
    if model.presence is Presence.LEAVING:
        return 0, 0.0
    return (1, model.used_at) if model.need.idle else (2, model.since)
