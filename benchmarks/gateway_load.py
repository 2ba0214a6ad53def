"""What the gateway protects: three plans from below what the pool can take to ten times that, clients that obey, and clients
that leave.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import aiohttp

from benchmarks.gateway_added import cpu_seconds
from benchmarks.gateway_people import PLANS, SHARES, Fate, People, config, keys_of
from benchmarks.report import Report, progress
from benchmarks.served import Served, served

CAPACITY = 10.0
"""Requests a second that the pool of the overload can about take."""
FACTORS = (1.25, 2.0, 10.0)
_SETTLED_S = 5.0
"""What ends sooner does not count: a load that has just begun finds everything empty."""


async def open_loop(people: People, rate: float, seconds: float, seed: int) -> list[Fate]:
    """Arrivals at ``rate``, whatever becomes of them."""
    rng, tasks, at = random.Random(seed), list[asyncio.Task[Fate]](), 0.0
    people.began = start = time.perf_counter()
    while at < seconds:
        await asyncio.sleep(max(start + at - time.perf_counter(), 0.0))
        people.late_s.append(time.perf_counter() - start - at)
        plan = rng.choices(list(SHARES), list(SHARES.values()))[0]
        tasks.append(asyncio.create_task(people.ask(plan, len(tasks), tokens=rng.randint(16, 64))))
        at += rng.expovariate(rate)
    return [await task for task in tasks]


def goodput(fates: Sequence[Fate], seconds: float) -> float:
    """Tokens a second of turns inside their limits, of those that ended while the load lasted."""
    met = [fate for fate in fates if not fate.code and fate.first_s is not None and fate.first_s <= PLANS[fate.plan][1]]
    return sum(fate.tokens for fate in met if _SETTLED_S <= fate.ended_s <= seconds) / (seconds - _SETTLED_S)


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


@dataclass(slots=True)
class Overload:
    """What is collected over all loads."""

    goodput: dict[float, float] = field(default_factory=dict[float, float])
    codes: Counter[str] = field(default_factory=Counter[str])
    etas: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """The first time that was told, and how long it took, of those who waited for two seconds and more."""
    tops_s: list[float] = field(default_factory=list[float])
    late_s: list[float] = field(default_factory=list[float])
    """By how much arrivals came later than they were to: how busy whoever makes the load was."""
    rises: int = 0
    deaf: int = 0
    """How often liveness failed."""

    def add(self, factor: float, fates: Sequence[Fate], seconds: float) -> None:
        self.goodput[factor] = goodput(fates, seconds)
        self.codes.update(fate.code or "served" for fate in fates)
        self.rises += risen(fates)
        if factor >= 2:
            begun = [(fate, fate.first_s) for fate in fates if not fate.code and fate.first_s is not None]
            self.etas += [(fate.eta_s, first_s) for fate, first_s in begun if fate.eta_s is not None and first_s >= 2]
            self.tops_s += [first_s for fate, first_s in begun if fate.plan == "top"]

    def tell(self, report: Report) -> None:
        wrong = sorted(abs(eta_s - actual_s) / actual_s for eta_s, actual_s in self.etas)
        tops, late = sorted(self.tops_s), sorted(self.late_s)
        report.n += self.codes.total()
        report.results |= {
            "overload_goodput_share": round(self.goodput[FACTORS[-1]] / max(self.goodput.values()), 3),
            "overload_peak_tok_s": round(max(self.goodput.values()), 1),
            "top_ttft_s_p99": round(tops[math.ceil(0.99 * len(tops)) - 1], 3),
            "top_turns": float(len(tops)),
            "eta_samples": float(len(wrong)),
            "eta_median_error": round(wrong[len(wrong) // 2], 3) if wrong else None,
            "eta_p90_error": round(wrong[int(0.9 * len(wrong))], 3) if wrong else None,
            "positions_risen": float(self.rises),
            "hard_errors": float(sum(count for code, count in self.codes.items() if code not in {"served", "high_demand"})),
            "liveness_failures": float(self.deaf),
            "load_late_ms_p50": round(1e3 * late[len(late) // 2], 1),
            "load_late_ms_p99": round(1e3 * late[math.ceil(0.99 * len(late)) - 1], 1),
        }


async def overload(report: Report, quick: bool) -> None:
    seconds = 20.0 if quick else 60.0
    seen = Overload()
    with served(config(blocks=128)) as server:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            people = People(server, session, await keys_of(server, 40))
            await people.open_conversations(6 if quick else 16)
            for factor in FACTORS:
                watch = asyncio.create_task(deaf_times(server, session))
                before = cpu_seconds(server.pid), time.process_time(), time.perf_counter()
                fates = await open_loop(people, factor * CAPACITY, seconds, report.seed)
                took_s = time.perf_counter() - before[2]
                busy = (cpu_seconds(server.pid) - before[0]) / took_s, (time.process_time() - before[1]) / took_s
                watch.cancel()
                await asyncio.wait((watch,))
                seen.deaf += 0 if watch.cancelled() else 1
                seen.add(factor, fates, seconds)
                counts = Counter(fate.code or "served" for fate in fates)
                progress(f"overload {factor:g}x: goodput {seen.goodput[factor]:.0f} tok/s, {dict(counts)}, rises {risen(fates)}")
                progress(f"  of a core: server {busy[0]:.2f}, load {busy[1]:.2f}; arrivals late at most {max(people.late_s):.3f} s")
            seen.late_s = people.late_s
    seen.tell(report)
    progress(f"overload: {report.results}")


async def deaf_times(server: Served, session: aiohttp.ClientSession) -> None:
    """Ask for liveness until cancelled; ends by itself, one way or another, when that fails once."""
    while True:
        async with session.get(f"{server.url}/healthz", timeout=aiohttp.ClientTimeout(total=5)) as answer:
            if answer.status != 200:
                return
        await asyncio.sleep(0.5)


async def obedient(report: Report, quick: bool) -> None:
    clients = 60 if quick else 200
    attempts: list[float] = []
    with served(config(blocks=64, limit=40)) as server:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            people = People(server, session, await keys_of(server, 2))

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


async def cancels(report: Report, quick: bool) -> None:
    """Clients of completions that go away while waiting, in prefill and decoding; then everything is as at the start."""
    rng, count = random.Random(report.seed), 60 if quick else 200
    with served(config(blocks=64, limit=400).replace("ttft_limit_ms = 1500", "ttft_limit_ms = 600000")) as server:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            operator = server.key

            async def pools() -> dict[str, object]:
                async with session.get(f"{server.url}/v1/admin/pools", headers={"Authorization": f"Bearer {operator}"}) as answer:
                    return dict((await answer.json())[0])

            async def leave(number: int) -> None:
                try:
                    async with asyncio.timeout(rng.uniform(0.01, 4.0)):
                        body = {
                            "model": "small",
                            "messages": [{"role": "user", "content": f"cancel {number}"}],
                            "stream": True,
                            "max_tokens": 24,
                        }
                        headers = {"Authorization": f"Bearer {server.key}"}
                        async with session.post(f"{server.url}/v1/chat/completions", json=body, headers=headers) as answer:
                            await answer.read()
                except (TimeoutError, aiohttp.ClientError):
                    return

            await asyncio.gather(*(leave(number) for number in range(count)))
            await asyncio.sleep(2.0)
            after = await pools()
    replica = after["replicas"][0]  # type: ignore[index]
    left = replica["running"] + replica["waiting"] + replica["blocks"]["held"] + sum(band["waiting"] for band in after["queue"])  # type: ignore[union-attr]
    report.results["left_after_cancels"] = float(left)
    progress(f"cancels: {left} left of {count}")
