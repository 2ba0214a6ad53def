"""The highest rate of chats at which the whole product keeps its promises, over HTTP.

Chats of three turns arrive at random (Poisson, open loop); each begins with the same text of about 400 tokens; within a chat the
next turn is sent when the answer has ended. The promises: TTFT p50 at most 1 s and p99 at most 4 s, every stream at least
20 tokens a second. The rate is counted in requests: three for each chat.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import aiohttp

from antiphon.engines.model_source import DEFAULT_MODEL
from benchmarks.chats import QUESTIONS, SYSTEM_PROMPT
from benchmarks.report import Report, median, options, percentile, progress
from benchmarks.served import Served, served

CONFIG = """
[[pools]]
name = "small"
model = "smollm2-135m-instruct"
queue_limit = 2000
stream_tokens_per_s = 20

[[plans]]
name = "free"
models = ["small"]
tokens_per_minute = 100000000
requests_per_minute = 1000000
concurrency = 2000
max_output_tokens = 1024
ttft_limit_ms = 30000
"""
TURNS = 3
MAX_TOKENS = 64
FAR_TOO_MUCH, FAR_TOO_LONG_S = 10.0, 15.0
"""In the end, so many times the highest rate for so many seconds: whoever is refused is told so, and nothing else goes wrong."""
TTFT_P50_S, TTFT_P99_S, STREAM_TOK_S = 1.0, 4.0, 20.0
RATED_TOKENS = 8
"""A shorter answer has no rate worth the name."""


@dataclass(slots=True)
class Request:
    """One answer. Seconds; ``tok_s`` is ``None`` for an answer too short to have a rate. ``error`` is a code or a fault's name."""

    ttft_s: float | None = None
    tok_s: float | None = None
    error: str = ""

    @property
    def met(self) -> bool:
        fast = self.ttft_s is not None and self.ttft_s <= TTFT_P99_S
        return not self.error and fast and (self.tok_s is None or self.tok_s >= STREAM_TOK_S)


@dataclass(slots=True)
class Load:
    """All requests of one rate."""

    rate: float
    requests: list[Request] = field(default_factory=list)

    @property
    def ttfts(self) -> list[float]:
        return [request.ttft_s if request.ttft_s is not None else 60.0 for request in self.requests]

    @property
    def rates(self) -> list[float]:
        return [request.tok_s for request in self.requests if request.tok_s is not None]

    @property
    def met_share(self) -> float:
        return sum(request.met for request in self.requests) / len(self.requests)

    @property
    def errors(self) -> list[str]:
        return [request.error for request in self.requests if request.error]

    @property
    def refused(self) -> int:
        return sum(request.error == "high_demand" for request in self.requests)

    @property
    def holds(self) -> bool:
        """Whether all promises hold; with fewer than 300 requests none may miss the bound of p99."""
        late = sum(ttft > TTFT_P99_S for ttft in self.ttfts) / len(self.ttfts)
        slow = any(rate < STREAM_TOK_S for rate in self.rates)
        return median(self.ttfts) <= TTFT_P50_S and late <= 0.01 and not slow and not self.errors

    def __str__(self) -> str:
        slowest = min(self.rates, default=0.0)
        return (
            f"{self.rate:.2f}/s, {len(self.requests)} requests: TTFT p50 {median(self.ttfts):.3f} s, max {max(self.ttfts):.2f} s, "
            f"slowest stream {slowest:.1f} tok/s, met {self.met_share:.4f}, errors {len(self.errors)}"
        )


