"""The smallest step loops: fixed block tables, all sequences in every step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from antiphon.core.generation import Sampling
from antiphon.engines.base import (
    BLOCK_TOKENS,
    BlockCopy,
    BlockSwap,
    Executor,
    SampleRow,
    SequenceStep,
    StepPlan,
    Tokenizer,
    prompt_sha256,
)
from antiphon.engines.openvino import OpenVinoExecutor


@dataclass
class Lane:
    """One sequence and the way it is to be computed.

    ``chunk``: its prompt in steps of that many tokens. ``cached``: all but its last prompt token come from another
    sequence's blocks, the last of them copied. ``swap_at``: after that many tokens its blocks go to slots and come back elsewhere.
    """

    prompt: list[int]
    chunk: int = 0
    cached: bool = False
    swap_at: int = -1
    output: list[int] = field(default_factory=list[int])
    past: int = 0
    blocks: list[int] = field(default_factory=list[int])
    spare: list[int] = field(default_factory=list[int])
    ended: bool = False

    def next_step(self, number: int, sampling: Sampling) -> SequenceStep:
        tokens = self.prompt + self.output
        new = tokens[self.past :]
        if self.chunk and len(new) > self.chunk:
            return SequenceStep(number, new[: self.chunk], self.past, self.blocks, None)
        row = SampleRow(len(tokens), sampling, prompt_sha256(self.prompt), self.output)
        return SequenceStep(number, new, self.past, self.blocks, row)

    def borrow(self, executor: Executor, number: int) -> tuple[BlockCopy, ...]:
        """Compute the prompt for somebody else, in ``spare``; take the full blocks and ask for a copy of the last one."""
        before = self.prompt[:-1]
        executor.step(StepPlan((SequenceStep(number, before, 0, self.spare, None),)))
        full = len(before) // BLOCK_TOKENS
        self.past = len(before)
        self.blocks = self.spare[:full] + self.blocks[full:]
        return (BlockCopy(self.spare[full], self.blocks[full]),) if len(before) % BLOCK_TOKENS else ()

    def move(self, executor: Executor) -> None:
        """Swap all blocks out, and into ``spare``, backwards; beside a row of nobody's on the last block."""
        used = -(-self.past // BLOCK_TOKENS)
        idle = SequenceStep(-1, (0,), 0, (executor.shape.blocks - 1,), None)
        gone = tuple(BlockSwap(block, slot) for slot, block in enumerate(self.blocks[:used]))
        self.blocks, self.spare = list(reversed(self.spare)), self.blocks
        back = tuple(BlockSwap(block, slot) for slot, block in enumerate(self.blocks[:used]))
        executor.step(StepPlan((idle,), swap_out=gone))
        executor.step(StepPlan((idle,), swap_in=back))


def run(executor: Executor, lanes: Sequence[Lane], sampling: Sampling, *, rows: int, past_end: bool = True) -> list[list[int]]:
    """Output ids of all lanes, ``rows`` of them at a time, each group on blocks of its own."""
    for start in range(0, len(lanes), rows):
        group = lanes[start : start + rows]
        block = 0
        for lane in group:
            count = -(-(len(lane.prompt) + sampling.max_tokens) // BLOCK_TOKENS)
            lane.blocks = list(range(block, block + count))
            lane.spare = list(range(block + count, block + 2 * count)) if lane.cached or lane.swap_at >= 0 else []
            block += count + len(lane.spare)
        _run_group(executor, group, sampling, past_end)
    return [lane.output for lane in lanes]


def _run_group(executor: Executor, lanes: Sequence[Lane], sampling: Sampling, past_end: bool) -> None:
    copies = tuple(copy for number, lane in enumerate(lanes) if lane.cached for copy in lane.borrow(executor, number))
    while active := [(number, lane) for number, lane in enumerate(lanes) if not lane.ended]:
        for _, lane in active:
            if len(lane.output) == lane.swap_at:
                lane.move(executor)
        plan = StepPlan(tuple(lane.next_step(number, sampling) for number, lane in active), copies)
        copies = ()
        tokens = {sampled.sequence_id: sampled.token_id for sampled in executor.step(plan).sampled}
        for (number, lane), step in zip(active, plan.sequences, strict=True):
            lane.past += len(step.token_ids)
            if number in tokens:
                lane.output.append(tokens[number])
                ended = not past_end and tokens[number] in executor.shape.end_token_ids
                lane.ended = ended or len(lane.output) >= sampling.max_tokens


def complete(
    executor: Executor,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    already: Sequence[Sequence[int]] = (),
    chunk: int = 0,
    *,
    past_end: bool = False,
) -> list[list[int]]:
    """Output ids of all prompts, computed together from the first block on; ``already`` are outputs to resume from."""
    lanes = [Lane(list(prompt), chunk=chunk, output=list(already[index]) if already else []) for index, prompt in enumerate(prompts)]
    return run(executor, lanes, sampling, rows=len(lanes), past_end=past_end)


def forced_logits(executor: OpenVinoExecutor, prompts: Sequence[list[int]], answers: Sequence[list[int]]) -> NDArray[np.float32]:
    """Logits at each place of the answers, [prompts, answer, vocabulary]: prompts in one step, then decode rows."""
    return np.stack(list(_forced(executor, prompts, answers)), axis=1)


def _forced(executor: OpenVinoExecutor, prompts: Sequence[list[int]], answers: Sequence[list[int]]) -> Iterator[NDArray[np.float32]]:
    count = -(-max(len(prompt) + len(answer) for prompt, answer in zip(prompts, answers, strict=True)) // BLOCK_TOKENS)
    row = SampleRow(0, Sampling(max_tokens=1), b"", ())
    for place in range(len(answers[0])):
        steps: list[SequenceStep] = []
        for number, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
            new = [answer[place - 1]] if place else prompt
            past = len(prompt) + place - 1 if place else 0
            steps.append(SequenceStep(number, new, past, range(number * count, (number + 1) * count), row))
        yield executor.logits(StepPlan(tuple(steps)))


def text_of(tokenizer: Tokenizer, ids: Sequence[int], stop: Sequence[str] = ()) -> str:
    stream = tokenizer.text_stream(stop)
    text = ""
    for token_id in ids:
        if stream.stopped:
            break
        text += stream.push(token_id)
    return text + stream.finish()
