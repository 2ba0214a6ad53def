"""Rounds of one load on our replica and on a peer, in turn, and the ratios between them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.chats import Chat, Played
from benchmarks.report import median, percentile, progress

Play = Callable[[Sequence[Chat]], Awaitable[Played]]
P99_SAMPLES = 300


@dataclass(slots=True)
class Duel:
    """All rounds of one load against one peer. ``Ratio`` is ours over theirs."""

    load: str
    peer: str
    ours: list[Played] = field(default_factory=list[Played])
    theirs: list[Played] = field(default_factory=list[Played])

    @property
    def rounds(self) -> int:
        """How many both have played."""
        return min(len(self.ours), len(self.theirs))

    def ratio(self, figure: Callable[[Played], float]) -> float:
        """The median over rounds that both have played."""
        return median([figure(mine) / figure(other) for mine, other in zip(self.ours, self.theirs, strict=False)])

    @property
    def ratios(self) -> dict[str, float]:
        """By the contract's names; TTFT's p99 only where the rounds together have enough samples for one."""
        found = {
            "tok_s": self.ratio(lambda played: played.tok_s),
            "ttft_p50": self.ratio(lambda played: median(played.ttfts_s)),
            "itl_p95": self.ratio(lambda played: percentile(played.gaps_s, 0.95)),
        }
        if len(pooled_ttfts(self.ours)) >= P99_SAMPLES:
            found["ttft_p99"] = percentile(pooled_ttfts(self.ours), 0.99) / percentile(pooled_ttfts(self.theirs), 0.99)
        return found


def pooled_ttfts(rounds: Sequence[Played]) -> list[float]:
    return [ttft for played in rounds for ttft in played.ttfts_s]


async def fight(duel: Duel, ours: Play, theirs: Play, lists: Sequence[Sequence[Chat]]) -> Duel:
    """Play every list on both, ABBA: who begins alternates. Raises ``RuntimeError`` when tokens are missing."""
    for number, chats in enumerate(lists):
        for mine in (True, False) if number % 2 == 0 else (False, True):
            played = (await (ours if mine else theirs)(chats)).complete(chats)
            (duel.ours if mine else duel.theirs).append(played)
        progress(f"{duel.load}, round {number + 1}: ours {line(duel.ours[-1])} | {duel.peer} {line(duel.theirs[-1])}")
    return duel


def line(played: Played) -> str:
    """A round in words."""
    ttfts, gaps = played.ttfts_s, played.gaps_s
    return (
        f"{played.tok_s:.0f} tok/s, TTFT {median(ttfts) * 1e3:.0f} (max {max(ttfts) * 1e3:.0f}) ms, "
        f"ITL {median(gaps) * 1e3:.0f} (p95 {percentile(gaps, 0.95) * 1e3:.0f}) ms"
    )


def figures(rounds: Sequence[Played]) -> dict[str, float]:
    """One side's own figures: medians over rounds, percentiles over all samples."""
    rates = [played.tok_s for played in rounds]
    ttfts = pooled_ttfts(rounds)
    gaps = [gap for played in rounds for gap in played.gaps_s]
    found = {
        "tok_s": round(median(rates), 1),
        "tok_s_min": round(min(rates), 1),
        "tok_s_max": round(max(rates), 1),
        "ttft_ms_p50": round(1e3 * median(ttfts), 1),
        "itl_ms_p50": round(1e3 * median(gaps), 1),
        "itl_ms_p95": round(1e3 * percentile(gaps, 0.95), 1),
    }
    if len(ttfts) >= P99_SAMPLES:
        found["ttft_ms_p99"] = round(1e3 * percentile(ttfts, 0.99), 1)
    return found