class Users:
    """HTTP clients without number, in one event loop."""

    def __init__(self, server: Served, session: aiohttp.ClientSession) -> None:
        self._url = server.url
        self._session = session
        self._headers = {"Authorization": f"Bearer {server.key}"}
        self._chats = 0

    async def load(self, rate: float, seconds: float, seed: int) -> Load:
        """Chats arrive for ``seconds`` at ``rate`` requests a second; returns when the last has ended."""
        rng = random.Random(seed)
        load = Load(rate)
        start, at = time.perf_counter(), 0.0
        async with asyncio.TaskGroup() as group:
            while at < seconds:
                await asyncio.sleep(max(start + at - time.perf_counter(), 0.0))
                self._chats += 1
                questions = [f"({self._chats}.{turn}) {rng.choice(QUESTIONS)}" for turn in range(TURNS)]
                group.create_task(self._chat(load, [f"{SYSTEM_PROMPT}\n\n{questions[0]}", *questions[1:]], rng.randrange(1 << 31)))
                at += rng.expovariate(rate / TURNS)
        return load

    async def _chat(self, load: Load, questions: Sequence[str], seed: int) -> None:
        """A chat ends with its first error; turns it never came to are not counted."""
        conversation = ""
        for turn, question in enumerate(questions):
            request = Request()
            load.requests.append(request)
            try:
                async with asyncio.timeout(120):
                    conversation = conversation or await self._conversation()
                    await self._ask(request, conversation, question, seed + turn)
            except (aiohttp.ClientError, TimeoutError) as fault:
                request.error = type(fault).__name__
            if request.error:
                return

    async def _conversation(self) -> str:
        async with self._session.post(f"{self._url}/v1/conversations", json={}, headers=self._headers) as response:
            response.raise_for_status()
            return str((await response.json())["id"])

    async def _ask(self, request: Request, conversation: str, question: str, seed: int) -> None:
        body = {"content": question, "params": {"max_tokens": MAX_TOKENS, "seed": seed}}
        url = f"{self._url}/v1/conversations/{conversation}/messages"
        start = time.perf_counter()
        first = last = 0.0
        kind = ""
        async with self._session.post(url, json=body, headers=self._headers) as response:
            if response.status != 200:
                request.error = str((await response.json()).get("code", response.status))
                return
            request.error = "no_end"
            async for line in response.content:
                if line.startswith(b"event: "):
                    kind = line[7:].strip().decode()
                elif line.startswith(b"data: ") and kind == "delta":
                    last = time.perf_counter()
                    first = first or last
                    request.ttft_s = first - start
                elif line.startswith(b"data: ") and kind in {"done", "error"}:
                    data = json.loads(line[6:])
                    request.error = "" if kind == "done" else str(data["code"])
                    tokens = int(data.get("output_tokens") or 0)
                    if request.ttft_s is None:
                        request.ttft_s = time.perf_counter() - start
                    elif tokens >= RATED_TOKENS and last > first:
                        request.tok_s = (tokens - 1) / (last - first)


async def search(users: Users, *, seconds: float, halvings: int, seed: int) -> float:
    """The highest rate found to hold: doubling until one does not, then halving the interval."""
    low, high, number = 0.0, 2.0, 0
    while True:
        load = await users.load(high, seconds, seed + number)
        progress(f"  {load} -> {'holds' if load.holds else 'does not'}")
        number += 1
        if not load.holds:
            break
        low, high = high, high * 1.6
    for _ in range(halvings):
        rate = (low + high) / 2
        load = await users.load(rate, seconds, seed + number)
        progress(f"  {load} -> {'holds' if load.holds else 'does not'}")
        number += 1
        low, high = (rate, high) if load.holds else (low, rate)
    return low


async def measure(server: Served, report: Report, *, quick: bool) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        users = Users(server, session)
        await users.load(3.0, 2.0, 99)
        highest = await search(users, seconds=12.0 if quick else 45.0, halvings=2 if quick else 3, seed=report.seed)
        if highest == 0.0:
            raise SystemExit("no rate holds")
        rated = 0.6 * highest
        load = await users.load(rated, (40.0 if quick else 330.0 / rated), report.seed + 100)
        progress(f"at 60 %: {load}")
        flood = await users.load(FAR_TOO_MUCH * highest, 5.0 if quick else FAR_TOO_LONG_S, report.seed + 200)
        progress(
            f"at {FAR_TOO_MUCH:g} times the highest: {len(flood.requests)} requests, {flood.refused} refused, {hard(flood)} hard errors"
        )
    report.n = len(load.requests)
    report.results["max_rate_per_s"] = round(highest, 3)
    report.results["rated_per_s"] = round(rated, 3)
    report.results["ttft_ms_p50"] = round(1e3 * median(load.ttfts), 1)
    if len(load.ttfts) >= 300:
        report.results["ttft_ms_p99"] = round(1e3 * percentile(load.ttfts, 0.99), 1)
    report.results["stream_tok_s_min"] = round(min(load.rates), 1)
    report.results["met_share"] = round(load.met_share, 4)
    report.results["hard_errors"] = float(len(load.errors) + hard(flood))
    report.results["refused_share_at_10x"] = round(flood.refused / len(flood.requests), 3)


def hard(load: Load) -> int:
    """Errors that are no honest refusal."""
    return len(load.errors) - load.refused


def main() -> None:
    asked = options("slo")
    report = Report("slo", DEFAULT_MODEL, asked.seed)
    with served(CONFIG) as server:
        asyncio.run(measure(server, report, quick=asked.quick))
    report.print_json()


if __name__ == "__main__":
    main()
