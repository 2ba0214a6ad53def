"""Which sequences compute which tokens in the next step. Pure: it is given ``now`` and returns a plan.

Continuous batching: every running sequence takes part in every step it can. Rows with one token to compute go first and
always; those with more (prefill, resumption) share a token budget, first come first served within a band. Because an
early prompt is finished before the next one begins, later ones find its blocks in the prefix cache, even in one burst.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from antiphon.core.errors import EngineFailed
from antiphon.core.generation import FinishReason
from antiphon.core.tenancy import Band
from antiphon.engines.base import BlockCopy, EngineRequest, EngineUsage, ExecutorShape, SampleRow, SequenceStep, StepPlan, StepResult
from antiphon.inference.kv_blocks import BlockCounts, BlockPool
from antiphon.inference.prefix_cache import BlockTokens, CachedBlock, PrefixCache
from antiphon.inference.sequence import Sequence


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """``prefill_tokens_*`` bound the tokens of one step that are not decode rows: the inter-token time of the others."""

    max_rows: int = 64
    prefill_tokens_beside_decode: int = 128
    prefill_tokens_alone: int = 512


@dataclass(frozen=True, slots=True)
class Ended:
    """Why a sequence ended, and what it cost."""

    reason: FinishReason
    usage: EngineUsage


@dataclass(frozen=True, slots=True)
class SequenceOutput:
    """What a step did for one sequence: a token, or ``None`` and the tokens computed so far; ``ended`` when that was its end."""

    sequence_id: int
    token_id: int | None
    done_tokens: int
    total_tokens: int
    ended: Ended | None = None


@dataclass(frozen=True, slots=True)
class SchedulerState:
    """``unpromised`` blocks are those that no accepted sequence can ever need; negative while accepted ones wait."""

    running: int
    waiting: int
    blocks: BlockCounts
    unpromised: int


class Scheduler:
    """Owns sequences, blocks and prefix cache of one replica.

    A sequence is admitted only when every block it can ever need is free or evictable and promised to nobody else, so no
    step finds the pool empty and nothing is ever pre-empted. Calls alternate: any number of ``submit``, ``cancel`` and
    ``finish``, then ``plan``, then ``apply`` with that plan's result.
    """

    def __init__(self, shape: ExecutorShape, settings: SchedulerSettings | None = None) -> None:
        self._settings = settings or SchedulerSettings()
        self._block_tokens = shape.block_tokens
        self._end_token_ids = shape.end_token_ids
        self.context_tokens = min(shape.context_tokens, shape.blocks * shape.block_tokens)
        self._pool = BlockPool(shape.blocks)
        self._cache = PrefixCache(self._pool)
        self._waiting: dict[Band, deque[Sequence]] = {band: deque() for band in sorted(Band, reverse=True)}
        self._running: dict[int, Sequence] = {}
        self._promised = 0
        self._copies: list[BlockCopy] = []
        self._in_flight: StepPlan | None = None

    # --- requests -----------------------------------------------------------------------------

    def submit(self, sequence_id: int, request: EngineRequest, now: float) -> FinishReason | None:
        """Put a request in line. Returns a reason when it needs no step at all (resumed at its very end); it is not kept then.

        Raises ``EngineFailed`` when it can never fit. ``sequence_id`` must not be in use.
        """
        prompt_tokens = len(request.prompt_ids)
        if prompt_tokens == 0:
            raise EngineFailed("The prompt is empty.")
        if prompt_tokens >= self.context_tokens:
            raise EngineFailed(f"The prompt has {prompt_tokens} tokens; this replica holds at most {self.context_tokens} with the answer.")
        sequence = Sequence.from_request(sequence_id, request, self.context_tokens, now)
        reason = sequence.reason_after(self._end_token_ids)
        if reason is None:
            self._waiting[request.band].append(sequence)
        return reason

    def cancel(self, sequence_id: int, now: float) -> EngineUsage | None:
        """Drop a sequence wherever it is; its blocks are back before this returns. ``None`` when it is not here (any more)."""
        sequence = self._running.get(sequence_id)
        if sequence is not None:
            self._end(sequence)
            return sequence.usage(now)
        for line in self._waiting.values():
            for sequence in line:
                if sequence.id == sequence_id:
                    line.remove(sequence)
                    return sequence.usage(now)
        return None

    def set_band(self, sequence_id: int, band: Band) -> None:
        """Let a sequence count as one of ``band``, last in that band's line where it still waits. Unknown ids are ignored."""
        sequence = self._running.get(sequence_id)
        if sequence is None:
            sequence = next((one for line in self._waiting.values() for one in line if one.id == sequence_id), None)
            if sequence is None or sequence.request.band is band:
                return
            self._waiting[sequence.request.band].remove(sequence)
            self._waiting[band].append(sequence)
        sequence.request = replace(sequence.request, band=band)

    @property
    def idle(self) -> bool:
        return not self._running and not any(self._waiting.values())

    @property
    def state(self) -> SchedulerState:
        waiting = [sequence for line in self._waiting.values() for sequence in line]
        wanted = sum(sequence.peak_blocks(self._block_tokens) for sequence in waiting)
        return SchedulerState(
            running=len(self._running),
            waiting=len(waiting),
            blocks=self._pool.counts,
            unpromised=self._pool.takeable - self._promised - wanted,
        )

    # --- steps --------------------------------------------------------------------------------

    def plan(self, now: float) -> StepPlan | None:
        """The next step, or ``None`` when there is nothing to compute. Takes the blocks that the step writes to."""
        assert self._in_flight is None, "the previous step was not applied"
        self._admit(now)
        steps = [self._step(sequence, 1) for sequence in self._running.values() if sequence.remaining == 1]
        steps += self._catch_up(self._settings.prefill_tokens_beside_decode if steps else self._settings.prefill_tokens_alone)
        if not steps:
            return None
        self._in_flight = StepPlan(sequences=tuple(steps), copies=tuple(self._copies))
        return self._in_flight

    def apply(self, result: StepResult, now: float) -> list[SequenceOutput]:
        """Take the result of the last plan. Sequences that ended are gone, their blocks given back."""
        plan, self._in_flight = self._in_flight, None
        assert plan is not None, "there is no step to apply"
        for copy in self._copies:
            self._pool.release(copy.source_block)
        self._copies.clear()
        share_s = result.infer_s / plan.new_tokens
        sampled = iter(result.sampled)
        outputs: list[SequenceOutput] = []
        for step in plan.sequences:
            sequence = self._running[step.sequence_id]
            sequence.computed += len(step.token_ids)
            sequence.accelerator_s += share_s * len(step.token_ids)
            self._index(sequence)
            if step.sample is None:
                outputs.append(SequenceOutput(sequence.id, None, sequence.computed, len(sequence.tokens)))
                continue
            token = next(sampled)
            if token.sequence_id != sequence.id:
                raise EngineFailed("The executor sampled other sequences than planned.")
            outputs.append(self._sampled(sequence, token.token_id, now))
        return outputs

    def finish(self, sequence_id: int, now: float) -> Ended:
        """End a running sequence (a stop string was completed); its blocks are back before this returns."""
        sequence = self._running[sequence_id]
        self._end(sequence)
        return Ended(FinishReason.STOP, sequence.usage(now))

    def check(self) -> None:
        """Raise ``AssertionError`` unless every block is accounted for and every promise can be kept."""
        self._pool.check()
        self._cache.check()
        references = [0] * self._pool.blocks
        promised = 0
        for sequence in self._running.values():
            sequence.check(self._block_tokens)
            promised += sequence.peak_blocks(self._block_tokens) - len(sequence.blocks)
            for block in sequence.blocks:
                references[block] += 1
        assert references == [self._pool.references(block) for block in range(self._pool.blocks)], "a block has a stray reference"
        assert promised == self._promised
        assert self._pool.takeable >= promised, "a promise cannot be kept"
        assert len(self._running) <= self._settings.max_rows

    # --- inside -------------------------------------------------------------------------------

    def _admit(self, now: float) -> None:
        """Move sequences from the line to the batch while they fit; nobody overtakes the first of the highest band."""
        for line in self._waiting.values():
            while line:
                if len(self._running) >= self._settings.max_rows or not self._try_admit(line[0], now):
                    return
                line.popleft()

    def _try_admit(self, sequence: Sequence, now: float) -> bool:
        path = self._cache.match(sequence.request.tenant_id, sequence.prompt_keys(self._block_tokens))
        unreferenced = sum(self._pool.references(node.block) == 0 for node in path)
        needed = sequence.peak_blocks(self._block_tokens) - len(path)
        spare = self._pool.takeable - self._promised - unreferenced - needed
        if spare < 0:
            return False
        self._running[sequence.id] = sequence
        self._promised += sequence.peak_blocks(self._block_tokens)
        sequence.started_at = now
        for node in path:
            self._hold(sequence, node)
        if spare > 0:
            self._copy_partial(sequence)
        return True

    def _hold(self, sequence: Sequence, node: CachedBlock) -> None:
        """Let the sequence use a cached block as its next one."""
        self._pool.share(node.block)
        self._promised -= 1
        sequence.blocks.append(node.block)
        sequence.indexed = node
        sequence.indexed_blocks += 1
        sequence.computed += self._block_tokens
        sequence.cached += self._block_tokens

    def _copy_partial(self, sequence: Sequence) -> None:
        """Start the sequence's next block as a copy of a cached one that begins with the same tokens.

        Needs one spare block: the source stays pinned until the copy is made, at the beginning of the next step.
        """
        end = min(len(sequence.tokens) - 1, sequence.computed + self._block_tokens)
        found = self._cache.find_partial(sequence.request.tenant_id, sequence.indexed, sequence.tokens[sequence.computed : end])
        if found is None:
            return
        source, tokens = found
        self._pool.share(source.block)
        target = self._take(sequence)
        self._copies.append(BlockCopy(source_block=source.block, target_block=target))
        sequence.computed += tokens
        sequence.cached += tokens

    def _adopt(self, sequence: Sequence) -> None:
        """Use blocks that other sequences have computed since this one was admitted."""
        size = self._block_tokens
        while sequence.computed % size == 0 and sequence.computed + size < len(sequence.tokens):
            key = sequence.block_key(sequence.indexed_blocks, size)
            node = self._cache.find(sequence.request.tenant_id, sequence.indexed, key)
            if node is None:
                return
            self._hold(sequence, node)

    def _catch_up(self, budget: int) -> list[SequenceStep]:
        """Chunks of those with more than one token to compute. One that would begin the very block that another begins in
        this step sits it out: in the next step it finds that block in the cache.
        """
        steps: list[SequenceStep] = []
        begun: set[tuple[str, int, BlockTokens]] = set()
        for sequence in _by_band(sequence for sequence in self._running.values() if sequence.remaining > 1):
            self._adopt(sequence)
            beginning = self._beginning(sequence)
            if beginning in begun:
                continue
            tokens = self._chunk(sequence, budget, first=not steps)
            if tokens == 0:
                break
            if beginning is not None:
                begun.add(beginning)
            budget -= tokens
            steps.append(self._step(sequence, tokens))
        return steps

    def _beginning(self, sequence: Sequence) -> tuple[str, int, BlockTokens] | None:
        """What names the next block it computes, wherever that block is whole."""
        size = self._block_tokens
        if sequence.computed % size or sequence.remaining < size:
            return None
        after = -1 if sequence.indexed is None else sequence.indexed.block
        return sequence.request.tenant_id, after, sequence.block_key(sequence.indexed_blocks, size)

    def _chunk(self, sequence: Sequence, budget: int, *, first: bool) -> int:
        """How many tokens to compute within ``budget``; a chunk that does not catch up ends at a block's end.

        Where not even that fits, only the ``first`` of a step takes what there is.
        """
        if sequence.remaining <= budget:
            return sequence.remaining
        aligned = (sequence.computed + budget) // self._block_tokens * self._block_tokens - sequence.computed
        return aligned if aligned > 0 else (budget if first else 0)

    def _step(self, sequence: Sequence, tokens: int) -> SequenceStep:
        past = sequence.computed
        while len(sequence.blocks) * self._block_tokens < past + tokens:
            self._take(sequence)
        catches_up = past + tokens == len(sequence.tokens)
        return SequenceStep(
            sequence_id=sequence.id,
            token_ids=sequence.tokens[past : past + tokens],
            past_tokens=past,
            block_ids=sequence.blocks,
            sample=SampleRow(len(sequence.tokens), sequence.request.sampling, sequence.prompt_sha256, sequence.output_ids)
            if catches_up
            else None,
        )

    def _take(self, sequence: Sequence) -> int:
        """The sequence's next block, out of those promised to it."""
        if self._pool.free == 0:
            self._cache.evict()
        block = self._pool.take()
        self._promised -= 1
        sequence.blocks.append(block)
        return block

    def _index(self, sequence: Sequence) -> None:
        """Make the blocks that became full known to the cache; a block that is there already replaces the sequence's own."""
        while sequence.indexed_blocks < sequence.computed // self._block_tokens:
            index = sequence.indexed_blocks
            own = sequence.blocks[index]
            key = sequence.block_key(index, self._block_tokens)
            node = self._cache.insert(sequence.request.tenant_id, sequence.indexed, key, own)
            if node.block != own:
                self._pool.share(node.block)
                sequence.blocks[index] = node.block
                self._pool.release(own)
            sequence.indexed = node
            sequence.indexed_blocks += 1

    def _sampled(self, sequence: Sequence, token_id: int, now: float) -> SequenceOutput:
        sequence.append(token_id, now)
        reason = sequence.reason_after(self._end_token_ids)
        if reason is not None:
            self._end(sequence)
        ended = None if reason is None else Ended(reason, sequence.usage(now))
        return SequenceOutput(sequence.id, token_id, sequence.computed, len(sequence.tokens), ended)

    def _end(self, sequence: Sequence) -> None:
        """Forget a running sequence; its deepest block is released first, as the cache's order requires."""
        assert self._in_flight is None, "a sequence may only end between two steps"
        del self._running[sequence.id]
        self._promised -= sequence.peak_blocks(self._block_tokens) - len(sequence.blocks)
        for block in reversed(sequence.blocks):
            self._pool.release(block)


def _by_band(sequences: Iterable[Sequence]) -> list[Sequence]:
    """Higher bands first, else in the order of admission."""
    return sorted(sequences, key=lambda sequence: -sequence.request.band)
