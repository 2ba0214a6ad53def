"""The reference engine: a pool kind without a model, for tests, documentation, load and simulation.

Its answers are words that are a pure function of the SHA-256 of the prompt's ids and the token's place in the answer. It never ends a
turn by itself, so an answer has exactly ``max_tokens`` tokens unless a stop string ends it. With the vocabulary ``echo`` it says the
newest message back instead, and then ends its turn: any text can be made to stream through the whole product. It stores what a real
executor would compute from, the token behind every cell of every block, and refuses to answer from a cache that does not
hold the prompt: a scheduler that shares, copies or frees blocks wrongly fails here.
"""

from __future__ import annotations

import hashlib
import threading
import time

import numpy as np
from numpy.typing import NDArray

from antiphon.core.errors import EngineFailed
from antiphon.engines.base import (
    BLOCK_TOKENS,
    ExecutorShape,
    ReplicaSpec,
    SampledToken,
    SampleRow,
    SequenceStep,
    StepPlan,
    StepResult,
    prompt_sha256,
)
from antiphon.engines.reference_tokenizer import (
    END_ID,
    FIRST_WORD_ID,
    GROUP_TOKENS,
    NASTY_GROUP_IDS,
    THINK_ID,
    THOUGHT_ID,
    THOUGHT_TOKENS,
    USER_ID,
)
from antiphon.engines.reference_words import WORDS

DEFAULT_OUTPUT_TOKENS = 64
DEFAULT_BLOCKS = 4096
DEFAULT_HOST_SLOTS = 1024
DEFAULT_CONTEXT_TOKENS = 8192


