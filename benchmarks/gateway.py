"""What the gateway adds, and what it protects: the whole product over HTTP, before the reference engine.

Added time: the same requests over ``/v1/chat/completions`` and straight to a replica over its own socket, in turn, ABBA, 60
streams at once. Overload: three plans, open loop, from below what the pool can take to ten times that. Obedient clients: 200
that come back when they are told. Flooder: eight users of whom one sends twenty times as much. Cancels in
all phases.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from antiphon.core.messages import Role
from antiphon.engines.base import PromptMessage, ReplicaSpec
from antiphon.engines.reference import ReferenceTokenizer
from benchmarks.chats import Chat
from benchmarks.replica_client import engine_request, generate, replica
from benchmarks.report import Report, median, options, percentile, progress
from benchmarks.served import Served, served

STREAMS = 60
"""At once; the replica has 64 rows."""
TOKENS = 24
RATE_TOK_S = 12.0
TOKENIZER = ReferenceTokenizer()
SPEC = ReplicaSpec("bench", "reference", "reference", "", prefill_tokens_per_s=50000, output_tokens_per_s=RATE_TOK_S, blocks=4096)
PLANS = {"top": ("high", 1.5), "middle": ("standard", 3.0), "basic": ("low", 10.0)}
SHARES = {"top": 0.2, "middle": 0.3, "basic": 0.5}
POOL = """
[[pools]]
name = "small"
engine = "reference"
output_tokens_per_s = {rate}
prefill_tokens_per_s = 50000
blocks = {blocks}
queue_limit = {limit}
[timing]
detached_grace_seconds = 1
"""
PLAN = """
[[plans]]
name = "{name}"
models = ["small"]
priority = "{priority}"
tokens_per_minute = 1000000000
requests_per_minute = 10000000
concurrency = 100000
ttft_limit_ms = {limit_ms}
max_output_tokens = 256
"""


def config(*, blocks: int, limit: int = 200, rate: float = RATE_TOK_S) -> str:
    plans = "".join(
        PLAN.format(name=name, priority=priority, limit_ms=round(1000 * limit_s)) for name, (priority, limit_s) in PLANS.items()
    )
    return POOL.format(rate=rate, blocks=blocks, limit=limit) + plans + '[defaults]\nplan = "top"\n'


@dataclass(slots=True)
class Fate:
    """One attempt, in seconds since it was sent. ``code`` is empty for an answer that came to its end."""

    plan: str
    sent_s: float
    first_s: float | None = None
    tokens: int = 0
    code: str = ""
    retry_s: float = 0.0
    positions: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    eta_s: float | None = None


class People:
    """Users of several plans, each with a key, who talk to one server."""

    def __init__(self, server: Served, session: aiohttp.ClientSession, keys: dict[str, list[str]]) -> None:
        self._server, self._session, self._keys = server, session, keys
        self._conversations: dict[str, list[str]] = {}
        self.began = time.perf_counter()

    async def ask(self, plan: str, user: int, *, tokens: int) -> Fate:
        """One message in a conversation of its own."""
        key = self._keys[plan][user % len(self._keys[plan])]
        headers = {"Authorization": f"Bearer {key}"}
        fate = Fate(plan, time.perf_counter() - self.began)
        try:
            async with asyncio.timeout(120):
                conversation = await self._conversation(headers)
                await self._send(fate, conversation, headers, tokens)
        except (aiohttp.ClientError, TimeoutError) as fault:
            fate.code = type(fault).__name__
        return fate

    async def _conversation(self, headers: dict[str, str]) -> str:
        async with self._session.post(f"{self._server.url}/v1/conversations", json={}, headers=headers) as response:
            return str((await response.json())["id"])

    async def _send(self, fate: Fate, conversation: str, headers: dict[str, str], tokens: int) -> None:
        body = {"content": f"tell me about {random.random()}", "params": {"max_tokens": tokens}}
        fate.sent_s = time.perf_counter() - self.began
        start, name = time.perf_counter(), ""
        async with self._session.post(f"{self._server.url}/v1/conversations/{conversation}/messages", json=body, headers=headers) as answer:
            if answer.status != 200:
                problem = await answer.json()
                fate.code, fate.retry_s = str(problem["code"]), problem.get("retry_after_ms", 1000) / 1000
                return
            fate.code = "no_end"
            async for line in answer.content:
                if line.startswith(b"event: "):
                    name = line[7:].strip().decode()
                elif line.startswith(b"data: "):
                    self._note(fate, name, json.loads(line[6:]), time.perf_counter() - start)

    def _note(self, fate: Fate, name: str, data: dict[str, object], elapsed_s: float) -> None:
        if name == "status" and data["state"] == "queued":
            fate.positions.append((time.perf_counter() - self.began, int(str(data["position"]))))
            if fate.eta_s is None and data["eta_ms"] is not None:
                fate.eta_s = elapsed_s + float(str(data["eta_ms"])) / 1000
        elif name == "delta" and fate.first_s is None:
            fate.first_s = elapsed_s
        elif name == "done":
            fate.code, fate.tokens = "", int(str(data["output_tokens"]))
        elif name == "error":
            fate.code = str(data["code"])


# --- added time -------------------------------------------------------------------------------------


async def over_http(server: Served, session: aiohttp.ClientSession, prompt: str) -> tuple[float, int]:
    """Seconds to the first token of one completion, and how many batches brought its tokens."""
    body = {"model": "small", "messages": [{"role": "user", "content": prompt}], "stream": True, "max_tokens": TOKENS}
    start, first, batches = time.perf_counter(), 0.0, 0
    async with session.post(f"{server.url}/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {server.key}"}) as answer:
        answer.raise_for_status()
        async for line in answer.content:
            if line.startswith(b"data: {") and b'"content":"' in line and b'"role"' not in line:
                batches += 1
                first = first or time.perf_counter() - start
    return first, batches


async def wave(ask: object, count: int, seed: int) -> list[float]:
    """``STREAMS`` streams at once, each new one as another ends; TTFTs."""
    assert callable(ask)
    rng, ttfts, numbers = random.Random(seed), [], iter(range(count))

    async def stream() -> None:
        await asyncio.sleep(rng.random() * TOKENS / RATE_TOK_S)
        ttfts.extend([await ask(f"({seed}.{number}) tell me about the river and the boat") for number in numbers])

    async with asyncio.TaskGroup() as group:
        for _ in range(STREAMS):
            group.create_task(stream())
    return ttfts


async def added(report: Report, *, quick: bool) -> None:
    count, rounds = (200, 1) if quick else (350, 3)
    with served(config(blocks=4096, limit=400)) as server:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session, replica(SPEC) as client:
            batches = 0
            cpu_s = 0.0
            ours: list[float] = []
            theirs: list[float] = []

            async def http(prompt: str) -> float:
                nonlocal batches
                first, count = await over_http(server, session, prompt)
                batches += count
                return first

            async def direct(prompt: str) -> float:
                ids = tuple(
                    TOKENIZER.prompt([PromptMessage(Role.SYSTEM, "You are a helpful assistant."), PromptMessage(Role.USER, prompt)])
                )
                request = engine_request(Chat(0, (ids,), TOKENS, 1, 0.0), ids, 1, prompt)
                return (await generate(client, request)).ttft_s

            await wave(http, 100, 900)
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
    report.results["cpu_ms_per_batch"] = round(1e3 * cpu_s / (count * rounds * TOKENS), 3)


def cpu_seconds(pid: int) -> float:
    """Processor time of one process, its children left out."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- overload ---------------------------------------------------------------------------------------


