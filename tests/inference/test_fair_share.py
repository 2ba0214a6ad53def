from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.tenancy import Band
from antiphon.engines.base import ReplicaSpec, SampledToken, StepPlan, StepResult
from antiphon.engines.reference import ReferenceExecutor
from antiphon.inference.fair_share import INPUT_COST, OUTPUT_COST, FairShare
from antiphon.inference.line import LineRules, Order
from antiphon.inference.scheduler import Scheduler, SchedulerSettings
from tests.inference.requests import engine_request

ROWS = 4
MOST_INPUT, MOST_OUTPUT = 60, 20


def test_one_that_was_idle_is_lifted_and_saves_up_no_credit() -> None:
    fair = FairShare()
    busy = fair.enter(Band.STANDARD, "busy")
    busy.charge(1000, 1.0)
    late = fair.enter(Band.STANDARD, "late")
    assert late.served == 1000
    fair.leave(busy)
    fair.leave(late)
    assert fair.enter(Band.STANDARD, "third").served == 1000


def test_bands_have_accounts_of_their_own() -> None:
    fair = FairShare()
    fair.enter(Band.STANDARD, "a").charge(1000, 1.0)
    assert fair.enter(Band.HIGH, "b").served == 0


def test_weight_divides_what_counts() -> None:
    account = FairShare().enter(Band.STANDARD, "a")
    account.charge(100, 4.0)
    assert (account.served, account.cost) == (25.0, 100.0)


class Backlog:
    """Tenants that always have something waiting, over a scheduler in virtual time."""

    def __init__(self, load: dict[str, int], weights: dict[str, float], order: Order) -> None:
        executor = ReferenceExecutor(ReplicaSpec("p", "reference", "m", "", blocks=64))
        self.scheduler = Scheduler(executor.shape, SchedulerSettings(max_rows=ROWS, line=LineRules(order=order)))
        self.load = load
        self.weights = weights
        self.waiting = dict.fromkeys(load, 0)
        self.tenant_of: dict[int, str] = {}
        self.next_id = 0
        self.now = 0.0

    def refill(self, prompt_tokens: int, output_tokens: int) -> None:
        for tenant, wanted in self.load.items():
            while self.waiting[tenant] < wanted:
                self.next_id += 1
                ids = [self.next_id, *[len(tenant)] * (prompt_tokens - 1)]
                request = engine_request(ids, tenant=tenant, max_tokens=output_tokens, weight=self.weights.get(tenant, 1.0))
                self.scheduler.submit(self.next_id, request, self.now)
                self.tenant_of[self.next_id] = tenant
                self.waiting[tenant] += 1

    def step(self) -> None:
        self.now += 0.03
        plan = self.scheduler.plan(self.now)
        assert plan is not None
        for sequence in plan.sequences:
            if sequence.sequence_id in self.tenant_of:
                self.waiting[self.tenant_of.pop(sequence.sequence_id)] -= 1
        self.scheduler.apply(computed(plan), self.now)

    def costs(self) -> dict[str, float]:
        return {account.tenant: account.cost for account in self.scheduler.fair.accounts(Band.STANDARD)}


def computed(plan: StepPlan) -> StepResult:
    sampled = tuple(SampledToken(sequence.sequence_id, 1) for sequence in plan.sequences if sequence.sample is not None)
    return StepResult(sampled, 0.03, 0.0)


@settings(max_examples=10, deadline=None)
@given(
    loads=st.lists(st.integers(ROWS, 20), min_size=2, max_size=5),
    sizes=st.lists(st.tuples(st.integers(5, MOST_INPUT), st.integers(1, MOST_OUTPUT)), min_size=8, max_size=24),
)
def test_backlogged_tenants_stay_within_the_bound(loads: list[int], sizes: list[tuple[int, int]]) -> None:
    """The paper's theorem: at every moment the served costs of two tenants that always wait differ by at most 2·U."""
    bound = 2 * max(INPUT_COST * MOST_INPUT, OUTPUT_COST * ROWS * MOST_OUTPUT)
    backlog = Backlog({f"t{index}" + "x" * index: load for index, load in enumerate(loads)}, {}, "fair")
    for prompt_tokens, output_tokens in sizes:
        for _ in range(12):
            backlog.refill(prompt_tokens, output_tokens)
            backlog.step()
            costs = backlog.costs()
            assert max(costs.values()) - min(costs.values()) <= bound
    backlog.scheduler.check()


def worst_share(order: Order) -> float:
    backlog = Backlog({"flooder": 20, **{f"tenant{index}": 1 for index in range(7)}}, {}, order)
    for _ in range(500):
        backlog.refill(40, 16)
        backlog.step()
    costs = backlog.costs()
    return min(costs.values()) / (sum(costs.values()) / len(costs))


def test_a_flooder_takes_nothing_from_the_others() -> None:
    assert worst_share("fair") >= 0.9


def test_in_plain_order_of_arrival_the_same_flooder_does() -> None:
    assert worst_share("fcfs") < 0.9


def test_weights_divide_the_replica() -> None:
    backlog = Backlog({"one": 4, "three": 4}, {"three": 3.0}, "fair")
    for _ in range(500):
        backlog.refill(40, 16)
        backlog.step()
    costs = backlog.costs()
    assert costs["three"] / costs["one"] == pytest.approx(3.0, rel=0.1)
