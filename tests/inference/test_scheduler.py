from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from antiphon.core.errors import EngineFailed
from antiphon.core.generation import FinishReason
from antiphon.core.tenancy import Band
from antiphon.engines.base import EngineRequest, SampledToken, StepResult
from antiphon.inference.kv_blocks import BlockCounts
from antiphon.inference.line import LineRules
from antiphon.inference.output_length import OutputLengths
from antiphon.inference.scheduler import Scheduler, SchedulerSettings
from antiphon.inference.step_budget import StepTargets
from tests.inference.loop import SMALL_STEPS, Loop, rows
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


def test_who_outgrows_the_prediction_makes_others_step_aside_and_all_come_back() -> None:
    loop = Loop(blocks=12, host_slots=12, lengths=lengths(4))
    requests = {number: engine_request([number] * 40, max_tokens=100) for number in range(1, 5)}
    answers = run_together(loop, requests)
    assert loop.scheduler.state.preemptions > 0
    assert loop.scheduler.state.recomputed_tokens == 0
    assert any(plan.swap_out for plan in loop.plans)
    assert any(plan.swap_in for plan in loop.plans)
    assert answers == {number: Loop().run(number, request)[0] for number, request in requests.items()}
    assert max(sequence.past_tokens for plan in loop.plans for sequence in plan.sequences) == 138


def test_without_host_slots_everything_is_promised_and_nobody_steps_aside() -> None:
    loop = Loop(blocks=12, host_slots=0, lengths=lengths(4))
    run_together(loop, {number: engine_request([number] * 40, max_tokens=100) for number in range(1, 5)})
    assert loop.scheduler.state.preemptions == 0


def test_a_higher_band_enters_within_one_step_and_the_lower_one_goes_on_later() -> None:
    loop = Loop(settings=replace(SMALL_STEPS, max_rows=2))
    for number in (1, 2):
        loop.scheduler.submit(number, in_band(engine_request([number] * 40, max_tokens=30), Band.LOW), 0.0)
    for _ in range(3):
        loop.step()
    loop.scheduler.submit(3, in_band(engine_request([3] * 40, max_tokens=5), Band.HIGH), loop.now)
    loop.step()
    assert rows(loop.plans[-1]) == {1: 1, 3: 40}
    loop.scheduler.submit(4, in_band(engine_request([4] * 40, max_tokens=5), Band.LOW), loop.now)
    while 3 in rows(loop.plans[-1]):
        loop.step()
    assert rows(loop.plans[-1]) == {1: 1, 2: 1}
    loop.run_all()
    assert loop.scheduler.state.recomputed_tokens == 0


def test_a_band_that_nobody_served_for_long_goes_first_once() -> None:
    loop = Loop(settings=replace(SMALL_STEPS, max_rows=1, line=LineRules(band_ageing_s=5.0)))
    loop.scheduler.submit(1, in_band(engine_request([1] * 8, max_tokens=1), Band.BATCH), 0.0)
    for number in range(2, 20):
        loop.scheduler.submit(number, engine_request([number] * 8, max_tokens=1), 0.0)
    order: list[int] = []
    for _ in range(10):
        order += [output.sequence_id for output in loop.step()]
    assert order.index(1) == 5


def test_a_conversation_that_was_driven_out_is_restored_and_not_recomputed() -> None:
    loop = Loop(blocks=24, host_slots=48)
    first, _ = loop.run(1, engine_request([1] * 200, max_tokens=10))
    for number in range(2, 5):
        loop.run(number, engine_request([number] * 400, max_tokens=10))
    _, last = loop.run(9, engine_request([1] * 200 + first + [7] * 20, max_tokens=4))
    assert last.ended is not None
    assert last.ended.usage.cached_tokens == 209
    assert sum(len(plan.swap_in) for plan in loop.plans) == 7


