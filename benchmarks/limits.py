"""The Redis limiter: pairs of reserve and reconcile per second, beside scripts that do nothing on the same Redis in the same run.

A pair is a turn's whole demand: tokens and requests of user, key and tenant, concurrency, a message cap and a budget, held in one
script and reconciled in another. ``empty`` goes through the same connection, the product's own, with the same keys and arguments, and
its script returns at once; what the limiter does with an answer is not on its account. Two processes of eight callers each; the same of
sixty-four, whose calls travel together (pipelined); then a rate of a thousand a second, from the moment at which each was due. ``drift``
compares random steps of many processes with the sequential machine.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from antiphon.app.system import SystemClock
from antiphon.core.errors import StoreUnavailable
from antiphon.core.ids import GenerationId, TenantId
from antiphon.core.limits import Budget, Cap, Concurrency, Granted, Limit, Measure, Outcome, Rate, Reservation
from antiphon.stores.limits.redis import Demand, RedisLimiter, prefix_of, words_of
from antiphon.stores.limits.redis_link import RedisAddress, RedisLink
from benchmarks.report import Report, median, options, percentile, progress
from tests.contracts.drift import drift
from tests.redis_server import RedisServer

EMPTY = "return 1"
KINDS = ("real", "empty", "pipelined")
PROCESSES = 2
CALLERS = 8
PIPELINED = 64
ROUNDS = 14


@dataclass(frozen=True, slots=True)
class Part:
    """What one process measured."""

    pairs: int
    seconds: float


def limits_of(caller: int) -> tuple[Limit, ...]:
    user = f"user:{caller}"
    return (
        Rate(user, Measure.TOKENS, 100_000_000),
        Rate(user, Measure.REQUESTS, 10_000_000),
        Concurrency(user, 64),
        Cap(user, "large", 1_000_000, 3000),
        Rate(f"key:{caller}", Measure.TOKENS, 100_000_000),
        Rate("tenant", Measure.TOKENS, 1_000_000_000),
        Budget("tenant", "2026-11", 10**15, 86_400_000),
    )


def pair_of(process: int, caller: int, number: int) -> tuple[Reservation, Outcome]:
    tenant, name = TenantId(f"tenant_{process}_{caller % 4}"), GenerationId(f"gen_{process}_{caller}_{number}")
    limits = limits_of(caller)
    return Reservation(tenant, name, 900, 1000, limits), Outcome(tenant, name, 300, 400, limits)


def script_words(asked: Reservation | Outcome) -> tuple[str | int | bytes, ...]:
    """What the limiter would say of it, its last sight of the tenant's time included."""
    return time.time_ns() // 1_000_000, 0, *words_of(asked, Demand(asked.limits))


async def real_callers(url: str, process: int, seconds: float, callers: int = CALLERS) -> Part:
    limiter = RedisLimiter.connect(url, SystemClock())
    end, pairs = time.perf_counter() + seconds, 0

    async def call(caller: int) -> None:
        nonlocal pairs
        number = 0
        while time.perf_counter() < end:
            reservation, outcome = pair_of(process, caller, time.time_ns() + number)
            verdict = await limiter.reserve(reservation)
            assert isinstance(verdict, Granted)
            assert verdict.standings[0].remaining and verdict.standings[1].remaining  # what a turn's headers tell
            assert await limiter.reconcile(outcome)
            pairs, number = pairs + 1, number + 1

    start = time.perf_counter()
    await asyncio.gather(*(call(caller) for caller in range(callers)))
    await limiter.close()
    return Part(pairs, time.perf_counter() - start)


