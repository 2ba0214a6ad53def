"""How many blocks a batch will hold at its fullest moment. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Growth:
    """One sequence: blocks of its own once its present tokens are computed, and the tokens it will still add."""

    own_blocks: int
    tokens: int


def predicted_peak(shared_blocks: int, growths: Iterable[Growth], block_tokens: int) -> int:
    """Blocks at the fullest moment, when all grow at one pace and each gives its own back at its end.

    The moments to look at are the ends: just before the one with the i-th most tokens to go ends, the i longest are
    there and each has grown by as much (LightLLM's test). O(n log n).
    """
    peak = shared_blocks
    own = 0
    for alive, growth in enumerate(sorted(growths, key=_most_to_go), start=1):
        own += growth.own_blocks
        peak = max(peak, shared_blocks + own + alive * -(-growth.tokens // block_tokens))
    return peak


def _most_to_go(growth: Growth) -> int:
    return -growth.tokens