def test_one_scan_does_not_drive_out_what_is_used_again_and_again() -> None:
    loop = Loop(blocks=16, host_slots=0)
    for number in range(3):
        loop.run(number, engine_request([*range(96), number], max_tokens=2))
    for number in range(10, 30):
        loop.run(number, engine_request([number] * 150, max_tokens=2))
    _, last = loop.run(40, engine_request([*range(96), 9], max_tokens=1))
    assert last.ended is not None
    assert last.ended.usage.cached_tokens == 96


def test_a_public_beginning_is_shared_by_tenants_and_what_follows_is_not() -> None:
    loop = Loop()
    ids = list(range(100))
    loop.run(1, engine_request(ids, tenant="tenant_a", public_prefix_tokens=70))
    _, other = loop.run(2, engine_request(ids, tenant="tenant_b", public_prefix_tokens=70))
    _, private = loop.run(3, engine_request(ids, tenant="tenant_c"))
    assert other.ended is not None
    assert private.ended is not None
    assert other.ended.usage.cached_tokens == 64
    assert private.ended.usage.cached_tokens == 0


def test_the_end_of_an_answer_is_copied_by_the_next_turn() -> None:
    loop = Loop()
    answer, _ = loop.run(1, engine_request(range(40), max_tokens=12))
    _, last = loop.run(2, engine_request([*range(40), *answer, 7, 8, 9], max_tokens=1))
    assert last.ended is not None
    assert last.ended.usage.cached_tokens == 51


def test_a_quantised_block_is_only_copied_whole() -> None:
    loop = Loop()
    scheduler = Scheduler(replace(loop.executor.shape, partial_copies=False), SMALL_STEPS)
    loop.scheduler = scheduler
    answer, _ = loop.run(1, engine_request(range(40), max_tokens=12))
    _, same = loop.run(2, engine_request([*range(40), *answer, 7, 8, 9], max_tokens=1))
    _, other = loop.run(3, engine_request([*range(40), *answer[:5], 7, 8, 9], max_tokens=1))
    assert same.ended is not None
    assert other.ended is not None
    assert (same.ended.usage.cached_tokens, other.ended.usage.cached_tokens) == (51, 32)


def test_smaller_requests_pass_one_that_does_not_fit_only_so_often() -> None:
    loop = Loop(blocks=8, host_slots=0)
    loop.scheduler.submit(1, engine_request([1] * 33, max_tokens=60), 0.0)
    loop.step()
    loop.scheduler.submit(2, engine_request([2] * 200, max_tokens=20), 0.0)
    for number in range(3, 90):
        loop.scheduler.submit(number, engine_request([number] * 20, max_tokens=2), loop.now)
        loop.step()
        loop.step()
    order = list(dict.fromkeys(sequence.sequence_id for plan in loop.plans for sequence in plan.sequences))
    assert order.index(2) == 9


def lengths(tokens: int) -> OutputLengths:
    """A memory of many answers of this length."""
    memory = OutputLengths()
    for _ in range(50):
        memory.observe(tokens)
    return memory


def run_together(loop: Loop, requests: dict[int, EngineRequest]) -> dict[int, list[int]]:
    answers: dict[int, list[int]] = {number: [] for number in requests}
    for number, request in requests.items():
        loop.scheduler.submit(number, request, loop.now)
    while not loop.scheduler.idle:
        outputs = loop.step()
        assert outputs
        for output in outputs:
            if output.token_id is not None:
                answers[output.sequence_id].append(output.token_id)
    return answers


@settings(max_examples=60, stateful_step_count=50, deadline=None)
class Batches(RuleBasedStateMachine):
    """Any mix of arrivals, cancellations and steps: no block is lost, no step finds the pool empty, all answers are right."""

    @initialize(
        blocks=st.integers(4, 14),
        max_rows=st.integers(1, 5),
        host_slots=st.sampled_from([0, 1, 3, 8, 40]),
        expected=st.sampled_from([0, 1, 12]),
    )
    def start(self, blocks: int, max_rows: int, host_slots: int, expected: int) -> None:
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
    @rule(data=st.data(), band=st.sampled_from(Band))
    def set_band(self, data: st.DataObject, band: Band) -> None:
        self.loop.scheduler.set_band(data.draw(st.sampled_from(sorted(self.here))), band)

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