async def open_loop(people: People, rate: float, seconds: float, seed: int) -> list[Fate]:
    rng, tasks, at = random.Random(seed), [], 0.0
    people.began = start = time.perf_counter()
    number = 0
    while at < seconds:
        await asyncio.sleep(max(start + at - time.perf_counter(), 0.0))
        plan = rng.choices(list(SHARES), list(SHARES.values()))[0]
        tasks.append(asyncio.create_task(people.ask(plan, number, tokens=rng.choice((16, 32, 48, 64)))))
        number += 1
        at += rng.expovariate(rate)
    return [await task for task in tasks]


def goodput(fates: Sequence[Fate], seconds: float) -> float:
    met = [fate for fate in fates if not fate.code and fate.first_s is not None and fate.first_s <= PLANS[fate.plan][1]]
    return sum(fate.tokens for fate in met) / seconds


def risen(fates: Sequence[Fate]) -> int:
    """Clients whose position rose though nobody of a higher plan was let in meanwhile."""
    order = list(PLANS)
    count = 0
    for fate in fates:
        for (before_s, before), (after_s, after) in zip(fate.positions, fate.positions[1:], strict=False):
            above = [other for other in fates if order.index(other.plan) < order.index(fate.plan) and other.code != "high_demand"]
            if after > before and not any(before_s - 0.5 <= other.sent_s <= after_s for other in above):
                count += 1
                break
    return count


