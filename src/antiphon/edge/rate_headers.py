"""``x-ratelimit-*``: where a caller stands with the requests and tokens of a minute, on sends and on refusals."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.core.limits import Measure, Rate, Standing

HeaderList = tuple[tuple[bytes, bytes], ...]


def rate_headers(standings: Sequence[Standing]) -> HeaderList:
    """Limit, remaining and reset of each measure; of several limits on one, that which leaves least. Empty without standings."""
    headers: list[tuple[bytes, bytes]] = []
    found = [(standing, limit) for standing in standings if isinstance(limit := standing.limit, Rate)]
    for measure in (Measure.REQUESTS, Measure.TOKENS):
        rates = [standing for standing, limit in found if limit.measure is measure]
        if rates:
            tightest = min(rates, key=lambda standing: standing.remaining)
            headers += (
                (f"x-ratelimit-limit-{measure}".encode("ascii"), str(tightest.most).encode("ascii")),
                (f"x-ratelimit-remaining-{measure}".encode("ascii"), str(tightest.remaining).encode("ascii")),
                (f"x-ratelimit-reset-{measure}".encode("ascii"), duration(tightest.resets_in_ms).encode("ascii")),
            )
    return tuple(headers)


def duration(milliseconds: int) -> str:
    """As OpenAI writes it: ``120ms``, ``17.25s``, ``6m0s``."""
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    seconds = f"{rest / 1000:.3f}".rstrip("0").rstrip(".")
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
