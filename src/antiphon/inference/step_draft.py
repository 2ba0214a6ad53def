"""One step while it is being planned: who takes part with which tokens, and what it will load the executor with. Pure."""

from __future__ import annotations

from antiphon.engines.base import SampleRow, SequenceStep, StepPlan
from antiphon.inference.kv_memory import KvMemory
from antiphon.inference.sequence import Sequence
from antiphon.inference.step_time import StepLoad


class StepDraft:
    """Takes from ``memory`` the blocks that the step writes to. Each sequence takes part once."""

    def __init__(self, memory: KvMemory) -> None:
        self._memory = memory
        self.load = StepLoad()
        self.planned: list[tuple[Sequence, SequenceStep]] = []

    def decode(self, sequence: Sequence) -> None:
        """The one token that a sequence has to compute, and the next from it."""
        past = sequence.computed
        if past == len(sequence.blocks) * self._memory.block_tokens:
            self._memory.grow(sequence, 1)
        self.load.rows += 1
        self.load.context += past
        self.planned.append((sequence, SequenceStep(sequence.id, sequence.tokens[past:], past, sequence.blocks, _sample(sequence))))

    def chunk(self, sequence: Sequence, tokens: int) -> None:
        """The next ``tokens`` of a sequence; where those are the last it has, the next token from them."""
        past = sequence.computed
        if tokens == 1:
            self.load.add_row(past)
        else:
            self.load.add_chunk(past, tokens)
        self._memory.grow(sequence, tokens)
        sample = _sample(sequence) if past + tokens == len(sequence.tokens) else None
        step = SequenceStep(sequence.id, sequence.tokens[past : past + tokens], past, sequence.blocks, sample)
        self.planned.append((sequence, step))

    def plan(self) -> StepPlan | None:
        """The step, with the copies and moves of blocks that come before it; ``None`` when nobody takes part."""
        if not self.planned:
            return None
        swap_out, swap_in = self._memory.moves()
        steps = tuple(step for _, step in self.planned)
        return StepPlan(sequences=steps, copies=self._memory.copies(), swap_out=swap_out, swap_in=swap_in)


def _sample(sequence: Sequence) -> SampleRow:
    return SampleRow(len(sequence.tokens), sequence.request.sampling, sequence.prompt_sha256, sequence.output_ids)