class ReferenceExecutor:
    """Computes nothing, at a settable pace: ``prefill_tokens_per_s`` and ``output_tokens_per_s``, 0 for no waiting.

    The output rate is each sequence's own, as on a GPU: a step with decoding sequences takes 1/rate however many.
    """

    def __init__(self, spec: ReplicaSpec) -> None:
        blocks = spec.blocks or DEFAULT_BLOCKS
        self._shape = ExecutorShape(
            blocks=blocks,
            block_tokens=BLOCK_TOKENS,
            context_tokens=spec.context_tokens or min(DEFAULT_CONTEXT_TOKENS, blocks * BLOCK_TOKENS),
            vocabulary_tokens=THOUGHT_ID + 1,
            end_token_ids=frozenset({END_ID}),
            host_slots=DEFAULT_HOST_SLOTS if spec.host_slots < 0 else spec.host_slots,
        )
        self._vocabulary = spec.vocabulary
        self._prefill_tokens_per_s = spec.prefill_tokens_per_s
        self._output_tokens_per_s = spec.output_tokens_per_s
        self._closed = threading.Event()
        self._cells = np.full((blocks, BLOCK_TOKENS), -1, np.int32)
        self._slots = np.full((self._shape.host_slots, BLOCK_TOKENS), -1, np.int32)

    @property
    def shape(self) -> ExecutorShape:
        return self._shape

    def step(self, plan: StepPlan) -> StepResult:
        """Waits as long as the rates say. Raises ``EngineFailed`` for a plan no executor could honour."""
        started = time.perf_counter()
        self._move(plan)
        for sequence in plan.sequences:
            self._write(sequence)
        rows = [(sequence, sequence.sample) for sequence in plan.sequences if sequence.sample is not None]
        sampled = tuple(SampledToken(sequence.sequence_id, self._answer(sequence, row)) for sequence, row in rows)
        elapsed = time.perf_counter() - started
        wait = self._seconds(plan) - elapsed
        if wait > 0:
            self._closed.wait(wait)
        return StepResult(sampled=sampled, infer_s=elapsed + max(wait, 0.0), sample_s=0.0)

    def close(self) -> None:
        self._closed.set()

    def _move(self, plan: StepPlan) -> None:
        for swap in (*plan.swap_out, *plan.swap_in):
            if not (0 <= swap.device_block < self._shape.blocks and 0 <= swap.host_slot < self._shape.host_slots):
                raise EngineFailed("A swap names a block or a slot that does not exist.")
        for copy in plan.copies:
            if not (0 <= copy.source_block < self._shape.blocks and 0 <= copy.target_block < self._shape.blocks):
                raise EngineFailed("A copy names a block that does not exist.")
        for swap in plan.swap_out:
            self._slots[swap.host_slot] = self._cells[swap.device_block]
        for swap in plan.swap_in:
            self._cells[swap.device_block] = self._slots[swap.host_slot]
        for copy in plan.copies:
            self._cells[copy.target_block] = self._cells[copy.source_block]

    def _write(self, sequence: SequenceStep) -> None:
        total = sequence.past_tokens + len(sequence.token_ids)
        blocks = np.asarray(sequence.block_ids, np.int64)
        if not sequence.token_ids or len(blocks) * BLOCK_TOKENS < total:
            raise EngineFailed("A step names fewer blocks than its tokens need.")
        if blocks.min() < 0 or blocks.max() >= self._shape.blocks:
            raise EngineFailed("A step names a block that does not exist.")
        places = np.arange(sequence.past_tokens, total)
        self._cells[blocks[places // BLOCK_TOKENS], places % BLOCK_TOKENS] = np.asarray(sequence.token_ids, np.int32)

    def _answer(self, sequence: SequenceStep, row: SampleRow) -> int:
        prompt_tokens = row.position - len(row.output_ids)
        blocks = np.asarray(sequence.block_ids[: -(-row.position // BLOCK_TOKENS)], np.int64)
        held = self._cells[blocks].reshape(-1)[: row.position]
        if prompt_sha256(held[:prompt_tokens].tolist()) != row.prompt_sha256 or held[prompt_tokens:].tolist() != list(row.output_ids):
            raise EngineFailed("The blocks of a sequence do not hold its tokens.")
        if self._vocabulary == "echo":
            return _echoed_token(held[:prompt_tokens], len(row.output_ids))
        if self._vocabulary == "thinking" and len(row.output_ids) in {0, THOUGHT_TOKENS + 1}:
            return THOUGHT_ID if row.output_ids else THINK_ID
        return reference_token(row.prompt_sha256, len(row.output_ids), nasty=self._vocabulary == "nasty")

    def _seconds(self, plan: StepPlan) -> float:
        decoding = sum(1 for sequence in plan.sequences if sequence.sample is not None and len(sequence.token_ids) == 1)
        seconds = 0.0
        if self._prefill_tokens_per_s > 0:
            seconds += (plan.new_tokens - decoding) / self._prefill_tokens_per_s
        if self._output_tokens_per_s > 0 and decoding:
            seconds += 1 / self._output_tokens_per_s
        return seconds


def reference_token(sha256: bytes, index: int, *, nasty: bool) -> int:
    """The id at ``index`` of the answer to the prompt whose ids have this SHA-256."""
    if not nasty:
        return FIRST_WORD_ID + _draw(sha256, index) % len(WORDS)
    group = NASTY_GROUP_IDS[_draw(sha256, index // GROUP_TOKENS) % len(NASTY_GROUP_IDS)]
    return group[index % GROUP_TOKENS]


def _echoed_token(prompt_ids: NDArray[np.int32], index: int) -> int:
    """The id at ``index`` of the newest user message; the end of the turn after it."""
    starts = np.flatnonzero(prompt_ids == USER_ID)
    if starts.size == 0:
        return END_ID
    message = prompt_ids[starts[-1] + 1 :]
    length = int(np.argmax(message == END_ID))
    return int(message[index]) if index < length else END_ID


def _draw(sha256: bytes, number: int) -> int:
    return int.from_bytes(hashlib.sha256(sha256 + number.to_bytes(8, "big")).digest()[:8], "big")
