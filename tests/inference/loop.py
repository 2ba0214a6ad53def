"""Scheduler and reference executor together, step by step."""

from __future__ import annotations

from antiphon.engines.base import EngineRequest, ReplicaSpec, StepPlan
from antiphon.engines.reference import ReferenceExecutor
from antiphon.inference.output_length import OutputLengths
from antiphon.inference.scheduler import Scheduler, SchedulerSettings, SequenceOutput
from antiphon.inference.step_budget import StepTargets

SMALL_STEPS = SchedulerSettings(
    max_rows=4, targets=StepTargets(inter_token_s=9.0, prefill_tokens_beside_decode=40, prefill_tokens_alone=100)
)


class Loop:
    """The reference executor refuses blocks that do not hold what they should."""

    def __init__(
        self, blocks: int = 64, settings: SchedulerSettings = SMALL_STEPS, host_slots: int = 64, lengths: OutputLengths | None = None
    ) -> None:
        self.executor = ReferenceExecutor(ReplicaSpec("p", "reference", "m", "", blocks=blocks, host_slots=host_slots))
        self.scheduler = Scheduler(self.executor.shape, settings, lengths)
        self.now = 0.0
        self.plans: list[StepPlan] = []

    def step(self) -> list[SequenceOutput]:
        self.now += 1.0
        plan = self.scheduler.plan(self.now)
        if plan is None:
            return []
        self.plans.append(plan)
        outputs = self.scheduler.apply(self.executor.step(plan), self.now)
        self.scheduler.check()
        return outputs

    def run(self, sequence_id: int, request: EngineRequest) -> tuple[list[int], SequenceOutput]:
        """Submit and step until this one ends; the others go along."""
        assert self.scheduler.submit(sequence_id, request, self.now) is None
        tokens: list[int] = []
        while True:
            for output in self.step():
                if output.sequence_id == sequence_id and output.token_id is not None:
                    tokens.append(output.token_id)
                    if output.ended is not None:
                        return tokens, output

    def run_all(self) -> None:
        while not self.scheduler.idle:
            assert self.step(), "work is there and nothing was computed"


def rows(plan: StepPlan) -> dict[int, int]:
    return {sequence.sequence_id: len(sequence.token_ids) for sequence in plan.sequences}
