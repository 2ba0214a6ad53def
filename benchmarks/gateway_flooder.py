"""One user who sends twenty times as much as each of seven others, and what is left to them."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict

import aiohttp

from benchmarks.gateway_people import RATE_TOK_S, Fate, People, config, keys_of
from benchmarks.report import Report, progress
from benchmarks.served import served

USERS, THEIRS, FLOOD = 8, 6, 120
"""Users in all, of whom each has so many requests at once, and the first, who floods."""
SHORTEST, LONGEST = 16, 48
"""Tokens of an answer, all that it may have. They differ in length: of equal ones, all that run end at once, and whoever comes back a
moment later finds nothing free.
"""


async def flooder(report: Report, quick: bool) -> None:
    for name, module in (("flooder_min_share", "antiphon"), ("flooder_min_share_fcfs", "benchmarks.arrival_order")):
        report.results[name] = round(await others_least_share(module, seconds=30.0 if quick else 75.0), 3)
        progress(f"{name}: {report.results[name]}")


async def others_least_share(module: str, *, seconds: float) -> float:
    """The least served of the others against an eighth of all, of what was written while all eight had something waiting.

    The flooder is there first and alone, and takes the whole engine, which is nobody's loss; so what was begun until the others had
    come does not count. An answer is written evenly, and counts with the part of it that lies between the two ends.
    """
    rng = random.Random(0)
    text = config(blocks=64, limit=1000).replace("ttft_limit_ms = 3000", "ttft_limit_ms = 600000")
    with served(text, module=module) as server:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            people = People(server, session, await keys_of(server, USERS))
            fates: defaultdict[int, list[Fate]] = defaultdict(list)

            async def chat(user: int) -> None:
                while True:
                    fate = await people.ask("middle", user, tokens=rng.randint(SHORTEST, LONGEST))
                    fates[user].append(fate)
                    if fate.code:
                        await asyncio.sleep(0.1)

            people.began = time.perf_counter()
            tasks = [asyncio.create_task(chat(user)) for user in range(USERS) for _ in range(FLOOD if user == 0 else THEIRS)]
            await asyncio.sleep(seconds)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    longest_s = LONGEST / RATE_TOK_S
    begin = max(first_s(fates[user]) for user in range(1, USERS)) + longest_s
    return least_share(fates, begin, seconds - longest_s)


def first_s(fates: list[Fate]) -> float:
    """When the last of a user's first requests had been let in."""
    first = sorted(fates, key=lambda fate: fate.sent_s)[:THEIRS]
    return max((fate.sent_s + fate.heard_s for fate in first), default=0.0)


def least_share(fates: dict[int, list[Fate]], begin: float, end: float) -> float:
    tokens = Counter({user: sum(written(fate, begin, end) for fate in mine) for user, mine in fates.items()})
    everybody = sum(tokens.values())
    progress(
        f"  from {begin:.1f} to {end:.1f} s, of a fair share: "
        + ", ".join(f"{USERS * tokens[user] / everybody:.2f}" for user in range(USERS))
    )
    return min(tokens[user] for user in range(1, USERS)) / (everybody / USERS)


def written(fate: Fate, begin: float, end: float) -> float:
    """The tokens of an answer that were written between ``begin`` and ``end``."""
    if fate.first_s is None or fate.code:
        return 0.0
    first, last = fate.sent_s + fate.first_s, fate.ended_s
    both = min(last, end) - max(first, begin)
    return fate.tokens * max(both, 0.0) / max(last - first, 1e-6)
