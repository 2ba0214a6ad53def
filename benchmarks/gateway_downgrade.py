"""A load that swings, before a pool that falls back on a smaller one: no conversation goes to and fro between the two.

Newcomers come in waves, far more than the large pool can take, then almost nobody. Whether waves and calms differ is seen by the
newcomers: in a wave many are given the smaller model, in a calm they get what they ask for. Conversations that go on all the while
would flip with every swing if each turn were decided for itself.
"""

from __future__ import annotations

import asyncio
import random
import time
from itertools import pairwise

import aiohttp

from benchmarks.gateway_people import PLANS, RATE_TOK_S, Fate, People, config, keys_of
from benchmarks.report import Report, progress
from benchmarks.served import served

CHATS = 8
WAVE_S, CALM_S = 6.0, 8.0
WAVE_PER_S, CALM_PER_S = 20.0, 0.5
TOKENS = 24
_LARGE = f"""
[[pools]]
name = "large"
model = "reference-large"
engine = "reference"
output_tokens_per_s = {RATE_TOK_S}
prefill_tokens_per_s = 50000
blocks = 64
queue_limit = 400
downgrade_to = "small"
"""
"""Takes about ten of these answers a second."""


def swinging_config() -> str:
    return (_LARGE + config(blocks=4096, limit=400)).replace('models = ["small"]', 'models = ["large", "small"]')


async def downgrade(report: Report, quick: bool) -> None:
    swings = 2 if quick else 5
    with served(swinging_config()) as server:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            people = People(server, session, await keys_of(server, CHATS))
            people.began = time.perf_counter()
            ending = asyncio.Event()
            chats = [asyncio.create_task(chat(people, number, ending)) for number in range(CHATS)]
            busy, calm = await swing(people, swings, random.Random(report.seed))
            ending.set()
            told = [await one for one in chats]
    flips = sum(before.model != after.model and after.model == "reference-large" for one in told for before, after in pairwise(one))
    hard = sum(fate.code not in {"", "high_demand"} for fate in (*busy, *calm, *(fate for one in told for fate in one)))
    report.n += len(busy) + len(calm) + sum(len(one) for one in told)
    report.results["downgrade_flips"] = float(flips)
    report.results["downgraded_chats"] = float(sum(any(fate.model != "reference-large" for fate in one) for one in told))
    report.results["downgraded_share_in_waves"] = share(busy)
    report.results["downgraded_share_in_calms"] = share(calm)
    report.results["downgrade_hard_errors"] = float(hard)
    turns = sum(len(one) for one in told)
    progress(f"downgrade: {turns} turns of {CHATS} chats, {flips} flips; waves {share(busy)}, calms {share(calm)}; {hard} hard errors")


async def chat(people: People, number: int, ending: asyncio.Event) -> list[Fate]:
    """One conversation that goes on, a second between an answer and the next message, until the load ends."""
    conversation, fates = await people.conversation("middle", number), list[Fate]()
    while not ending.is_set():
        fate = await people.say(conversation, "middle", number, tokens=TOKENS)
        if fate.model:
            fates.append(fate)
        await asyncio.sleep(max(fate.retry_s, 1.0))
    return fates


async def swing(people: People, swings: int, rng: random.Random) -> tuple[list[Fate], list[Fate]]:
    """What became of those who came in waves, and in the second half of the calms."""
    waves, calms = list[asyncio.Task[Fate]](), list[asyncio.Task[Fate]]()
    for _ in range(swings):
        waves += await arrivals(people, WAVE_PER_S, WAVE_S, rng)
        await asyncio.sleep(CALM_S / 2)
        calms += await arrivals(people, CALM_PER_S * 4, CALM_S / 2, rng)
    return [await one for one in waves], [await one for one in calms]


async def arrivals(people: People, rate: float, seconds: float, rng: random.Random) -> list[asyncio.Task[Fate]]:
    tasks, start, at = list[asyncio.Task[Fate]](), time.perf_counter(), 0.0
    while at < seconds:
        await asyncio.sleep(max(start + at - time.perf_counter(), 0.0))
        tasks.append(asyncio.create_task(people.ask("middle", len(tasks), tokens=TOKENS)))
        at += rng.expovariate(rate)
    return tasks


def share(fates: list[Fate]) -> float:
    """Of those that were answered, how many by the smaller model."""
    answered = [fate for fate in fates if fate.model]
    return round(sum(fate.model != "reference-large" for fate in answered) / max(len(answered), 1), 3)


assert PLANS["middle"][1] < WAVE_S, "a wave lasts longer than its plan lets anybody wait"