async def empty_callers(url: str, process: int, seconds: float) -> Part:
    link = RedisLink(RedisAddress.parse(url))
    sha1 = await link.call("SCRIPT", "LOAD", EMPTY)
    assert isinstance(sha1, bytes)
    end, pairs = time.perf_counter() + seconds, 0

    async def call(caller: int) -> None:
        nonlocal pairs
        while time.perf_counter() < end:
            reservation, outcome = pair_of(process, caller, time.time_ns())
            prefix = prefix_of(reservation.tenant_id)
            await link.call("EVALSHA", sha1, 1, prefix, "reserve", *script_words(reservation))
            await link.call("EVALSHA", sha1, 1, prefix, "reconcile", *script_words(outcome))
            pairs += 1

    start = time.perf_counter()
    await asyncio.gather(*(call(caller) for caller in range(CALLERS)))
    await link.close()
    return Part(pairs, time.perf_counter() - start)


async def offered(url: str, rate: int, seconds: float) -> list[float]:
    """Milliseconds from when each pair was due until its end, at ``rate`` pairs a second."""
    limiter = RedisLimiter.connect(url, SystemClock())
    took: list[float] = []

    async def one(number: int, due: float) -> None:
        reservation, outcome = pair_of(9, number % 64, time.time_ns())
        with suppress(StoreUnavailable):  # a second without a connection: told by the time it took
            await limiter.reserve(reservation)
            await limiter.reconcile(outcome)
        took.append(1000 * (time.perf_counter() - due))

    await asyncio.gather(*(one(number, time.perf_counter()) for number in range(64)))  # the connection is opened
    took.clear()
    start, tasks = time.perf_counter(), []
    for number in range(int(rate * seconds)):
        due = start + number / rate
        pause = due - time.perf_counter()
        if pause > 0:
            await asyncio.sleep(pause)
        tasks.append(asyncio.create_task(one(number, due)))
    await asyncio.gather(*tasks)
    await limiter.close()
    return took


def run_offered(url: str, rate: int, seconds: float) -> list[float]:
    """In a process whose collector has as little to look through as a server's."""
    import gc

    import uvloop

    gc.collect()
    gc.freeze()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(offered(url, rate, seconds))


def run_part(kind: str, url: str, process: int, seconds: float) -> Part:
    import gc

    import uvloop

    gc.freeze()
    measures = {
        "real": real_callers,
        "empty": empty_callers,
        "pipelined": partial(real_callers, callers=PIPELINED),
    }
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(measures[kind](url, process, seconds))


def main() -> None:
    asked = options("limits")
    report = Report("limits", model="none", seed=asked.seed)
    seconds = 0.5 if asked.quick else 2.0
    with tempfile.TemporaryDirectory(prefix="limits") as folder:
        server = RedisServer(Path(folder))
        server.start()
        try:
            measure(report, server.url, seconds=seconds, quick=asked.quick)
        finally:
            server.stop()
    report.print_json()


def measure(report: Report, url: str, *, seconds: float, quick: bool) -> None:
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        for number in range(ROUNDS):
            for kind in KINDS if number % 2 == 0 else KINDS[::-1]:
                parts = pool.starmap(run_part, [(kind, url, process, seconds) for process in range(PROCESSES)])
                found[kind].append(sum(part.pairs / part.seconds for part in parts))
                report.n += sum(part.pairs for part in parts)
                progress(f"{kind}: {found[kind][-1]:.0f} pairs/s")
        took = pool.apply(run_offered, (url, 1000, 4.0 if quick else 15.0))
    for kind, rates in found.items():
        name = {"real": "pairs_per_s", "pipelined": "pairs_per_s_pipelined", "empty": "empty_pairs_per_s"}[kind]
        report.results[name] = round(median(rates))
    ratios = [one / other for one, other in zip(found["real"], found["empty"], strict=True)]
    report.ratios["pairs_vs_empty_scripts"] = round(median(ratios), 3)
    report.results["pair_ms_p50"] = round(percentile(took, 0.5), 2)
    report.results["pair_ms_p99"] = round(percentile(took, 0.99), 2)
    progress(f"at 1000 pairs/s: p99 {report.results['pair_ms_p99']} ms")
    compared = drift(url, processes=4 if quick else 16, operations=300 if quick else 10_000, seed=report.seed)
    report.results |= {"drift": compared.wrong, "drift_steps": compared.steps, "drift_refused": compared.refused}


if __name__ == "__main__":
    main()
