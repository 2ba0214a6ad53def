"""The executor on OpenVINO's paged attention: block tables and cache tensors are ours."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import structlog

from antiphon.core.errors import EngineFailed, ModelUnusable
from antiphon.engines.base import (
    BLOCK_TOKENS,
    ExecutorShape,
    ReplicaSpec,
    SampledToken,
    SequenceStep,
    StepPlan,
    StepResult,
)
from antiphon.engines.memory import available_bytes
from antiphon.engines.paged_model import PagedModel, StepInputs
from antiphon.engines.sampler import sample
from antiphon.engines.tokenizer_file import read_tokenizer_file

DEFAULT_CONTEXT_TOKENS = 2048
"""For a model whose files do not say what context it was made for."""

_MOST_BLOCKS_UNASKED = 2048
_MEMORY_SHARE = 0.25

_log = structlog.get_logger(__name__)


class OpenVinoExecutor:
    """Implements ``Executor`` on the CPU. Loading blocks for seconds; raises ``ModelUnusable``.

    With ``precision="exact"`` everything is computed and cached in 32 bits and a step of a single token is padded to two
    rows, because OpenVINO multiplies one row by another kernel than several; so a sequence's logits do not depend on what
    else is in the step.
    """

    def __init__(self, spec: ReplicaSpec) -> None:
        folder = Path(spec.model_path)
        tokenizer = read_tokenizer_file(folder)
        started = time.perf_counter()
        self._model = PagedModel(folder, spec.precision, spec.threads)
        blocks = _blocks(spec, self._model.block_bytes)
        self._scratch_block = blocks
        self._model.allocate(blocks + 1)
        self._exact = spec.precision == "exact"
        self._closed = False
        wanted = spec.context_tokens or tokenizer.context_tokens or DEFAULT_CONTEXT_TOKENS
        trained = tokenizer.context_tokens or wanted
        self._shape = ExecutorShape(
            blocks=blocks,
            block_tokens=BLOCK_TOKENS,
            context_tokens=min(wanted, trained, blocks * BLOCK_TOKENS),
            vocabulary_tokens=self._model.vocabulary_tokens,
            end_token_ids=tokenizer.end_token_ids,
        )
        self._warm_up()
        _log.info(
            "executor_ready",
            pool=spec.pool,
            model=spec.model,
            precision=spec.precision,
            blocks=blocks,
            block_bytes=self._model.block_bytes,
            seconds=round(time.perf_counter() - started, 2),
        )

    @property
    def shape(self) -> ExecutorShape:
        return self._shape

    def step(self, plan: StepPlan) -> StepResult:
        started = time.perf_counter()
        self._check(plan)
        for copy in plan.copies:
            self._model.copy_block(copy.source_block, copy.target_block)
        rows = [(sequence, sequence.sample) for sequence in plan.sequences if sequence.sample is not None]
        inputs = self._inputs(plan.sequences)
        try:
            logits = self._model.infer(inputs)
        except RuntimeError as error:
            raise EngineFailed("The engine could not compute a step.") from error
        inferred = time.perf_counter()
        ids = sample(logits[: len(rows)], [row for _, row in rows]) if rows else []
        sampled = tuple(SampledToken(sequence.sequence_id, token_id) for (sequence, _), token_id in zip(rows, ids, strict=True))
        return StepResult(sampled=sampled, infer_s=inferred - started, sample_s=time.perf_counter() - inferred)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._model.release()

    def _inputs(self, sequences: Sequence[SequenceStep]) -> StepInputs:
        if self._exact and sum(len(sequence.token_ids) for sequence in sequences) == 1:
            sequences = (*sequences, _scratch_row(self._scratch_block))
        tokens: list[int] = []
        positions: list[int] = []
        blocks: list[int] = []
        begins, block_begins, sampled = [0], [0], list[int]()
        for sequence in sequences:
            total = sequence.past_tokens + len(sequence.token_ids)
            tokens += sequence.token_ids
            positions += range(sequence.past_tokens, total)
            blocks += sequence.block_ids[: -(-total // BLOCK_TOKENS)]
            begins.append(len(tokens))
            block_begins.append(len(blocks))
            if sequence.sample is not None:
                sampled.append(len(tokens) - 1)
        return StepInputs(
            input_ids=np.asarray(tokens, np.int64),
            position_ids=np.asarray(positions, np.int64),
            past_lens=np.asarray([sequence.past_tokens for sequence in sequences], np.int32),
            subsequence_begins=np.asarray(begins, np.int32),
            block_indices=np.asarray(blocks, np.int32),
            block_indices_begins=np.asarray(block_begins, np.int32),
            max_context_len=max(sequence.past_tokens + len(sequence.token_ids) for sequence in sequences),
            sampled_rows=np.asarray(sampled or [0], np.int64),
        )

    def _check(self, plan: StepPlan) -> None:
        """Native code trusts its block tables: a wrong one would overwrite memory."""
        if self._closed or not plan.sequences:
            raise EngineFailed("The engine was given nothing it can compute.")
        named = [copy.target_block for copy in plan.copies] + [copy.source_block for copy in plan.copies]
        for sequence in plan.sequences:
            total = sequence.past_tokens + len(sequence.token_ids)
            if not sequence.token_ids or len(sequence.block_ids) * BLOCK_TOKENS < total:
                raise EngineFailed("A step names fewer blocks than its tokens need.")
            if min(sequence.token_ids) < 0 or max(sequence.token_ids) >= self._shape.vocabulary_tokens:
                raise EngineFailed("A step has a token that is not in the vocabulary.")
            named += sequence.block_ids
        if min(named) < 0 or max(named) >= self._shape.blocks:
            raise EngineFailed("A step names a block that does not exist.")

    def _warm_up(self) -> None:
        """Run the shapes that differ in kernels once (a chunk, two rows, one row), so that no user waits for them."""
        chunk = SequenceStep(0, (0,) * BLOCK_TOKENS, 0, (self._scratch_block,), None)
        row = _scratch_row(self._scratch_block)
        try:
            for sequences in ((chunk,), (row, row), (row,)):
                self._model.infer(self._inputs(sequences))
        except RuntimeError as error:
            raise ModelUnusable("OpenVINO loaded the model but cannot run it.") from error


def _scratch_row(block: int) -> SequenceStep:
    """A decode row of no sequence, on the block that is never handed out."""
    return SequenceStep(-1, (0,), 0, (block,), None)


def _blocks(spec: ReplicaSpec, block_bytes: int) -> int:
    if spec.kv_bytes > 0:
        blocks = spec.kv_bytes // block_bytes
    else:
        blocks = min(int(available_bytes() * _MEMORY_SHARE) // block_bytes, _MOST_BLOCKS_UNASKED)
    if blocks < 2:
        raise ModelUnusable(f"The KV cache of {spec.model} needs at least {3 * block_bytes // 1_000_000 + 1} MB; give it more memory.")
    return blocks
