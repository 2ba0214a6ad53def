"""What the gateway adds: the same requests over HTTP and straight to a replica over its own socket, in turn, ABBA."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

from antiphon.core.messages import Role
from antiphon.engines.base import PromptMessage, ReplicaSpec
from antiphon.engines.reference_tokenizer import ReferenceTokenizer
from antiphon.orchestrator.prompt import SYSTEM_PROMPT
from benchmarks.chats import Chat
from benchmarks.gateway_people import config
from benchmarks.lean_http import LeanClient
from benchmarks.replica_client import engine_request, generate, replica
from benchmarks.report import Report, median, percentile, progress
from benchmarks.served import served

_GOLDEN = 0.6180339887498949
STREAMS = 100
"""At once."""
STREAM_TOK_S = 24.0
"""Of each: a step is 42 ms, and the median of so many TTFTs, which lie anywhere in a step, is known to half a millisecond."""
TOKENS = 64
"""An answer of the reference engine whose length nobody names. What a request costs besides is shared by its batches."""
TOKENIZER = ReferenceTokenizer()
SPEC = ReplicaSpec("bench", "reference", "reference", "", prefill_tokens_per_s=50000, output_tokens_per_s=STREAM_TOK_S, blocks=4096)


async def wave(ask: Callable[[str], Awaitable[float]], count: int, seed: int, *, streams: int = STREAMS) -> list[float]:
    """So many ``streams`` at once, each new one up to a step after another has ended; TTFTs.

    Ends come with steps: who asked again at once would always meet a step's beginning, or, a millisecond later, all of the next
    one. So the moments are spread over a step, evenly (the golden ratio's multiples).
    """
    rng, ttfts, numbers = random.Random(seed), list[float](), iter(range(count))

    async def stream() -> None:
        await asyncio.sleep(rng.random() * TOKENS / STREAM_TOK_S)
        for number in numbers:
            await asyncio.sleep(number * _GOLDEN % 1 / STREAM_TOK_S)
            ttfts.append(await ask(f"({seed}.{number}) tell me about the river and the boat"))

    async with asyncio.TaskGroup() as group:
        for _ in range(streams):
            group.create_task(stream())
    return ttfts


async def added(report: Report, quick: bool) -> None:
    count, rounds = (300, 2) if quick else (600, 4)
    with served(config(blocks=4096, limit=400, rate=STREAM_TOK_S)) as server:
        people = LeanClient(server.url, server.key)
        async with replica(SPEC) as client:
            batches = 0
            cpu_s = 0.0
            ours: list[float] = []
            theirs: list[float] = []

            async def http(prompt: str) -> float:
                nonlocal batches
                body = {"model": "small", "messages": [{"role": "user", "content": prompt}], "stream": True, "max_tokens": TOKENS}
                heard = await people.ask(body)
                batches += heard.batches
                return heard.ttft_s

            async def direct(prompt: str) -> float:
                ids = tuple(TOKENIZER.prompt([PromptMessage(Role.SYSTEM, SYSTEM_PROMPT), PromptMessage(Role.USER, prompt)]))
                request = engine_request(Chat(0, (ids,), TOKENS, 1, 0.0), ids, 1, prompt)
                return (await generate(client, request)).ttft_s

            await wave(http, 100, 900)
            batches = 0
            for number in range(rounds):
                for mine in (True, False) if number % 2 == 0 else (False, True):
                    if mine:
                        before = cpu_seconds(server.pid)
                        ours += await wave(http, count, number)
                        cpu_s += cpu_seconds(server.pid) - before
                    else:
                        theirs += await wave(direct, count, number)
                progress(f"added, round {number + 1}: HTTP p50 {1e3 * median(ours):.1f} ms, direct p50 {1e3 * median(theirs):.1f} ms")
    report.n += len(ours)
    report.results["added_ttft_ms_p50"] = round(1e3 * (median(ours) - median(theirs)), 2)
    if not quick:
        report.results["added_ttft_ms_p99"] = round(1e3 * (percentile(ours, 0.99) - percentile(theirs, 0.99)), 2)
    report.results["cpu_ms_per_batch"] = round(1e3 * cpu_s / batches, 3)
    progress(f"added: {report.results}")


def cpu_seconds(pid: int) -> float:
    """Processor time of one process, its children left out."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
