"""The executor on OpenVINO's paged attention: block tables and cache tensors are ours."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from itertools import accumulate, chain
from pathlib import Path

import numpy as np
import structlog
from numpy.typing import NDArray

from antiphon.core.errors import EngineFailed, ModelUnusable
from antiphon.engines.base import (
    BLOCK_TOKENS,
    ExecutorShape,
    ReplicaSpec,
    SampledToken,
    SampleRow,
    SequenceStep,
    StepPlan,
    StepResult,
)
from antiphon.engines.control_group import quota_processors, replica_threads
from antiphon.engines.logits import log_probabilities
from antiphon.engines.memory import available_bytes, cache_size
from antiphon.engines.paged_model import Formats, PagedModel, StepInputs
from antiphon.engines.sampler import Sampler
from antiphon.engines.tokenizer_file import read_tokenizer_file

DEFAULT_CONTEXT_TOKENS = 2048
"""For a model whose files do not say what context it was made for."""

_ANY_TOKENS = 64
"""Up to so many tokens, every number is as fast as its neighbours."""

_UNPACKED_SHARE = 0.25
"""Of the memory that is spare."""
_SEVERAL = 8

_log = structlog.get_logger(__name__)


class OpenVinoExecutor:
    """Implements ``Executor`` on the CPU. Loading blocks for seconds; raises ``ModelUnusable``.

    With ``precision="exact"`` everything is computed and cached in 32 bits, and a step of a single token, or with a single
    sampled row, is padded to two, because OpenVINO multiplies one row by another kernel than several; so a sequence's logits
    do not depend on what else is in the step.

    Otherwise, where there is plenty of memory, the weights are unpacked as well while it serves already: faster with several tokens.
    """

    def __init__(self, spec: ReplicaSpec) -> None:
        folder = Path(spec.model_path)
        tokenizer = read_tokenizer_file(folder)
        started = time.perf_counter()
        if spec.precision == "exact" and spec.kv_precision not in {"auto", "f32"}:
            raise ModelUnusable(f"The pool {spec.pool} cannot be exact with a KV cache in {spec.kv_precision}.")
        threads = spec.threads or replica_threads(spec.replicas, quota_processors())
        self._model = PagedModel(folder, Formats(spec.precision, spec.kv_precision), threads)
        block_bytes = self._model.block_bytes
        size = cache_size(spec.kv_bytes, block_bytes, spec.replicas, spec.host_slots)
        if size is None:
            raise ModelUnusable(f"The KV cache of {spec.model} needs at least {3 * block_bytes // 1_000_000 + 1} MB; give it more memory.")
        self._cache = self._model.allocate(size.blocks + 1, size.host_slots)
        self._scratch_block = size.blocks
        self._exact = spec.precision == "exact"
        self._closed = False
        wanted = spec.context_tokens or tokenizer.context_tokens or DEFAULT_CONTEXT_TOKENS
        trained = tokenizer.context_tokens or wanted
        self._shape = ExecutorShape(
            blocks=size.blocks,
            block_tokens=BLOCK_TOKENS,
            context_tokens=min(wanted, trained, size.blocks * BLOCK_TOKENS),
            vocabulary_tokens=self._model.vocabulary_tokens,
            end_token_ids=tokenizer.end_token_ids,
            host_slots=size.host_slots,
            partial_copies=spec.kv_precision != "u8",
        )
        self._sampler = Sampler(self._model.vocabulary_tokens)
        self._warm_up()
        _log.info(
            "executor_ready",
            pool=spec.pool,
            model=spec.model,
            precision=spec.precision,
            blocks=size.blocks,
            host_slots=size.host_slots,
            block_bytes=block_bytes,
            seconds=round(time.perf_counter() - started, 2),
        )
        self._unpacking = threading.Thread(target=self._unpack, args=(spec,), name="unpack", daemon=True)
        if not self._exact and not spec.memory_bytes:
            self._unpacking.start()

    @property
    def shape(self) -> ExecutorShape:
        return self._shape

    def step(self, plan: StepPlan) -> StepResult:
        started = time.perf_counter()
        logits = self._logits(plan)
        inferred = time.perf_counter()
        rows = [(sequence.sequence_id, sequence.sample) for sequence in plan.sequences if sequence.sample is not None]
        sampled = self._sampled(logits, rows) if rows else ()
        return StepResult(sampled=sampled, infer_s=inferred - started, sample_s=time.perf_counter() - inferred)

    def logits(self, plan: StepPlan) -> NDArray[np.float32]:
        """The step's logits, [sampled sequences, vocabulary], in place of sampled tokens: for measurements of exactness."""
        return self._logits(plan)[: sum(sequence.sample is not None for sequence in plan.sequences)].copy()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._model.release()
            self.await_unpacked()
            del self._cache

    @property
    def unpacked(self) -> bool:
        """Whether it has unpacked weights."""
        return self._model.unpacked

    def await_unpacked(self) -> None:
        """Wait until the model has the form it keeps: for measurements."""
        if self._unpacking.is_alive():
            self._unpacking.join()

    def _logits(self, plan: StepPlan) -> NDArray[np.float32]:
        """Move blocks, then compute: at least one row. It is valid until the next step."""
        self._check(plan)
        inputs = self._inputs(plan.sequences)
        self._check_values(inputs)
        if plan.swap_out:
            self._cache.swap_out(plan.swap_out)
        if plan.swap_in:
            self._cache.swap_in(plan.swap_in)
        if plan.copies:
            self._cache.copy(plan.copies)
        try:
            return self._model.infer(inputs)
        except RuntimeError as error:
            raise EngineFailed("The engine could not compute a step.") from error

    def _sampled(self, logits: NDArray[np.float32], rows: Sequence[tuple[int, SampleRow]]) -> tuple[SampledToken, ...]:
        try:
            ids = self._sampler.sample(logits[: len(rows)], [row for _, row in rows])
        except FloatingPointError as error:
            raise EngineFailed("The model computed something that is not a number.") from error
        sampled: list[SampledToken] = []
        for index, (sequence_id, row) in enumerate(rows):
            most = row.sampling.logprobs
            if most is None:
                sampled.append(SampledToken(sequence_id, ids[index]))
            else:
                sampled.append(SampledToken(sequence_id, ids[index], *log_probabilities(logits[index], ids[index], most)))
        return tuple(sampled)

    def _inputs(self, sequences: Sequence[SequenceStep]) -> StepInputs:
        new_tokens = sum(len(sequence.token_ids) for sequence in sequences)
        padding = self._scratch_tokens(new_tokens)
        if padding:
            sequences = (*sequences, _scratch(self._scratch_block, padding))
        counts = [len(sequence.token_ids) for sequence in sequences]
        pasts = [sequence.past_tokens for sequence in sequences]
        totals = [past + count for past, count in zip(pasts, counts, strict=True)]
        needed = [-(-total // BLOCK_TOKENS) for total in totals]
        begins = list(accumulate(counts, initial=0))
        tables = [sequence.block_ids[:count] for sequence, count in zip(sequences, needed, strict=True)]
        sampled = [end - 1 for end, sequence in zip(begins[1:], sequences, strict=True) if sequence.sample is not None] or [0]
        if self._exact and len(sampled) == 1:
            sampled *= 2
        return StepInputs(
            input_ids=np.array(list(chain.from_iterable(sequence.token_ids for sequence in sequences)), np.int64),
            position_ids=np.array(list(chain.from_iterable(map(range, pasts, totals))), np.int64),
            past_lens=np.array(pasts, np.int32),
            subsequence_begins=np.array(begins, np.int32),
            block_indices=np.array(list(chain.from_iterable(tables)), np.int32),
            block_indices_begins=np.array(list(accumulate(needed, initial=0)), np.int32),
            max_context_len=np.array(max(totals), np.int32),
            sampled_tokens_indices=np.array(sampled, np.int64),
        )

    def _scratch_tokens(self, new_tokens: int) -> int:
        """How many tokens of nobody go along.

        OpenVINO divides a matrix product's rows evenly, so a number of rows with no good divisors is slow: measured with
        two threads, 65 tokens take half as long again as 64 or 66, and an odd number up to 128 a third longer than the next
        even one; the larger the number, the coarser the multiples that are fast.
        """
        if self._exact and new_tokens == 1:
            return 1
        if new_tokens <= _ANY_TOKENS:
            return 0
        multiple = 2 if new_tokens <= 2 * _ANY_TOKENS else 8
        return -new_tokens % multiple

    def _check(self, plan: StepPlan) -> None:
        """Native code trusts its block tables: a wrong one would overwrite memory. See ``_check_values`` too."""
        if self._closed or not plan.sequences:
            raise EngineFailed("The engine was given nothing it can compute.")
        blocks, slots = self._shape.blocks, self._shape.host_slots
        for sequence in plan.sequences:
            new, past = len(sequence.token_ids), sequence.past_tokens
            if not new or past < 0 or len(sequence.block_ids) * BLOCK_TOKENS < past + new:
                raise EngineFailed("A step names fewer blocks than its tokens need.")
        for copy in plan.copies:
            if not (0 <= copy.source_block < blocks and 0 <= copy.target_block < blocks):
                raise EngineFailed("A copy names a block that does not exist.")
        for swap in chain(plan.swap_out, plan.swap_in):
            if not (0 <= swap.device_block < blocks and 0 <= swap.host_slot < slots):
                raise EngineFailed("A swap names a block or a slot that does not exist.")

    def _check_values(self, inputs: StepInputs) -> None:
        """The other half of ``_check``, on whole arrays; the scratch block passes."""
        if inputs.input_ids.min() < 0 or inputs.input_ids.max() >= self._shape.vocabulary_tokens:
            raise EngineFailed("A step has a token that is not in the vocabulary.")
        if inputs.block_indices.min() < 0 or inputs.block_indices.max() > self._scratch_block:
            raise EngineFailed("A step names a block that does not exist.")

    def _unpack(self, spec: ReplicaSpec) -> None:
        """The cache is given its memory as it is used: what it may still take is not spare."""
        shape, started = self._shape, time.perf_counter()
        spare = available_bytes() // max(spec.replicas, 1) - self._model.block_bytes * (shape.blocks + shape.host_slots)
        try:
            row = _scratch(self._scratch_block, 1)
            unpacked = self._model.unpack(int(spare * _UNPACKED_SHARE), self._inputs((row,) * _SEVERAL))
        except Exception as error:  # noqa: BLE001 - whatever it failed of, what serves goes on, only slower
            _log.warning("weights_stay_packed", pool=spec.pool, model=spec.model, error=str(error))
            return
        if unpacked:
            _log.info("weights_unpacked", pool=spec.pool, model=spec.model, seconds=round(time.perf_counter() - started, 2))

    def _warm_up(self) -> None:
        """Run the shapes that differ in kernels once (a chunk, two rows, one row), so that no user waits for them."""
        chunk = SequenceStep(0, (0,) * BLOCK_TOKENS, 0, (self._scratch_block,), None)
        row = _scratch(self._scratch_block, 1)
        try:
            for sequences in ((chunk,), (row, row), (row,)):
                self._model.infer(self._inputs(sequences))
        except RuntimeError as error:
            raise ModelUnusable("OpenVINO loaded the model but cannot run it.") from error


def _scratch(block: int, tokens: int) -> SequenceStep:
    """Tokens of no sequence, on the block that is never handed out."""
    return SequenceStep(-1, (0,) * tokens, 0, (block,), None)
