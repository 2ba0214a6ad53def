"""The first answer: an HTTP client against ``antiphon serve`` with the default model, beside the bare executor.

30 different questions, each in a conversation of its own; one user, then eight at once. Rounds alternate ABBA with the same
prompts on the executor alone, in a process of its own, and ratios are medians over rounds.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue

from antiphon.app.config import Flags, load_config
from antiphon.core.messages import Role
from antiphon.engines.base import PromptMessage
from antiphon.engines.model_source import DEFAULT_MODEL, ModelStore
from antiphon.engines.tokenizer import load_tokenizer
from antiphon.orchestrator.prompt import SYSTEM_PROMPT
from benchmarks.report import Report, median, options, percentile, progress
from benchmarks.served import Answer, ChatClient, Served, served

PLAN = """
[[plans]]
name = "free"
models = ["small"]
tokens_per_minute = 10000000
requests_per_minute = 100000
concurrency = 64
max_output_tokens = 1024
"""
QUESTIONS = (
    "What is a hash table?",
    "Explain rain to a child.",
    "Write a haiku about ships.",
    "How do I boil an egg?",
    "Name three rivers and say where they are.",
    "What does a compiler do?",
    "Give me a plan for a weekend in Rome.",
    "Why is the sky blue?",
    "Who wrote the Odyssey?",
    "How does a bicycle stay upright?",
    "What is the difference between a virus and a bacterium?",
    "Explain compound interest.",
    "Suggest a name for a grey cat.",
    "How do tides work?",
    "What is a prime number?",
    "Describe the taste of coffee.",
    "How do I remove a coffee stain?",
    "What happened in 1969?",
    "Explain recursion with an example.",
    "Why do leaves turn red?",
    "What is the capital of Australia?",
    "How does a refrigerator work?",
    "Write two sentences about the sea.",
    "What is photosynthesis?",
    "How long does it take to learn a language?",
    "What is a good breakfast before a run?",
    "Explain the offside rule.",
    "Why do cats purr?",
    "What is the square root of 144?",
    "Give three tips for a job interview.",
)
MAX_TOKENS = 48


class BareExecutor:
    """The executor's own process, asked over its pipes."""

    def __init__(self, model_folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.bare_executor", str(model_folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def rate(self, prompts: Sequence[Sequence[int]], *, rows: int, seed: int) -> float:
        """Output tokens per second over all ``prompts``, at most ``rows`` at once."""
        return self._rate({"prompts": prompts, "rows": rows, "paced": False, "max_tokens": MAX_TOKENS, "seed": seed, "greedy": False})

    def greedy_rate(self, prompts: Sequence[Sequence[int]], *, max_tokens: int) -> float:
        """Of answers of ``max_tokens``, all of them at once, as many of them in each of the first steps as our scheduler takes."""
        rows = len(prompts)
        return self._rate({"prompts": prompts, "rows": rows, "paced": True, "max_tokens": max_tokens, "seed": 0, "greedy": True})

    def _rate(self, request: dict[str, object]) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        return answer["output_tokens"] / answer["seconds"]

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the bare executor ended")
        return json.loads(line)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)


@contextmanager
def bare_executor(model_folder: Path) -> Iterator[BareExecutor]:
    executor = BareExecutor(model_folder)
    try:
        yield executor
    finally:
        executor.close()


@dataclass(slots=True)
class Round:
    """All answers of one pass over the questions by ``users`` users at once."""

    answers: list[Answer] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        return sum(answer.output_tokens for answer in self.answers) / self.seconds


def serve_round(server: Served, questions: Sequence[str], *, users: int, seed: int) -> Round:
    """Closed loop: each user takes the next question as soon as the last answer ended."""
    done = Round()
    work: SimpleQueue[tuple[int, str, str]] = SimpleQueue()
    clients = [ChatClient(server) for _ in range(users)]
    for number, question in enumerate(questions):
        work.put((number, question, clients[0].new_conversation()))

    def user(client: ChatClient) -> None:
        while True:
            try:
                number, question, conversation = work.get_nowait()
            except Empty:
                return
            done.answers.append(client.ask(conversation, question, max_tokens=MAX_TOKENS, seed=seed + number))

    threads = [threading.Thread(target=user, args=(client,)) for client in clients]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done.seconds = time.perf_counter() - start
    for client in clients:
        client.close()
    failed = [answer.error for answer in done.answers if answer.error]
    if failed:
        raise RuntimeError(f"{len(failed)} answers failed: {failed[0]}")
    return done


def main() -> None:
    asked = options("first_answer")
    report = Report("first_answer", DEFAULT_MODEL, asked.seed)
    config = load_config(Flags(), {})
    folder = ModelStore(config.models_dir).find(DEFAULT_MODEL)
    if folder is None:
        raise SystemExit("the default model is not installed: antiphon models pull")
    tokenizer = load_tokenizer(folder)
    questions = QUESTIONS[:8] if asked.quick else QUESTIONS
    prompts = [tokenizer.prompt([PromptMessage(Role.SYSTEM, SYSTEM_PROMPT), PromptMessage(Role.USER, question)]) for question in questions]
    rounds = 2 if asked.quick else 3
    ttft_ms: list[float] = []
    with served(PLAN) as server, bare_executor(folder) as bare:
        serve_round(server, questions[:2], users=2, seed=asked.seed)
        for users in (1, 8):
            rates: list[float] = []
            ratios: list[float] = []
            for number in range(rounds):
                seed = asked.seed + 1000 * number
                ours_first = number % 2 == 0
                theirs = 0.0 if ours_first else bare.rate(prompts, rows=users, seed=seed)
                ours = serve_round(server, questions, users=users, seed=seed)
                theirs = theirs or bare.rate(prompts, rows=users, seed=seed)
                report.n += len(ours.answers)
                rates.append(ours.rate)
                ratios.append(ours.rate / theirs)
                if users == 1:
                    ttft_ms += [answer.ttft_s * 1e3 for answer in ours.answers if answer.ttft_s is not None]
                progress(f"{users} users, round {number + 1}: {ours.rate:.1f} tok/s, executor {theirs:.1f}, ratio {ratios[-1]:.3f}")
            report.results[f"output_tok_s_{users}"] = round(median(rates), 1)
            report.ratios[f"tok_s_{users}_vs_executor"] = round(median(ratios), 3)
    report.results["ttft_ms_p50"] = round(percentile(ttft_ms, 0.5), 1)
    report.results["ttft_ms_p95"] = round(percentile(ttft_ms, 0.95), 1)
    report.print_json()


if __name__ == "__main__":
    main()
