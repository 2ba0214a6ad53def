"""Many processes do random steps on one Redis; afterwards the pure machine does the same steps in the same order, and must agree.

Redis numbers each tenant's steps and tells their time, so the order in which they happened is known.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
from dataclasses import dataclass, replace

from antiphon.app.system import SystemClock
from antiphon.core.ids import GenerationId, TenantId
from antiphon.core.limits import Budget, Cap, Concurrency, Exhausted, Limit, Measure, Outcome, Rate, Reservation
from antiphon.stores.limits.redis import RedisLimiter, Step
from antiphon.stores.limits.tally import Tally

TENANTS = tuple(TenantId(f"tenant_{number}") for number in range(3))


@dataclass(frozen=True, slots=True)
class Renewal:
    tenant_id: TenantId
    generation_id: GenerationId


@dataclass(frozen=True, slots=True)
class Release:
    tenant_id: TenantId
    generation_id: GenerationId


@dataclass(frozen=True, slots=True)
class Question:
    tenant_id: TenantId
    limits: tuple[Limit, ...]


Act = Reservation | Outcome | Renewal | Release | Question


@dataclass(frozen=True, slots=True)
class Done:
    act: Act
    step: Step
    answer: object


def limits_of(noise: random.Random) -> tuple[Limit, ...]:
    user, model = noise.choice(("u1", "u2", "u3")), noise.choice(("small", "large"))
    return (
        Rate(f"user:{user}", Measure.TOKENS, 100_000),
        Rate(f"user:{user}", Measure.REQUESTS, 6_000),
        Concurrency(f"user:{user}", 8),
        Cap(f"user:{user}", model, 40, 700),
        Rate(f"key:{user}", Measure.TOKENS, noise.choice((60_000, 90_000))),
        Rate("tenant", Measure.TOKENS, 250_000),
        Budget("tenant", "2026-11", 40_000_000, 86_400_000),
    )


def acts(process: int, count: int, seed: int) -> list[Act]:
    """Reservations, most of them reconciled or released later, some twice, some never, some without ever having been made."""
    noise = random.Random(f"{seed}/{process}")
    made: list[Reservation] = []
    found: list[Act] = []
    for number in range(count):
        tenant_id = noise.choice(TENANTS)
        kind = noise.random()
        if kind < 0.45 or not made:
            name = GenerationId(f"gen_{process}_{number}")
            reservation = Reservation(tenant_id, name, noise.randrange(3000), noise.randrange(30_000), limits_of(noise))
            made.append(reservation)
            found.append(reservation)
            continue
        old = noise.choice(made[-40:])
        if kind < 0.85:
            served = limits_of(noise) if noise.random() < 0.2 else old.limits
            counts = noise.random() < 0.9
            found.append(Outcome(old.tenant_id, old.generation_id, noise.randrange(5000), noise.randrange(40_000), served, counts))
        elif kind < 0.91:
            found.append(Release(old.tenant_id, old.generation_id))
        elif kind < 0.96:
            found.append(Renewal(old.tenant_id, old.generation_id))
        else:
            found.append(Question(tenant_id, limits_of(noise)))
    return found


async def act_on(limiter: RedisLimiter, act: Act) -> object:
    match act:
        case Reservation():
            verdict = await limiter.reserve(act)
            return replace(verdict, standings=tuple(verdict.standings))
        case Outcome():
            return await limiter.reconcile(act)
        case Renewal():
            return await limiter.renew(act.tenant_id, act.generation_id)
        case Release():
            return await limiter.release(act.tenant_id, act.generation_id)
        case Question():
            return await limiter.standings(act.tenant_id, act.limits)


def replayed(tally: Tally, act: Act, now_ms: int) -> object:
    match act:
        case Reservation():
            return tally.reserve(act, now_ms)
        case Outcome():
            return tally.reconcile(act, now_ms)
        case Renewal():
            return tally.renew(act.generation_id, now_ms)
        case Release():
            return tally.release(act.generation_id, now_ms)
        case Question():
            return tally.standings(act.limits, now_ms)


def run_process(url: str, process: int, count: int, seed: int) -> list[Done]:
    """One process's steps, one after the other."""

    async def run() -> list[Done]:
        limiter = RedisLimiter.connect(url, SystemClock())
        done: list[Done] = []
        for act in acts(process, count, seed):
            answer = await act_on(limiter, act)
            done.append(Done(act, limiter.last_step, answer))
        await limiter.close()
        return done

    return asyncio.run(run())


@dataclass(frozen=True, slots=True)
class Drift:
    """How the driver and the machine compare: ``wrong`` answers of ``steps``, ``refused`` among them so that limits were felt."""

    steps: int
    wrong: int
    refused: int
    first_wrong: str = ""


def drift(url: str, *, processes: int, operations: int, seed: int) -> Drift:
    """Run it all and compare. Blocking."""
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        parts = pool.starmap(run_process, [(url, process, operations, seed) for process in range(processes)])
    found = Drift(0, 0, 0)
    for tenant_id in TENANTS:
        done = sorted((one for part in parts for one in part if one.act.tenant_id == tenant_id), key=lambda one: one.step.number)
        assert [one.step.number for one in done] == list(range(1, len(done) + 1)), "a step is missing"
        found = _compared(found, done)
    return found


def _compared(found: Drift, done: list[Done]) -> Drift:
    tally = Tally()
    for one in done:
        expected = replayed(tally, one.act, one.step.now_ms)
        tally.check()
        found = replace(found, steps=found.steps + 1, refused=found.refused + isinstance(one.answer, Exhausted))
        if expected != one.answer:
            told = found.first_wrong or f"{one}\nexpected {expected}"
            found = replace(found, wrong=found.wrong + 1, first_wrong=told)
    return found
