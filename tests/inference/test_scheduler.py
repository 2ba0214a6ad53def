from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from antiphon.core.errors import EngineFailed
from antiphon.core.generation import FinishReason
from antiphon.core.tenancy import Band
from antiphon.engines.base import EngineRequest, SampledToken, StepResult
from antiphon.inference.kv_blocks import BlockCounts
from antiphon.inference.scheduler import SchedulerSettings
from antiphon.inference.step_budget import StepTargets
from tests.inference.loop import Loop, rows
from tests.inference.requests import engine_request, in_band


def test_a_long_prompt_is_computed_in_chunks_within_the_budget() -> None:
    loop = Loop()
    tokens, last = loop.run(1, engine_request(range(250), max_tokens=3))
    assert len(tokens) == 3
    assert [plan.new_tokens for plan in loop.plans] == [100, 100, 50, 1, 1]
    assert last.ended is not None
    assert last.ended.reason is FinishReason.LENGTH
    usage = last.ended.usage
    assert (usage.prompt_tokens, usage.cached_tokens, usage.output_tokens) == (250, 0, 3)
    assert (usage.prefill_ms, usage.decode_ms) == (2000, 2000)


def test_decode_rows_take_part_in_every_step_beside_a_prefill() -> None:
    loop = Loop()
    loop.scheduler.submit(1, engine_request(range(10), max_tokens=20), 0.0)
    loop.step()
    loop.scheduler.submit(2, engine_request(range(100, 200), max_tokens=2), 0.0)
    loop.step()
    loop.step()
    assert [rows(plan) for plan in loop.plans[1:]] == [{1: 1, 2: 40}, {1: 1, 2: 40}]


def test_a_second_request_of_the_tenant_finds_the_prefix_and_another_tenant_does_not() -> None:
    loop = Loop()
    first, _ = loop.run(1, engine_request(range(100)))
    second, same_tenant = loop.run(2, engine_request(range(100)))
    _, other_tenant = loop.run(3, engine_request(range(100), tenant="tenant_b"))
    assert same_tenant.ended is not None
    assert other_tenant.ended is not None
    assert same_tenant.ended.usage.cached_tokens == 96
    assert other_tenant.ended.usage.cached_tokens == 0
    assert first == second


def test_the_last_prompt_token_is_always_computed() -> None:
    loop = Loop()
    loop.run(1, engine_request(range(64), max_tokens=40))
    _, output = loop.run(2, engine_request(range(64), max_tokens=1))
    assert output.ended is not None
    assert output.ended.usage.cached_tokens == 63
    assert loop.plans[-1].new_tokens == 1
    assert len(loop.plans[-1].copies) == 1


def test_a_burst_with_one_prefix_computes_it_once() -> None:
    loop = Loop()
    for sequence_id in range(1, 5):
        loop.scheduler.submit(sequence_id, engine_request([*range(96), 200 + sequence_id], max_tokens=2), 0.0)
    while not loop.scheduler.idle:
        loop.step()
    assert sum(plan.new_tokens for plan in loop.plans) == 96 + 4 * 2
    assert len(loop.plans) == 3


def test_an_answer_is_resumed_from_its_ids_with_the_same_tokens() -> None:
    whole, _ = Loop().run(1, engine_request(range(50), max_tokens=12))
    rest, last = Loop().run(1, engine_request(range(50), max_tokens=12, already_ids=whole[:5]))
    assert whole[:5] + rest == whole
    assert last.ended is not None
    assert last.ended.usage.output_tokens == 12


def test_what_already_ended_needs_no_step() -> None:
    loop = Loop()
    end = next(iter(loop.executor.shape.end_token_ids))
    assert loop.scheduler.submit(1, engine_request(range(5), already_ids=[7, end]), 0.0) is FinishReason.STOP
    assert loop.scheduler.submit(2, engine_request(range(5), max_tokens=2, already_ids=[7, 8]), 0.0) is FinishReason.LENGTH
    assert loop.scheduler.idle


def test_an_end_token_stops_unless_it_is_ignored() -> None:
    loop = Loop()
    end = next(iter(loop.executor.shape.end_token_ids))
    loop.scheduler.submit(1, engine_request(range(5)), 0.0)
    plan = loop.scheduler.plan(0.0)
    assert plan is not None
    outputs = loop.scheduler.apply(StepResult((SampledToken(1, end),), 0.5, 0.0), 0.0)
    assert outputs[0].ended is not None
    assert outputs[0].ended.reason is FinishReason.STOP
    assert outputs[0].ended.usage.accelerator_ms == 500
    assert loop.scheduler.idle


def test_the_context_bounds_the_answer_and_refuses_what_never_fits() -> None:
    loop = Loop(blocks=4)
    tokens, last = loop.run(1, engine_request(range(120), max_tokens=100))
    assert len(tokens) == 8
    assert last.ended is not None
    assert last.ended.reason is FinishReason.LENGTH
    with pytest.raises(EngineFailed, match="128"):
        loop.scheduler.submit(2, engine_request(range(128)), 0.0)
    with pytest.raises(EngineFailed, match="empty"):
        loop.scheduler.submit(3, engine_request([]), 0.0)


def test_a_request_waits_until_its_whole_peak_fits() -> None:
    loop = Loop(blocks=4)
    loop.scheduler.submit(1, engine_request(range(40), max_tokens=30), 0.0)
    loop.scheduler.submit(2, engine_request(range(100, 140), max_tokens=30), 0.0)
    loop.step()
    assert (loop.scheduler.state.running, loop.scheduler.state.waiting) == (1, 1)
    loop.scheduler.cancel(1, 0.0)
    loop.step()
    assert (loop.scheduler.state.running, loop.scheduler.state.waiting) == (1, 0)


