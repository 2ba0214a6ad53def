"""Who goes first among those that have a prompt to compute. Pure.

Higher bands first; but a band in which somebody wants something and nobody got anything for ``band_ageing_s`` goes before
all others, until it has got something. Inside a band: who was pre-empted comes back before later arrivals; then the
tenant that was served least (``fair_share``); then the request with the least left to compute, where every second of
waiting counts as ``ageing_tokens_per_s`` less.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from antiphon.core.tenancy import Band
from antiphon.inference.sequence import Sequence

Order = Literal["fair", "fcfs"]
Rank = tuple[float, ...]
_SERVED = 3
"""Where a rank tells what its tenant was served."""


@dataclass(frozen=True, slots=True)
class LineRules:
    """``fcfs`` is plain order of arrival: what fairness is measured against."""

    order: Order = "fair"
    band_ageing_s: float = 5.0
    ageing_tokens_per_s: float = 400.0


class Line:
    """Orders candidates. It remembers when each band last got something."""

    def __init__(self, rules: LineRules) -> None:
        self._rules = rules
        self._served_at: dict[Band, float] = {}

    def observe(self, candidates: Iterable[Sequence], now: float) -> None:
        """Once before each step: in these bands somebody wants something."""
        present = {sequence.request.band for sequence in candidates}
        self._served_at = {band: self._served_at.get(band, now) for band in present}

    def turns(self, candidates: Iterable[Sequence], now: float) -> Iterator[Sequence]:
        """All candidates, who goes first first, where those that are taken are charged between two of them.

        Each turn is the tenant's that was served least by then: the counters of VTC move as soon as a request is taken (Sheng
        et al., OSDI 2024, algorithm 2), else all rows that are free at once would be one tenant's.
        """
        if self._rules.order == "fcfs":
            yield from sorted(candidates, key=_arrival)
            return
        rank = self._rank(now)
        groups: dict[tuple[Rank, int], list[tuple[Rank, Sequence]]] = {}
        for sequence in candidates:
            ranked = rank(sequence)
            groups.setdefault((ranked[:_SERVED], id(sequence.account)), []).append((ranked, sequence))
        for group in groups.values():
            group.sort(key=_ranked, reverse=True)
        heads = [(group[-1][0], number, group) for number, group in enumerate(groups.values())]
        heapq.heapify(heads)
        while heads:
            told, number, group = heads[0]
            ranked, sequence = group[-1]
            now_ranked = (*ranked[:_SERVED], sequence.account.served, *ranked[_SERVED + 1 :])
            if now_ranked > told:
                heapq.heapreplace(heads, (now_ranked, number, group))
                continue
            group.pop()
            if group:
                heapq.heapreplace(heads, (group[-1][0], number, group))
            else:
                heapq.heappop(heads)
            yield sequence

    def served(self, band: Band, now: float) -> None:
        """Somebody of this band got something."""
        self._served_at[band] = now

    def _rank(self, now: float) -> Callable[[Sequence], Rank]:
        rules = self._rules
        aged = {band for band, at in self._served_at.items() if now - at >= rules.band_ageing_s}

        def rank(sequence: Sequence) -> Rank:
            band = sequence.request.band
            to_do = sequence.remaining if sequence.blocks else sequence.uncached
            urgency = to_do - rules.ageing_tokens_per_s * (now - sequence.submitted_at)
            return (band not in aged, -band, sequence.pinned is None, sequence.account.served, urgency, sequence.id)

        return rank


def _ranked(one: tuple[Rank, Sequence]) -> Rank:
    return one[0]


def _arrival(sequence: Sequence) -> Rank:
    return (sequence.submitted_at, sequence.id)
