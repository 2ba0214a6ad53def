"""The smallest step loop: fixed block tables, all sequences in every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from antiphon.core.generation import Sampling
from antiphon.engines.base import BLOCK_TOKENS, Executor, SampleRow, SequenceStep, StepPlan, Tokenizer, prompt_sha256


@dataclass
class Running:
    prompt: list[int]
    output: list[int]
    blocks: list[int]
    past: int = 0
    chunk: int = 0
    ended: bool = field(default=False)

    def next_step(self, number: int, sampling: Sampling) -> SequenceStep:
        tokens = self.prompt + self.output
        new = tokens[self.past :]
        if self.chunk and len(new) > self.chunk:
            return SequenceStep(number, new[: self.chunk], self.past, self.blocks, None)
        row = SampleRow(len(tokens), sampling, prompt_sha256(self.prompt), self.output)
        return SequenceStep(number, new, self.past, self.blocks, row)


def complete(
    executor: Executor,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    already: Sequence[Sequence[int]] = (),
    chunk: int = 0,
) -> list[list[int]]:
    """Output ids of all prompts, computed together from the first block on; ``already`` are outputs to resume from."""
    running: list[Running] = []
    block = 0
    for index, prompt in enumerate(prompts):
        count = -(-(len(prompt) + sampling.max_tokens) // BLOCK_TOKENS)
        running.append(Running(list(prompt), list(already[index]) if already else [], list(range(block, block + count)), chunk=chunk))
        block += count
    while active := [(number, one) for number, one in enumerate(running) if not one.ended]:
        plan = StepPlan(tuple(one.next_step(number, sampling) for number, one in active))
        tokens = {sampled.sequence_id: sampled.token_id for sampled in executor.step(plan).sampled}
        for (number, one), step in zip(active, plan.sequences, strict=True):
            one.past += len(step.token_ids)
            if number in tokens:
                one.output.append(tokens[number])
                one.ended = len(one.output) >= sampling.max_tokens or tokens[number] in executor.shape.end_token_ids
    return [one.output for one in running]


def text_of(tokenizer: Tokenizer, ids: Sequence[int], stop: Sequence[str] = ()) -> str:
    stream = tokenizer.text_stream(stop)
    text = ""
    for token_id in ids:
        if stream.stopped:
            break
        text += stream.push(token_id)
    return text + stream.finish()