def test_higher_bands_are_admitted_and_prefilled_first() -> None:
    loop = Loop(settings=SchedulerSettings(max_rows=2, targets=StepTargets(prefill_tokens_alone=32)))
    for sequence_id, band in enumerate((Band.BATCH, Band.HIGH, Band.STANDARD), start=1):
        loop.scheduler.submit(sequence_id, in_band(engine_request([sequence_id] * 64), band), 0.0)
    loop.step()
    assert rows(loop.plans[0]) == {2: 32}
    assert loop.scheduler.state.waiting == 2


def test_a_band_can_be_changed_while_waiting_and_while_running() -> None:
    loop = Loop(settings=SchedulerSettings(max_rows=2, targets=StepTargets(prefill_tokens_alone=32)))
    for sequence_id in (1, 2, 3, 4):
        loop.scheduler.submit(sequence_id, engine_request([sequence_id] * 64), 0.0)
    loop.scheduler.set_band(1, Band.BATCH)
    loop.scheduler.set_band(99, Band.HIGH)
    loop.step()
    assert rows(loop.plans[0]) == {2: 32}
    loop.scheduler.set_band(2, Band.LOW)
    loop.step()
    assert rows(loop.plans[1]) == {3: 32}


def test_cancelling_gives_back_exactly_the_blocks() -> None:
    loop = Loop(blocks=8)
    loop.scheduler.submit(1, engine_request(range(70), max_tokens=30), 0.0)
    loop.step()
    usage = loop.scheduler.cancel(1, 5.0)
    assert usage is not None
    assert usage.output_tokens == 1
    assert loop.scheduler.state.blocks == BlockCounts(free=5, held=0, cached=3)
    assert loop.scheduler.cancel(1, 5.0) is None
    assert loop.scheduler.idle


def test_an_executor_that_samples_other_sequences_is_refused() -> None:
    loop = Loop()
    loop.scheduler.submit(1, engine_request(range(5)), 0.0)
    assert loop.scheduler.plan(0.0) is not None
    with pytest.raises(EngineFailed, match="other sequences"):
        loop.scheduler.apply(StepResult((SampledToken(2, 1),), 0.0, 0.0), 0.0)


@settings(max_examples=60, stateful_step_count=50, deadline=None)
class Batches(RuleBasedStateMachine):
    """Any mix of arrivals, cancellations and steps: no block is lost, no step finds the pool empty, all answers are right."""

    @initialize(blocks=st.integers(4, 14), max_rows=st.integers(1, 5), host_slots=st.sampled_from([0, 1, 3, 8, 40]))
    def start(self, blocks: int, max_rows: int, host_slots: int) -> None:
        self.loop = Loop(
            blocks,
            SchedulerSettings(max_rows=max_rows, targets=StepTargets(prefill_tokens_beside_decode=20, prefill_tokens_alone=70)),
            host_slots,
        )
        self.next_id = 0
        self.here: dict[int, EngineRequest] = {}
        self.answers: dict[int, list[int]] = {}

    @rule(
        shared=st.integers(0, 70),
        own=st.integers(1, 40),
        max_tokens=st.integers(1, 60),
        tenant=st.sampled_from(["tenant_a", "tenant_b"]),
        band=st.sampled_from(Band),
    )
    def submit(self, shared: int, own: int, max_tokens: int, tenant: str, band: Band) -> None:
        self.next_id += 1
        ids = [*range(shared), *[100 + self.next_id % 3] * own]
        request = in_band(engine_request(ids, tenant=tenant, max_tokens=max_tokens), band)
        try:
            reason = self.loop.scheduler.submit(self.next_id, request, self.loop.now)
        except EngineFailed:
            assert len(ids) >= self.loop.scheduler.context_tokens
            return
        assert reason is None
        self.here[self.next_id] = request
        self.answers[self.next_id] = []

    @precondition(lambda self: self.here)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        sequence_id = data.draw(st.sampled_from(sorted(self.here)))
        held = self.loop.scheduler.state.blocks.held
        usage = self.loop.scheduler.cancel(sequence_id, self.loop.now)
        assert usage is not None
        assert usage.output_tokens == len(self.answers[sequence_id])
        assert self.loop.scheduler.state.blocks.held <= held
        del self.here[sequence_id]

    @precondition(lambda self: self.here)
    @rule(steps=st.integers(1, 8))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            outputs = self.loop.step()
            assert outputs or not self.here, "work is there and nothing was computed"
            for output in outputs:
                if output.token_id is not None:
                    self.answers[output.sequence_id].append(output.token_id)
                if output.ended is not None:
                    request = self.here.pop(output.sequence_id)
                    room = self.loop.scheduler.context_tokens - len(request.prompt_ids)
                    assert output.ended.usage.output_tokens == min(request.sampling.max_tokens, room)

    @invariant()
    def every_block_is_accounted_for(self) -> None:
        self.loop.scheduler.check()
        state = self.loop.scheduler.state
        assert state.running + state.waiting == len(self.here)
        if not self.here:
            assert state.blocks.held == 0

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        for sequence_id in list(self.here):
            self.loop.scheduler.cancel(sequence_id, self.loop.now)
        self.loop.scheduler.check()
        assert self.loop.scheduler.idle
        assert self.loop.scheduler.state.blocks.held == 0


TestBatches = Batches.TestCase
