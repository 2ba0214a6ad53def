"""The executor alone, in a process of its own: the least anything above it can cost.

Reads one JSON request a line, ``{"prompts": [[id…]…], "rows": n, "paced": p, "max_tokens": m, "seed": s, "greedy": g}``, and
answers ``{"output_tokens", "seconds"}``. At most ``rows`` prompts run at once; a finished one is replaced in the next step, and its
successor's whole prompt is computed beside the others' decode rows; where it is paced, so many in one step as our scheduler takes. Same
sampling and same ends as the server's; greedy ones end after ``max_tokens`` alone.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections import deque
from dataclasses import dataclass, field, replace

from antiphon.app.logging import configure_logging
from antiphon.core.generation import Sampling
from antiphon.engines.base import BLOCK_TOKENS, Executor, ReplicaSpec, SampleRow, SequenceStep, StepPlan
from antiphon.engines.openvino import OpenVinoExecutor
from antiphon.inference.step_budget import StepTargets


@dataclass(slots=True)
class Row:
    """One sequence as the executor is told of it."""

    number: int
    prompt_ids: list[int]
    sampling: Sampling
    blocks: list[int]
    output_ids: list[int] = field(default_factory=list)

    def step(self) -> SequenceStep:
        new = [self.output_ids[-1]] if self.output_ids else self.prompt_ids
        past = len(self.prompt_ids) + len(self.output_ids) - 1 if self.output_ids else 0
        total = past + len(new)
        sample = SampleRow(total, self.sampling, hashlib.sha256(repr(self.prompt_ids).encode()).digest(), self.output_ids)
        return SequenceStep(self.number, new, past, self.blocks[: -(-total // BLOCK_TOKENS)], sample)


def run(
    executor: Executor, prompts: list[list[int]], rows: int, sampling: Sampling, *, ignore_end_of_turn: bool, paced: bool = False
) -> tuple[int, float]:
    """Output tokens and seconds for all ``prompts``; unless they are ``paced``, any number may begin in one step."""
    waiting = deque(enumerate(prompts))
    free = deque(range(executor.shape.blocks))
    running: dict[int, Row] = {}
    output_tokens = passed_by = 0
    start = time.perf_counter()
    while waiting or running:
        most = StepTargets().most_prompts(len(running), len(waiting), passed_by) if paced else rows
        for _ in range(min(most, len(waiting), rows - len(running))):
            number, prompt = waiting.popleft()
            blocks = [free.popleft() for _ in range(-(-(len(prompt) + sampling.max_tokens) // BLOCK_TOKENS))]
            running[number] = Row(number, prompt, replace(sampling, seed=sampling.seed + number), blocks)
        passed_by = len(waiting)
        result = executor.step(StepPlan(tuple(row.step() for row in running.values())))
        output_tokens += len(result.sampled)
        for token in result.sampled:
            row = running[token.sequence_id]
            row.output_ids.append(token.token_id)
            ended = token.token_id in executor.shape.end_token_ids and not ignore_end_of_turn
            if ended or len(row.output_ids) == sampling.max_tokens:
                free.extend(row.blocks)
                del running[token.sequence_id]
    return output_tokens, time.perf_counter() - start


def main() -> None:
    configure_logging("text")
    executor = OpenVinoExecutor(ReplicaSpec(pool="bare", engine="openvino", model="bare", model_path=sys.argv[1]))
    executor.await_unpacked()
    print(json.dumps({"ready": True}), flush=True)
    try:
        for line in sys.stdin:
            request = json.loads(line)
            greedy = bool(request.get("greedy"))
            sampling = Sampling(max_tokens=request["max_tokens"], seed=request["seed"], temperature=0.0 if greedy else 0.7)
            tokens, seconds = run(
                executor, request["prompts"], request["rows"], sampling, ignore_end_of_turn=greedy, paced=request["paced"]
            )
            print(json.dumps({"output_tokens": tokens, "seconds": seconds}), flush=True)
    finally:
        executor.close()


if __name__ == "__main__":
    main()
