"""The reference engine keeps its contract and catches wrong block tables."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.errors import EngineFailed
from antiphon.core.generation import Sampling
from antiphon.core.messages import Role
from antiphon.engines.base import BlockCopy, PromptMessage, ReplicaSpec, SampleRow, SequenceStep, StepPlan, prompt_sha256
from antiphon.engines.reference import ReferenceExecutor, reference_token
from antiphon.engines.reference_tokenizer import ReferenceTokenizer
from antiphon.engines.reference_words import NASTY_GROUPS
from tests.awake import awake_s
from tests.engines.driving import Lane, complete, run, text_of

SPEC = ReplicaSpec(pool="test", engine="reference", model="reference", model_path="")
NASTY = ReplicaSpec(pool="test", engine="reference", model="reference", model_path="", vocabulary="nasty")


@settings(max_examples=100)
@given(st.text(max_size=40) | st.lists(st.sampled_from(["the ", "river", "boat ", "🙂", "\r\n", "<|im_end|>", " "])).map("".join))
def test_any_text_round_trips_without_control_tokens(text: str) -> None:
    tokenizer = ReferenceTokenizer("nasty")
    ids = tokenizer.encode(text)
    assert text_of(tokenizer, ids) == text
    assert not {256, 257, 258, 259} & set(ids)


def test_a_prompt_only_grows() -> None:
    tokenizer = ReferenceTokenizer()
    turn = [PromptMessage(Role.SYSTEM, "be brief"), PromptMessage(Role.USER, "hello "), PromptMessage(Role.ASSISTANT, "hi ")]
    earlier = tokenizer.prompt(turn[:2])
    assert tokenizer.prompt([*turn, PromptMessage(Role.USER, "more")])[: len(earlier)] == earlier


def test_answers_are_words_and_depend_on_the_prompt_alone() -> None:
    tokenizer = ReferenceTokenizer()
    prompts = [tokenizer.prompt([PromptMessage(Role.USER, f"question {number}")]) for number in range(4)]
    sampling = Sampling(max_tokens=40)
    together = complete(ReferenceExecutor(SPEC), prompts, sampling)
    alone = [complete(ReferenceExecutor(SPEC), [prompt], sampling)[0] for prompt in prompts]
    lanes = [Lane(prompts[0], cached=True), Lane(prompts[1], swap_at=5), Lane(prompts[2], chunk=3), Lane(prompts[3])]
    assert run(ReferenceExecutor(SPEC), lanes, sampling, rows=4) == alone
    resumed = complete(ReferenceExecutor(SPEC), prompts, sampling, already=[output[:17] for output in together], chunk=5)
    assert together == alone == resumed
    assert len({tuple(output) for output in together}) == 4
    assert [len(text_of(tokenizer, output).split()) for output in together] == [40] * 4


def test_an_echo_says_the_newest_message_back_and_ends_its_turn() -> None:
    tokenizer = ReferenceTokenizer("echo")
    executor = ReferenceExecutor(replace(SPEC, vocabulary="echo"))
    said = "# Title\n\n| a | b |\n|--|--|\n| the boat | 🙂 <script> |\n"
    earlier = [PromptMessage(Role.USER, "an earlier one"), PromptMessage(Role.ASSISTANT, "an answer")]
    (output,) = complete(executor, [tokenizer.prompt([*earlier, PromptMessage(Role.USER, said)])], Sampling(max_tokens=500))
    at = output.index(next(iter(tokenizer.end_token_ids)))
    assert text_of(tokenizer, output[:at]) == said


def test_nasty_answers_are_nasty_and_valid() -> None:
    tokenizer = ReferenceTokenizer("nasty")
    executor = ReferenceExecutor(NASTY)
    text = ""
    for number in range(8):
        (output,) = complete(executor, [tokenizer.prompt([PromptMessage(Role.USER, str(number))])], Sampling(max_tokens=64))
        assert len(output) == 64
        text += text_of(tokenizer, output)
    assert "\ufffd" not in text
    for needle in ("🙂", "\u200d", "🇫🇷", "\r\n", "data:", "\u2028", "\u0085", "<|im_end|>", "```", "<script>"):
        assert needle in text
    assert all(len(group) == 4 and b"".join(group).decode() for group in NASTY_GROUPS)


def test_stop_strings_end_an_answer() -> None:
    tokenizer = ReferenceTokenizer()
    (output,) = complete(ReferenceExecutor(SPEC), [tokenizer.prompt([PromptMessage(Role.USER, "x")])], Sampling(max_tokens=30))
    words = text_of(tokenizer, output).split()
    assert text_of(tokenizer, output, [words[7]]).split() == words[: words.index(words[7])]


def step(executor: ReferenceExecutor, tokens: list[int], past: int, blocks: list[int], prompt: list[int] | None = None) -> int:
    ids = prompt or tokens
    row = SampleRow(past + len(tokens), Sampling(max_tokens=9), prompt_sha256(ids), ())
    return executor.step(StepPlan((SequenceStep(1, tokens, past, blocks, row),))).sampled[0].token_id


def test_wrong_blocks_are_refused() -> None:
    executor = ReferenceExecutor(SPEC)
    prompt = list(range(40))
    assert step(executor, prompt, 0, [3, 4]) == reference_token(prompt_sha256(prompt), 0, nasty=False)
    with pytest.raises(EngineFailed, match="fewer blocks"):
        step(executor, prompt, 0, [3])
    with pytest.raises(EngineFailed, match="does not exist"):
        step(executor, prompt, 0, [3, executor.shape.blocks])
    with pytest.raises(EngineFailed, match="do not hold"):
        step(executor, prompt[32:], 32, [7, 4], prompt)


def test_copied_blocks_hold_what_was_copied() -> None:
    executor = ReferenceExecutor(SPEC)
    prompt = list(range(40))
    first = step(executor, prompt, 0, [3, 4])
    executor.step(StepPlan((SequenceStep(2, [1], 0, [9], None),), copies=(BlockCopy(3, 7),)))
    assert step(executor, prompt[32:], 32, [7, 8], prompt) == first


def test_rates_are_kept() -> None:
    spec = ReplicaSpec("test", "reference", "reference", "", prefill_tokens_per_s=1000, output_tokens_per_s=100)
    executor = ReferenceExecutor(spec)
    started, awake = time.perf_counter(), awake_s()
    complete(executor, [list(range(50)), list(range(50))], Sampling(max_tokens=6))
    assert time.perf_counter() - started >= 0.15
    assert awake_s() - awake < 0.6  # 100 tokens of prompt, then 5 steps of both


def test_a_long_run_of_letters_is_encoded_in_one_pass() -> None:
    text = "q" * 250_000
    assert ReferenceTokenizer().encode(text) == list(text.encode())
