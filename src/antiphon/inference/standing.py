"""What those in line are told: positions that fall, times that count down. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from antiphon.inference.wait_queue import Waiter

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Standing(Generic[K]):
    """What the reader of a waiting request is told."""

    key: K
    position: int
    eta_ms: int


def told_now(waiter: Waiter[K], above: int, position: int, left_s: float, now: float) -> Standing[K] | None:
    """What has changed for one since it was told, which it is then: its position rises only by those of higher bands that came
    since (``above`` have ever come), its time counts down and is put right gently. ``None``: nothing worth a word.
    """
    if waiter.position:
        shown = min(position, waiter.position + above - waiter.seen_above)
        counted_s = max(waiter.eta_s - (now - waiter.told_at), 0.0)
        eta_s = min(left_s, max(1.2 * counted_s, counted_s + 0.5)) if left_s > counted_s else (left_s + counted_s) / 2
        if shown == waiter.position and abs(eta_s - counted_s) < max(0.5, 0.15 * counted_s):
            return None
    else:
        shown, eta_s = position, left_s
    waiter.position, waiter.seen_above, waiter.eta_s, waiter.told_at = shown, above, eta_s, now
    return Standing(waiter.key, shown, round(1000 * eta_s))


def counted_down(waiter: Waiter[K], now: float) -> Standing[K] | None:
    """What it was told, counted down until now; ``None`` where it was told nothing."""
    if not waiter.position:
        return None
    return Standing(waiter.key, waiter.position, round(1000 * max(waiter.eta_s - (now - waiter.told_at), 0.0)))
