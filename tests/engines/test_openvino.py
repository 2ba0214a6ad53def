"""The real model on the executor."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from antiphon.core.errors import EngineFailed, ModelUnusable
from antiphon.core.generation import Sampling
from antiphon.core.messages import Role
from antiphon.engines.base import BlockCopy, BlockSwap, PromptMessage, ReplicaSpec, SampleRow, SequenceStep, StepPlan, prompt_sha256
from antiphon.engines.openvino import OpenVinoExecutor
from antiphon.engines.tokenizer import ModelTokenizer
from tests.engines.driving import Lane, complete, run, text_of
from tests.engines.questions import QUESTIONS

GREEDY = Sampling(max_tokens=55, temperature=0.0)


def spec(folder: Path) -> ReplicaSpec:
    return ReplicaSpec(pool="test", engine="openvino", model="smollm2", model_path=str(folder), kv_bytes=400_000_000)


@pytest.fixture(scope="module")
def fast(model_folder: Path) -> Iterator[OpenVinoExecutor]:
    executor = OpenVinoExecutor(spec(model_folder))
    executor.await_unpacked()
    yield executor
    executor.close()


def prompts(tokenizer: ModelTokenizer) -> list[list[int]]:
    return [tokenizer.prompt([PromptMessage(Role.USER, question)]) for question in QUESTIONS[:20]]


def capital_of_france(tokenizer: ModelTokenizer) -> list[int]:
    """The question as the product asks it, below a system prompt; without one this model rambles."""
    return tokenizer.prompt([PromptMessage(Role.SYSTEM, "You are a helpful AI assistant"), PromptMessage(Role.USER, QUESTIONS[0])])


def test_it_knows_the_capital_of_france(fast: OpenVinoExecutor, tokenizer: ModelTokenizer) -> None:
    (output,) = complete(fast, [capital_of_france(tokenizer)], replace(GREEDY, max_tokens=16))
    assert "Paris" in text_of(tokenizer, output)


def test_its_shape(fast: OpenVinoExecutor) -> None:
    assert fast.shape.blocks * 700_000 < 400_000_000
    assert fast.shape.context_tokens == 8192
    assert fast.shape.vocabulary_tokens == 49152
    assert fast.shape.end_token_ids == {0, 2}


def test_chunks_seeds_and_copied_blocks_repeat_a_text(fast: OpenVinoExecutor, tokenizer: ModelTokenizer) -> None:
    prompt = prompts(tokenizer)[7]
    sampled = Sampling(max_tokens=12, temperature=0.8, top_p=0.9, seed=11)
    (first,) = complete(fast, [prompt], sampled)
    assert complete(fast, [prompt], sampled, chunk=16) == [first]
    assert complete(fast, [prompt], replace(sampled, seed=12)) != [first]
    row = SampleRow(len(prompt), sampled, prompt_sha256(prompt), ())
    fast.step(StepPlan((SequenceStep(1, prompt[:32], 0, [5], None),)))
    copied = StepPlan((SequenceStep(2, prompt[32:], 32, [9, 6], row),), copies=(BlockCopy(5, 9),))
    assert fast.step(copied).sampled[0].token_id == first[0]


@pytest.fixture(scope="module")
def exact(model_folder: Path) -> Iterator[OpenVinoExecutor]:
    executor = OpenVinoExecutor(replace(spec(model_folder), precision="exact"))
    yield executor
    executor.close()


@pytest.mark.timeout(240)
def test_exact_texts_do_not_depend_on_how_they_are_computed(exact: OpenVinoExecutor, tokenizer: ModelTokenizer) -> None:
    asked = prompts(tokenizer)[:4]
    short = replace(GREEDY, max_tokens=20)
    alone = run(exact, [Lane(prompt) for prompt in asked], short, rows=1)
    lanes = [Lane(asked[0]), Lane(asked[1], chunk=16), Lane(asked[2], cached=True), Lane(asked[3], swap_at=9)]
    lanes.append(Lane(asked[0], output=alone[0][:10]))
    assert run(exact, lanes, short, rows=5) == [*alone, alone[0]]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_exact_texts_do_not_depend_on_company_or_interruption(exact: OpenVinoExecutor, tokenizer: ModelTokenizer) -> None:
    asked = prompts(tokenizer)
    alone = [complete(exact, [prompt], GREEDY)[0] for prompt in asked]
    batched = [output for start in range(0, 20, 8) for output in complete(exact, asked[start : start + 8], GREEDY)]
    long = [index for index, output in enumerate(alone) if len(output) > 50]
    resumed = [complete(exact, [asked[index]], GREEDY, already=[alone[index][:50]], chunk=24)[0] for index in long]
    assert batched == alone
    assert resumed == [alone[index] for index in long]
    assert len(long) >= 5


def test_what_was_swapped_out_comes_back_bit_by_bit(fast: OpenVinoExecutor) -> None:
    tokens = [50 + index % 4000 for index in range(400)]
    row = SampleRow(len(tokens), GREEDY, b"", ())
    whole = list(range(13))
    fast.step(StepPlan((SequenceStep(1, tokens[:-1], 0, whole, None),)))
    last = fast.logits(StepPlan((SequenceStep(1, tokens[-1:], 399, whole, row),)))
    idle = SequenceStep(2, (7,), 0, (90,), None)
    fast.step(StepPlan((idle,), swap_out=tuple(BlockSwap(block, 20 - block) for block in whole)))
    fast.step(StepPlan((SequenceStep(3, [9] * 400, 0, whole, None),)))
    moved = [40, 41, 30, 43, 44, 45, 60, 61, 10, 9, 8, 7, 6]
    back = tuple(BlockSwap(moved[block], 20 - block) for block in whole)
    copies = (BlockCopy(moved[0], 70), BlockCopy(moved[1], 71))
    table = [70, 71, *moved[2:]]
    assert np.array_equal(fast.logits(StepPlan((SequenceStep(1, tokens[-1:], 399, table, row),), copies, swap_in=back)), last)


def test_log_probabilities_come_with_a_token_that_asked(fast: OpenVinoExecutor, tokenizer: ModelTokenizer) -> None:
    asked = prompts(tokenizer)[:2]
    rows = [SampleRow(len(prompt), replace(GREEDY, logprobs=most), b"", ()) for prompt, most in zip(asked, (3, None), strict=True)]
    steps = tuple(SequenceStep(index, asked[index], 0, [2 * index, 2 * index + 1], rows[index]) for index in range(2))
    first, second = fast.step(StepPlan(steps)).sampled
    assert first.logprob is not None
    assert first.top_logprobs[0].token_id == first.token_id
    assert first.top_logprobs[0].logprob == first.logprob < 0
    assert len(first.top_logprobs) == 3
    assert second.logprob is None


def test_a_closed_executor_computes_nothing(model_folder: Path, tokenizer: ModelTokenizer) -> None:
    executor = OpenVinoExecutor(replace(spec(model_folder), kv_precision="u8", kv_bytes=50_000_000))
    assert not executor.shape.partial_copies
    (output,) = complete(executor, [capital_of_france(tokenizer)], replace(GREEDY, max_tokens=12))
    assert "Paris" in text_of(tokenizer, output)
    executor.close()
    executor.close()  # harmless
    with pytest.raises(EngineFailed):
        complete(executor, prompts(tokenizer)[:1], GREEDY)


def test_an_exact_pool_does_not_take_a_smaller_cache(model_folder: Path) -> None:
    with pytest.raises(ModelUnusable, match="exact with a KV cache in u8"):
        OpenVinoExecutor(replace(spec(model_folder), precision="exact", kv_precision="u8"))


def test_plans_that_would_corrupt_memory_are_refused(fast: OpenVinoExecutor) -> None:
    def refused(step: SequenceStep, reason: str) -> None:
        with pytest.raises(EngineFailed, match=reason):
            fast.step(StepPlan((step,)))

    refused(SequenceStep(1, [5] * 40, 0, [1], None), "fewer blocks")
    refused(SequenceStep(1, [5], 0, [fast.shape.blocks + 1], None), "does not exist")
    refused(SequenceStep(1, [5], -1, [1], None), "fewer blocks")
    refused(SequenceStep(1, [fast.shape.vocabulary_tokens], 0, [1], None), "vocabulary")
    with pytest.raises(EngineFailed):
        fast.step(StepPlan(()))
    fine = (SequenceStep(1, [5], 0, [1], None),)
    with pytest.raises(EngineFailed, match="copy names"):
        fast.step(StepPlan(fine, copies=(BlockCopy(0, fast.shape.blocks),)))
    with pytest.raises(EngineFailed, match="slot that"):
        fast.step(StepPlan(fine, swap_in=(BlockSwap(0, fast.shape.host_slots),)))


def test_too_little_memory_is_said(model_folder: Path) -> None:
    with pytest.raises(ModelUnusable, match="at least 3 MB"):
        OpenVinoExecutor(replace(spec(model_folder), kv_bytes=1_000_000))


def test_weights_are_unpacked_while_it_serves_and_the_text_stays(model_folder: Path, tokenizer: ModelTokenizer) -> None:
    executor = OpenVinoExecutor(spec(model_folder))
    with closing(executor):
        france = capital_of_france(tokenizer)
        before = complete(executor, [france], GREEDY)
        executor.await_unpacked()
        assert executor.unpacked
        assert text_of(tokenizer, complete(executor, [france], GREEDY)[0])[:20] == text_of(tokenizer, before[0])[:20]
        for output in complete(executor, [france] * 6, GREEDY):
            assert "Paris" in text_of(tokenizer, output)


def test_one_that_is_closed_while_it_unpacks_ends(model_folder: Path) -> None:
    executor = OpenVinoExecutor(spec(model_folder))
    executor.close()
    assert not executor.unpacked
    assert not any(thread.name == "unpack" for thread in threading.enumerate())


@pytest.mark.parametrize("changes", [{"precision": "exact"}, {"memory_bytes": 600_000_000}])
def test_weights_stay_packed_in_an_exact_pool_and_in_a_bounded_one(model_folder: Path, changes: dict[str, Any]) -> None:
    with closing(OpenVinoExecutor(replace(spec(model_folder), **changes))) as executor:
        executor.await_unpacked()
        assert not executor.unpacked