async def overload(report: Report, *, quick: bool, seed: int) -> None:
    capacity = 4.0
    seconds = 15.0 if quick else 45.0
    best, at_ten, errors = 0.0, 0.0, Counter[str]()
    etas: list[tuple[float, float]] = []
    tops: list[float] = []
    rises = alive = 0
    with served(config(blocks=64)) as server:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            people = People(server, session, keys_of(server, 6))
            for factor in (0.75, 1.25, 2.0, 10.0):
                watch = asyncio.create_task(liveness(server, session))
                fates = await open_loop(people, factor * capacity, seconds, seed)
                watch.cancel()
                alive += (await asyncio.gather(watch, return_exceptions=True))[0] is not False
                value = goodput(fates, seconds)
                best, at_ten = max(best, value), value
                errors.update(fate.code for fate in fates if fate.code)
                let_in = [fate for fate in fates if not fate.code and fate.first_s is not None]
                if factor >= 2:
                    etas += [
                        (fate.eta_s, fate.first_s)
                        for fate in let_in
                        if fate.eta_s is not None and fate.first_s is not None and fate.first_s >= 2
                    ]
                    tops += [fate.first_s for fate in let_in if fate.plan == "top" and fate.first_s is not None]
                rises += risen(fates)
                counts = Counter(fate.code or "served" for fate in fates)
                progress(f"overload {factor:g}x: goodput {value:.0f} tok/s, {dict(counts)}, rises {risen(fates)}")
    wrong = sorted(abs(eta - actual) / actual for eta, actual in etas)
    report.n += sum(errors.values())
    report.results["overload_goodput_share"] = round(at_ten / best, 3)
    report.results["top_ttft_s_p99"] = round(sorted(tops)[min(int(0.99 * len(tops)), len(tops) - 1)], 3) if tops else None
    report.results["eta_samples"] = float(len(wrong))
    report.results["eta_median_error"] = round(wrong[len(wrong) // 2], 3) if wrong else None
    report.results["eta_p90_error"] = round(wrong[int(0.9 * len(wrong))], 3) if wrong else None
    report.results["positions_risen"] = float(rises)
    report.results["hard_errors"] = float(sum(count for code, count in errors.items() if code != "high_demand"))
    report.results["liveness_failures"] = float(4 - alive)


async def liveness(server: Served, session: aiohttp.ClientSession) -> bool:
    while True:
        async with session.get(f"{server.url}/healthz", timeout=aiohttp.ClientTimeout(total=5)) as answer:
            if answer.status != 200:
                return False
        await asyncio.sleep(0.5)


def keys_of(server: Served, users: int) -> dict[str, list[str]]:
    """``users`` users of each plan, and a key for each."""
    keys: dict[str, list[str]] = {}
    for plan in PLANS:
        for number in range(users):
            name = f"{plan}-{number}"
            user = command(server, "users", "create", name, "--plan", plan)
            keys.setdefault(plan, []).append(command(server, "keys", "create", "--name", name, "--user", user))
    return keys


def command(server: Served, *arguments: str) -> str:
    line = [sys.executable, "-m", "antiphon", *arguments, "--data", str(server.data), "--config", str(server.data / "antiphon.toml")]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout.strip()


# --- obedient clients, flooder, cancels -----------------------------------------------------------------


async def obedient(report: Report, *, quick: bool) -> None:
    clients = 60 if quick else 200
    attempts: list[float] = []
    with served(config(blocks=64, limit=40)) as server:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            people = People(server, session, keys_of(server, 2))

            async def client(number: int) -> bool:
                await asyncio.sleep(number % 20)
                for _ in range(20):
                    fate = await people.ask("middle", number, tokens=32)
                    attempts.append(fate.sent_s)
                    if not fate.code:
                        return True
                    await asyncio.sleep(fate.retry_s)
                return False

            outcomes = await asyncio.gather(*(client(number) for number in range(clients)))
    seconds = max(attempts) - min(attempts) + 1
    busiest = max(Counter(int(at) for at in attempts).values())
    report.results["obedient_served_share"] = sum(outcomes) / clients
    report.results["obedient_attempts_per_request"] = round(len(attempts) / clients, 3)
    report.results["obedient_busiest_over_mean"] = round(busiest / (len(attempts) / seconds), 2)
    progress(f"obedient: served {sum(outcomes)} of {clients}, {len(attempts)} attempts in {seconds:.0f} s, at most {busiest} a second")


async def flooder(*, seconds: float) -> float:
    """Eight users of one plan, all with something waiting; the least served of the others against an eighth of all."""
    text = config(blocks=64, limit=1000).replace("ttft_limit_ms = 3000", "ttft_limit_ms = 600000")
    with served(text) as server:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            people = People(server, session, keys_of(server, 8))
            tokens = Counter[int]()
            over = time.perf_counter() + seconds

            async def chat(user: int) -> None:
                while time.perf_counter() < over:
                    fate = await people.ask("middle", user, tokens=32)
                    if time.perf_counter() < over:
                        tokens[user] += fate.tokens
                    if fate.code:
                        await asyncio.sleep(0.1)

            tasks = [asyncio.create_task(chat(user)) for user in range(8) for _ in range(80 if user == 0 else 4)]
            await asyncio.sleep(seconds)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return min(tokens[user] for user in range(1, 8)) / (sum(tokens.values()) / 8)


async def cancels(report: Report, *, quick: bool, seed: int) -> None:
    """Clients of completions that go away while waiting, in prefill and decoding; then everything is as at the start."""
    rng, count = random.Random(seed), 60 if quick else 200
    with served(config(blocks=64)) as server:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            operator = command(server, "keys", "create", "--name", "operator", "--scopes", "admin")

            async def pools() -> dict[str, object]:
                async with session.get(f"{server.url}/v1/admin/pools", headers={"Authorization": f"Bearer {operator}"}) as answer:
                    return dict((await answer.json())[0])

            async def leave(number: int) -> None:
                try:
                    async with asyncio.timeout(rng.uniform(0.01, 4.0)):
                        await over_http(server, session, f"cancel {number}")
                except (TimeoutError, aiohttp.ClientError):
                    return

            await asyncio.gather(*(leave(number) for number in range(count)))
            await asyncio.sleep(2.0)
            after = await pools()
    replica = after["replicas"][0]  # type: ignore[index]
    left = replica["running"] + replica["waiting"] + replica["blocks"]["held"] + sum(band["waiting"] for band in after["queue"])  # type: ignore[union-attr]
    report.results["left_after_cancels"] = float(left)


async def measure(report: Report, *, quick: bool) -> None:
    await added(report, quick=quick)
    await overload(report, quick=quick, seed=report.seed)
    await obedient(report, quick=quick)
    fair = await flooder(seconds=15 if quick else 40)
    report.results["flooder_min_share"] = round(fair, 3)
    progress(f"flooder: {fair:.3f}")
    await cancels(report, quick=quick, seed=report.seed)


def main() -> None:
    asked = options("gateway")
    report = Report("gateway", "reference", asked.seed)
    asyncio.run(measure(report, quick=asked.quick))
    report.print_json()


if __name__ == "__main__":
    main()
