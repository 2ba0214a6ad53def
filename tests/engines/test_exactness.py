"""Against transformers in f32, and ``exact`` against itself: minutes, so only ``make test-all`` runs it.

The figures are printed (``-s`` shows them).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from antiphon.core.generation import Sampling
from antiphon.core.messages import Role
from antiphon.core.pools import Precision
from antiphon.engines.base import PromptMessage, ReplicaSpec
from antiphon.engines.openvino import OpenVinoExecutor
from antiphon.engines.tokenizer import ModelTokenizer
from benchmarks.peers.files import environment, shipped_gguf
from tests.engines.driving import Lane, complete, forced_logits, run
from tests.engines.questions import QUESTIONS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]

TOKENS = 64
GREEDY = Sampling(max_tokens=TOKENS, temperature=0.0)
TRANSFORMERS = (("torch==2.13.0",), ("transformers==5.24.0", "gguf==0.19.0"))


def executor(folder: Path, precision: Precision) -> OpenVinoExecutor:
    return OpenVinoExecutor(
        ReplicaSpec(pool="exactness", engine="openvino", model="m", model_path=str(folder), precision=precision, kv_bytes=600_000_000)
    )


@pytest.fixture(scope="module")
def exact(model_folder: Path) -> Iterator[OpenVinoExecutor]:
    made = executor(model_folder, "exact")
    yield made
    made.close()


@pytest.fixture(scope="module")
def prompts(tokenizer: ModelTokenizer) -> list[list[int]]:
    """Of 11 to 400 tokens."""
    return [
        tokenizer.prompt(
            [PromptMessage(Role.SYSTEM, "Be brief and plain. " * (index % 8) * (index % 8)), PromptMessage(Role.USER, question)]
        )
        for index, question in enumerate(QUESTIONS)
    ]


@pytest.fixture(scope="module")
def alone(exact: OpenVinoExecutor, prompts: list[list[int]]) -> list[list[int]]:
    """Each prompt's greedy answer, computed with nothing beside it, past any end of turn."""
    return [complete(exact, [prompt], GREEDY, past_end=True)[0] for prompt in prompts]


def test_both_precisions_agree_with_transformers(
    exact: OpenVinoExecutor, model_folder: Path, prompts: list[list[int]], alone: list[list[int]], tmp_path: Path
) -> None:
    python = environment("transformers", TRANSFORMERS)
    (tmp_path / "texts").write_text(json.dumps(list(zip(prompts, alone, strict=True))))
    script = Path(__file__).with_name("transformers_scores.py")
    subprocess.run([python, script, shipped_gguf(), tmp_path / "texts", tmp_path / "scores.npz"], check=True)
    scores = np.load(tmp_path / "scores.npz")

    exact_same, exact_off = compare(exact, prompts, alone, scores["top"], scores["logprob"])
    fast = executor(model_folder, "fast")
    fast_same, fast_off = compare(fast, prompts, alone, scores["top"], scores["logprob"])
    fast.close()
    print(f"\ntop-1 equal, {len(prompts)} × {TOKENS}: exact {exact_same:.4%}, fast {fast_same:.3%}", flush=True)
    print(f"median |Δ log p|: exact {exact_off:.2e}, fast {fast_off:.4f}", flush=True)
    assert exact_same >= 0.999
    assert fast_same >= 0.97
    assert fast_off <= 0.05


def compare(
    engine: OpenVinoExecutor, prompts: list[list[int]], answers: list[list[int]], top: NDArray[np.int64], logprob: NDArray[np.float64]
) -> tuple[float, float]:
    """Share of places with the same most probable token, and the median difference of the answers' log-probabilities."""
    same: list[bool] = []
    off: list[float] = []
    for start in range(0, len(prompts), 10):
        group = slice(start, start + 10)
        logits = forced_logits(engine, prompts[group], answers[group])  # [10, TOKENS, vocabulary]
        ours = logits.astype(np.float64)
        whole = ours.max(axis=-1) + np.log(np.exp(ours - ours.max(axis=-1, keepdims=True)).sum(axis=-1))
        own = np.take_along_axis(ours, np.asarray(answers[group])[..., None], axis=-1)[..., 0] - whole
        same += (logits.argmax(axis=-1) == top[group]).ravel().tolist()
        off += np.abs(own - logprob[group]).ravel().tolist()
    return float(np.mean(same)), float(np.median(off))


def test_exact_answers_are_the_same_however_they_are_computed(
    exact: OpenVinoExecutor, prompts: list[list[int]], alone: list[list[int]]
) -> None:
    def lanes(**how: int | bool) -> list[Lane]:
        return [Lane(prompt, **how) for prompt in prompts]

    found = {
        "batched": [answer for start in range(0, 50, 16) for answer in complete(exact, prompts[start : start + 16], GREEDY, past_end=True)],
        "chunked": run(exact, lanes(chunk=24), GREEDY, rows=8),
        "cached": run(exact, lanes(cached=True), GREEDY, rows=8),
        "swapped": run(exact, lanes(swap_at=20), GREEDY, rows=8),
        "resumed": run(exact, [Lane(prompt, output=answer[:30]) for prompt, answer in zip(prompts, alone, strict=True)], GREEDY, rows=8),
    }
    differing = {how: sum(one != other for one, other in zip(answers, alone, strict=True)) for how, answers in found.items()}
    print(f"\nanswers that differ from alone, of {len(prompts)}: {differing}", flush=True)
    assert not any(differing.values())
