"""What the replica must withstand, in virtual time on a machine with measured step times."""

from __future__ import annotations

import random
from itertools import pairwise

from antiphon.engines.base import ExecutorShape, SampledToken, StepPlan, StepResult
from antiphon.inference.scheduler import Scheduler
from antiphon.inference.step_time import StepLoad
from tests.inference.requests import engine_request

MEASURED_MS = (13.8, 0.44, 0.51, 0.0021, 0.00023)
SHAPE = ExecutorShape(2048, 32, 8192, 50_000, frozenset({2}), 512)


class Machine:
    """A scheduler, the time its steps take, and when each request got which token."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(SHAPE)
        self.rng = random.Random(0)
        self.now = 0.0
        self.tokens: dict[int, list[float]] = {}
        self.sent: dict[int, float] = {}
        self.decoding: set[int] = set()
        self.skipped = 0

    def send(self, number: int, prompt: list[int], max_tokens: int, tenant: str = "tenant") -> None:
        self.scheduler.submit(number, engine_request(prompt, tenant=tenant, max_tokens=max_tokens), self.now)
        self.sent[number] = self.now
        self.tokens[number] = []

    def step(self) -> None:
        plan = self.scheduler.plan(self.now)
        assert plan is not None
        seconds = seconds_of(plan) * self.rng.uniform(0.95, 1.05)
        self.skipped += len(self.decoding - {step.sequence_id for step in plan.sequences})
        self.now += seconds
        sampled = tuple(SampledToken(step.sequence_id, self.rng.randrange(3, 50_000)) for step in plan.sequences if step.sample)
        for output in self.scheduler.apply(StepResult(sampled, seconds, 0.0), self.now):
            if output.token_id is not None:
                self.tokens[output.sequence_id].append(self.now)
                self.decoding.add(output.sequence_id)
            if output.ended is not None:
                self.decoding.discard(output.sequence_id)

    def ttft(self, number: int) -> float:
        return self.tokens[number][0] - self.sent[number]


def seconds_of(plan: StepPlan) -> float:
    load = StepLoad()
    for step in plan.sequences:
        if len(step.token_ids) == 1:
            load.add_row(step.past_tokens)
        else:
            load.add_chunk(step.past_tokens, len(step.token_ids))
    return sum(value * term for value, term in zip(MEASURED_MS, load.terms(), strict=True)) / 1000


def noise(rng: random.Random, tokens: int) -> list[int]:
    return [rng.randrange(3, 50_000) for _ in range(tokens)]


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


def gaps(machine: Machine, numbers: range, since: float, until: float) -> list[float]:
    times = [machine.tokens[number] for number in numbers]
    return [b - a for each in times for a, b in pairwise(each) if b > since and a < until]


def test_a_long_prompt_among_eight_disturbs_them_little_and_is_not_starved() -> None:
    alone = Machine()
    alone.send(99, noise(alone.rng, 4000), 2)
    while not alone.tokens[99]:
        alone.step()
    busy = Machine()
    system = noise(busy.rng, 400)
    for number in range(8):
        busy.send(number, [*system, number + 3, 7, 7, 7], 1500)
    while busy.now < 3.0:
        busy.step()
    busy.send(99, noise(busy.rng, 4000), 2, "intruder")
    while not busy.tokens[99]:
        busy.step()
    arrived = busy.sent[99]
    calm = percentile(gaps(busy, range(8), 1.0, arrived), 0.95)
    assert percentile(gaps(busy, range(8), arrived, busy.now), 0.95) <= 2.5 * calm
    assert busy.ttft(99) <= 4 * alone.ttft(99)
    assert busy.skipped == 0


def test_short_turns_beside_decoding_start_at_once() -> None:
    machine = Machine()
    system = noise(machine.rng, 400)
    machine.send(0, [*system, 5], 4000)
    for number in range(1, 60):
        while machine.now < 0.5 * number:
            machine.step()
        machine.send(number, [*system, *noise(machine.rng, machine.rng.randrange(15, 60))], 8)
    while any(not machine.tokens[number] for number in range(1, 60)):
        machine.step()
    waits = [machine.ttft(number) for number in range(1, 60)]
    assert percentile(waits, 0.5) <= 0.075
    assert percentile(waits, 0.99) <= 0.11
    assert percentile(gaps(machine, range(1), 0.5, machine.now), 0.95) <= 0.055


def test_a_burst_is_answered_from_its_beginning_on() -> None:
    machine = Machine()
    system = noise(machine.rng, 400)
    machine.send(0, [*system, 5], 1)
    machine.step()
    for number in range(1, 17):
        machine.send(number, [*system, *noise(machine.rng, 27)], 32)
    while any(not machine.tokens[number] for number in range(1, 17)):
        machine.step()
    waits = [machine.ttft(number) for number in range(1, 17)]
    whole = (MEASURED_MS[0] + 16 * 27 * MEASURED_MS[2]) / 1000
    assert min(waits) <= 0.4 * whole
    assert percentile(waits, 0.5) <= whole
    assert max(waits) <= 2 * whole


def test_five_hundred_cancels_in_all_phases_leave_no_block_behind() -> None:
    machine = Machine()
    rng = machine.rng
    open_: list[int] = []
    before = machine.scheduler.state.blocks
    for number in range(500):
        machine.send(number, noise(rng, rng.choice((5, 120, 600, 1500))), rng.choice((1, 20, 200)), f"tenant_{number % 5}")
        open_.append(number)
        for _ in range(rng.randrange(3)):
            if not machine.scheduler.idle:
                machine.step()
        if len(open_) > 12:
            gone = open_.pop(rng.randrange(len(open_)))
            machine.scheduler.cancel(gone, machine.now)
            machine.decoding.discard(gone)
    for gone in open_:
        machine.scheduler.cancel(gone, machine.now)
    machine.scheduler.check()
    after = machine.scheduler.state.blocks
    assert after.held == before.held == 0
    assert after.free + after.cached == before.free
