"""Very many requests in virtual time: nothing leaks, nothing starves, every invariant holds."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from antiphon.core.errors import EngineFailed
from antiphon.core.tenancy import Band
from antiphon.engines.base import EngineRequest, ExecutorShape, SampledToken, StepPlan, StepResult
from antiphon.inference.scheduler import Scheduler, SchedulerSettings, SequenceOutput
from antiphon.inference.step_time import StepTimeModel
from tests.inference.requests import engine_request, in_band

BLOCKS, SLOTS, MOST_OPEN = 48, 24, 14
SHAPE = ExecutorShape(BLOCKS, 32, 600, 1000, frozenset({0}), SLOTS)


class VirtualExecutor:
    """Takes as long as a machine would, draws tokens by chance, and keeps of every block what it was filled with.

    A token is a small number; a block's content is the ids of the path to it, so a wrong copy is seen at once.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._model = StepTimeModel()
        self._cells: list[list[int]] = [[] for _ in range(BLOCKS)]
        self._slots: list[list[int]] = [[] for _ in range(SLOTS)]

    def step(self, plan: StepPlan, tokens_of: dict[int, list[int]]) -> StepResult:
        for swap in plan.swap_out:
            self._slots[swap.host_slot] = list(self._cells[swap.device_block])
        for swap in plan.swap_in:
            self._cells[swap.device_block] = list(self._slots[swap.host_slot])
        for copy in plan.copies:
            self._cells[copy.target_block] = list(self._cells[copy.source_block])
        sampled: list[SampledToken] = []
        for step in plan.sequences:
            tokens = tokens_of[step.sequence_id]
            self._compute(step.past_tokens, list(step.token_ids), list(step.block_ids), tokens)
            if step.sample is not None:
                token = 0 if self._rng.random() < 0.08 else self._rng.randrange(1, 4)
                tokens.append(token)
                sampled.append(SampledToken(step.sequence_id, token))
        return StepResult(tuple(sampled), 0.02 + 0.0005 * plan.new_tokens, 0.0)

    def _compute(self, past: int, new: list[int], blocks: list[int], tokens: list[int]) -> None:
        assert tokens[past : past + len(new)] == new
        last = (past - 1) // 32
        if past:
            assert self._cells[blocks[last]][: past - 32 * last] == tokens[32 * last : past], "a block does not hold its tokens"
        for index in range(past // 32, (past + len(new) - 1) // 32 + 1):
            self._cells[blocks[index]] = tokens[32 * index : min(32 * index + 32, past + len(new))]


class Soak:
    """A few requests at a time: new ones, conversations that come back, cancellations, changes of band."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.executor = VirtualExecutor(self.rng)
        self.scheduler = Scheduler(SHAPE, SchedulerSettings(max_rows=10))
        self.now = 0.0
        self.submitted = 0
        self.tokens: dict[int, list[int]] = {}
        self.since: dict[int, float] = {}
        self.requests: dict[int, EngineRequest] = {}
        self.past: list[tuple[str, list[int]]] = []
        self.longest_wait_s = 0.0
        self.steps = 0
        self.computed = 0

    def arrive(self) -> None:
        rng = self.rng
        tenant = f"tenant_{rng.randrange(6)}"
        system = [1, 2, 3] * 12
        if self.past and rng.random() < 0.5:
            tenant, ids = rng.choice(self.past)
        else:
            ids = system
        ids = [*ids, *(rng.randrange(1, 4) for _ in range(rng.choice((3, 20, 20, 60, 200))))][-480:]
        request = in_band(
            engine_request(
                ids, tenant=tenant, max_tokens=rng.choice((1, 10, 60, 120)), public_prefix_tokens=36 if ids[:36] == system else 0
            ),
            rng.choices(list(Band), (1, 1, 6, 2))[0],
        )
        self.submitted += 1
        try:
            reason = self.scheduler.submit(self.submitted, replace(request, weight=rng.choice((1.0, 2.0))), self.now)
        except EngineFailed:
            return
        assert reason is None
        self.tokens[self.submitted] = list(ids)
        self.requests[self.submitted] = request
        self.since[self.submitted] = self.now

    def step(self) -> None:
        rng = self.rng
        while len(self.tokens) < MOST_OPEN and rng.random() < 0.6:
            self.arrive()
        if self.tokens and rng.random() < 0.02:
            self.gone(rng.choice(list(self.tokens)), cancelled=True)
        if self.tokens and rng.random() < 0.02:
            self.scheduler.set_band(rng.choice(list(self.tokens)), rng.choice(list(Band)))
        plan = self.scheduler.plan(self.now)
        if plan is None:
            assert self.scheduler.idle, "work is there and nothing is computed"
            self.now += 0.1
            return
        self.steps += 1
        result = self.executor.step(plan, self.tokens)
        self.now += result.infer_s
        self.computed += plan.new_tokens
        for output in self.scheduler.apply(result, self.now):
            self.took(output)

    def took(self, output: SequenceOutput) -> None:
        if output.token_id is not None:
            self.longest_wait_s = max(self.longest_wait_s, self.now - self.since[output.sequence_id])
            self.since[output.sequence_id] = self.now
        if output.ended is not None:
            self.gone(output.sequence_id, cancelled=False)

    def gone(self, sequence_id: int, *, cancelled: bool) -> None:
        if cancelled:
            assert self.scheduler.cancel(sequence_id, self.now) is not None
        tokens = self.tokens.pop(sequence_id)
        if len(tokens) < 400:
            self.past.append((self.requests[sequence_id].tenant_id, tokens))
            if len(self.past) > 30:
                self.past.pop(self.rng.randrange(30))
        del self.since[sequence_id], self.requests[sequence_id]

    def run(self, requests: int, check_every: int) -> None:
        while self.submitted < requests:
            self.step()
            if self.steps % check_every == 0:
                self.scheduler.check()
                self.scheduler.cache_changes()
        while self.tokens:
            self.gone(next(iter(self.tokens)), cancelled=True)
        self.scheduler.check()
        state = self.scheduler.state
        assert state.blocks.held == 0
        assert state.blocks.free + state.blocks.cached == BLOCKS
        assert state.preemptions > 0
        assert state.recomputed_tokens < 0.05 * self.computed
        assert self.longest_wait_s < 120


def test_a_thousand_requests_with_a_check_after_every_step() -> None:
    Soak(1).run(1_000, 1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_hundred_thousand_requests_with_a_check_after_every_step() -> None:
    Soak(2).run(100_000, 1)


@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_a_million_requests_with_a_check_after_every_hundred_steps() -> None:
    Soak(3).run(1_000_000, 100)
