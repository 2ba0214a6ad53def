"""The real model on the executor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from antiphon.core.errors import EngineFailed, ModelUnusable
from antiphon.core.generation import Sampling
from antiphon.core.messages import Role
from antiphon.engines.base import BlockCopy, PromptMessage, ReplicaSpec, SampleRow, SequenceStep, StepPlan, prompt_sha256
from antiphon.engines.openvino import OpenVinoExecutor
from antiphon.engines.tokenizer import ModelTokenizer
from tests.engines.driving import complete, text_of

QUESTIONS = (
    "What is the capital of France?",
    "What is a hash table?",
    "Explain rain to a child.",
    "Write a haiku about ships.",
    "How do I boil an egg?",
    "Name three rivers and say where they are.",
    "What does a compiler do?",
    "Give me a plan for a weekend in Rome.",
    "Why is the sky blue?",
    "Who wrote Hamlet?",
    "Count from one to ten.",
    "What is 12 times 12?",
    "Translate 'good morning' to French.",
    "Describe a sunset in two sentences.",
    "What is photosynthesis?",
    "Write a Python function that adds two numbers.",
    "What is the largest ocean?",
    "Tell me a short story about a fox.",
    "How far is the moon?",
    "Give three reasons to read books.",
)
GREEDY = Sampling(max_tokens=55, temperature=0.0)


def spec(folder: Path) -> ReplicaSpec:
    return ReplicaSpec(pool="test", engine="openvino", model="smollm2", model_path=str(folder), kv_bytes=400_000_000)


@pytest.fixture(scope="module")
def fast(model_folder: Path) -> Iterator[OpenVinoExecutor]:
    executor = OpenVinoExecutor(spec(model_folder))
    yield executor
    executor.close()


def prompts(tokenizer: ModelTokenizer) -> list[list[int]]:
    return [tokenizer.prompt([PromptMessage(Role.USER, question)]) for question in QUESTIONS]


def test_it_knows_the_capital_of_france(fast: OpenVinoExecutor, tokenizer: ModelTokenizer) -> None:
    (output,) = complete(fast, prompts(tokenizer)[:1], replace(GREEDY, max_tokens=16))
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


@pytest.mark.timeout(240)
def test_exact_texts_do_not_depend_on_company_or_interruption(model_folder: Path, tokenizer: ModelTokenizer) -> None:
    executor = OpenVinoExecutor(replace(spec(model_folder), precision="exact", kv_bytes=0))
    asked = prompts(tokenizer)
    alone = [complete(executor, [prompt], GREEDY)[0] for prompt in asked]
    batched = [output for start in range(0, 20, 8) for output in complete(executor, asked[start : start + 8], GREEDY)]
    long = [index for index, output in enumerate(alone) if len(output) > 50]
    resumed = [complete(executor, [asked[index]], GREEDY, already=[alone[index][:50]], chunk=24)[0] for index in long]
    executor.close()
    executor.close()  # harmless
    with pytest.raises(EngineFailed):
        complete(executor, asked[:1], GREEDY)
    assert batched == alone
    assert resumed == [alone[index] for index in long]
    assert len(long) >= 5


def test_plans_that_would_corrupt_memory_are_refused(fast: OpenVinoExecutor) -> None:
    def refused(step: SequenceStep, reason: str) -> None:
        with pytest.raises(EngineFailed, match=reason):
            fast.step(StepPlan((step,)))

    refused(SequenceStep(1, [5] * 40, 0, [1], None), "fewer blocks")
    refused(SequenceStep(1, [5], 0, [fast.shape.blocks], None), "does not exist")
    refused(SequenceStep(1, [fast.shape.vocabulary_tokens], 0, [1], None), "vocabulary")
    with pytest.raises(EngineFailed):
        fast.step(StepPlan(()))


def test_too_little_memory_is_said(model_folder: Path) -> None:
    with pytest.raises(ModelUnusable, match="at least 3 MB"):
        OpenVinoExecutor(replace(spec(model_folder), kv_bytes=1_000_000))
