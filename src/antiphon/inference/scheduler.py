"""Which sequences compute which tokens in the next step. Pure: it is given ``now`` and returns a plan.

Continuous batching: every running sequence takes part in every step it can. Rows with one token to compute go first and
always; those with more (prefill, resumption) share what is left of the step's time, as the step-time model predicts it.
Requests are admitted at the moment they get their first tokens, so the order among them is decided as late as possible.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from antiphon.core.errors import EngineFailed
from antiphon.core.generation import FinishReason
from antiphon.core.tenancy import Band
from antiphon.engines.base import EngineRequest, EngineUsage, ExecutorShape, StepPlan, StepResult
from antiphon.inference.fair_share import CACHED_COST, INPUT_COST, OUTPUT_COST, FairShare
from antiphon.inference.kv_blocks import BlockCounts
from antiphon.inference.kv_memory import KvMemory
from antiphon.inference.line import Line, LineRules
from antiphon.inference.outcome import Ended, SequenceOutput
from antiphon.inference.output_length import OutputLengths
from antiphon.inference.place import has_place, victim
from antiphon.inference.prefix_cache import CachedBlock
from antiphon.inference.sequence import MOST_PREEMPTIONS, Room, Sequence
from antiphon.inference.step_budget import StepBudget, StepTargets
from antiphon.inference.step_draft import StepDraft
from antiphon.inference.step_time import StepTimeModel

_MOST_PASSES = 8
"""How often smaller requests may go before one that does not fit; then all wait until it does."""

Beginning = tuple[str, int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    max_rows: int = 64
    targets: StepTargets = field(default_factory=StepTargets)
    line: LineRules = field(default_factory=LineRules)


@dataclass(frozen=True, slots=True)
class SchedulerState:
    """``unpromised`` blocks are those that no accepted sequence is expected to need; negative while accepted ones wait.

    ``prefill_tokens`` are still to compute before their first token; ``preemptions`` and ``recomputed_tokens`` (work that
    was lost and done again) count from the start; ``expected_output`` is what the next answer will probably have.
    """

    running: int
    waiting: int
    blocks: BlockCounts
    unpromised: int
    host_used: int
    prefill_tokens: int
    preemptions: int
    recomputed_tokens: int
    expected_output: int
    step_ms: tuple[float, ...]


class Scheduler:
    """Owns sequences, blocks and prefix cache of one replica.

    A sequence is admitted when the batch's predicted peak fits. Where a prediction was too low, and where a higher band
    needs the place, others step aside: their blocks move to the host and come back, at most twice for each sequence.
    Where the executor cannot swap, everything a sequence can ever need is promised to it instead. No step ever finds no
    block. Calls alternate: any number of ``submit``, ``cancel`` and ``finish``, then ``plan``, then ``apply`` with that
    plan's result.
    """

    def __init__(self, shape: ExecutorShape, settings: SchedulerSettings | None = None, lengths: OutputLengths | None = None) -> None:
        self._settings = settings or SchedulerSettings()
        self._end_token_ids = shape.end_token_ids
        self._chunk_multiple = 1 if shape.partial_copies else shape.block_tokens
        self.context_tokens = min(shape.context_tokens, shape.blocks * shape.block_tokens)
        self._room = Room(self.context_tokens, shape.block_tokens)
        self._memory = KvMemory(shape)
        self._fair = FairShare()
        self._line = Line(self._settings.line)
        self._lengths = lengths or OutputLengths()
        self._model = StepTimeModel()
        self._waiting: dict[int, Sequence] = {}
        self._running: dict[int, Sequence] = {}
        self._draft = StepDraft(self._memory)
        self._in_flight: StepPlan | None = None
        self._planned_at = 0.0
        self._preemptions = 0
        self._recomputed = 0

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
        account = self._fair.enter(request.band, request.tenant_id)
        sequence = Sequence.from_request(sequence_id, request, self._room, account, now)
        reason = sequence.reason_after(self._end_token_ids)
        if reason is not None:
            self._fair.leave(account)
            return reason
        self._expect(sequence)
        sequence.uncached = self._memory.uncached(sequence, self._memory.find(sequence))
        self._waiting[sequence_id] = sequence
        return None

    def cancel(self, sequence_id: int, now: float) -> EngineUsage | None:
        """Drop a sequence wherever it is; its blocks are back before this returns. ``None`` when it is not here (any more)."""
        sequence = self._running.get(sequence_id)
        if sequence is not None:
            self._end(sequence)
            return sequence.usage(now)
        sequence = self._waiting.pop(sequence_id, None)
        if sequence is None:
            return None
        self._fair.leave(sequence.account)
        self._memory.forget(sequence)
        return sequence.usage(now)

    def set_band(self, sequence_id: int, band: Band) -> None:
        """Let a sequence count, and be charged, as one of ``band``. Unknown ids are ignored."""
        sequence = self._running.get(sequence_id) or self._waiting.get(sequence_id)
        if sequence is None or sequence.request.band is band:
            return
        if sequence_id in self._waiting:
            self._fair.leave(sequence.account)
            sequence.account = self._fair.enter(band, sequence.request.tenant_id)
        else:
            sequence.account = self._fair.account(band, sequence.request.tenant_id)
        sequence.request = replace(sequence.request, band=band)

    def finish(self, sequence_id: int, now: float) -> Ended:
        """End a running sequence (a stop string was completed); its blocks are back before this returns."""
        sequence = self._running[sequence_id]
        self._lengths.observe(len(sequence.output_ids))
        self._end(sequence)
        return Ended(FinishReason.STOP, sequence.usage(now))

    @property
    def idle(self) -> bool:
        return not self._running and not self._waiting

    @property
    def state(self) -> SchedulerState:
        wanted = prefill_tokens = 0
        for sequence in self._running.values():
            prefill_tokens += len(sequence.tokens) - sequence.computed - 1
            if not sequence.firm and sequence.expected_blocks > len(sequence.blocks):
                wanted += sequence.expected_blocks - len(sequence.blocks)
        for sequence in self._waiting.values():
            prefill_tokens += sequence.uncached
            wanted += sequence.expected_blocks
        return SchedulerState(
            running=len(self._running),
            waiting=len(self._waiting),
            blocks=self._memory.counts,
            unpromised=self._memory.available - wanted,
            host_used=self._memory.host_used,
            prefill_tokens=prefill_tokens,
            preemptions=self._preemptions,
            recomputed_tokens=self._recomputed,
            expected_output=self._lengths.expect(0, self.context_tokens),
            step_ms=self._model.coefficients_ms,
        )

    @property
    def fair(self) -> FairShare:
        return self._fair

    def cache_changes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Fingerprints of the blocks that came into the cache and that left it since the last call."""
        cache = self._memory.cache
        changes = tuple(cache.added), tuple(cache.removed)
        cache.added.clear()
        cache.removed.clear()
        return changes

    # --- steps --------------------------------------------------------------------------------

    def plan(self, now: float) -> StepPlan | None:
        """The next step, or ``None`` when there is nothing to compute. Takes the blocks that the step writes to."""
        assert self._in_flight is None, "the previous step was not applied"
        draft = self._draft = StepDraft(self._memory)
        self._line.observe(self._candidates(), now)
        if self._waiting:
            self._make_way(now)
        for sequence in self._secure([one for one in self._running.values() if len(one.tokens) - one.computed == 1]):
            draft.decode(sequence)
        if self._waiting or len(draft.planned) < len(self._running):
            self._catch_up(now)
        while not draft.planned and (blocked := victim(self._running.values())) is not None:
            self._step_aside(blocked)
            self._catch_up(now)
        self._in_flight, self._planned_at = draft.plan(), now
        return self._in_flight

    def apply(self, result: StepResult, now: float) -> list[SequenceOutput]:
        """Take the result of the last plan. Sequences that ended are gone, their blocks given back."""
        plan, self._in_flight = self._in_flight, None
        assert plan is not None, "there is no step to apply"
        self._memory.settle()
        load = self._draft.load
        self._model.observe(load, result.infer_s + result.sample_s)
        share_s = result.infer_s / (load.rows + load.prefill)
        sampled = iter(result.sampled)
        outputs: list[SequenceOutput] = []
        for sequence, step in self._draft.planned:
            tokens = len(step.token_ids)
            sequence.accelerator_s += share_s * tokens
            self._memory.computed(sequence, tokens)
            sequence.furthest = max(sequence.furthest, sequence.computed)
            if step.sample is None:
                outputs.append(SequenceOutput(sequence.id, None, sequence.computed, len(sequence.tokens)))
                continue
            token = next(sampled, None)
            if token is None or token.sequence_id != sequence.id:
                raise EngineFailed("The executor sampled other sequences than planned.")
            outputs.append(self._sampled(sequence, token.token_id, now))
        return outputs

    def check(self) -> None:
        """Raise ``AssertionError`` unless every block is accounted for and every promise can be kept. Between two steps."""
        self._memory.check(list(self._running.values()))
        assert len(self._running) <= self._settings.max_rows
        assert not self._running.keys() & self._waiting.keys()
        for sequence in self._waiting.values():
            assert not sequence.blocks, "one that waits holds blocks"
            assert sequence.preemptions <= MOST_PREEMPTIONS
        for band in Band:
            for account in self._fair.accounts(band):
                waiting = sum(sequence.account is account for sequence in self._waiting.values())
                assert waiting == account.waiting, "an account has lost count of its requests"

    # --- decode rows --------------------------------------------------------------------------

    def _secure(self, rows: list[Sequence]) -> list[Sequence]:
        """The rows for which there is a block to write to; others step aside so that as many as possible have one."""
        size = self._room.block_tokens
        short = sum(not row.firm and row.computed == len(row.blocks) * size for row in rows)
        while short > self._memory.available:
            aside = victim(self._running.values())
            assert aside is not None, "whoever is short of a block can step aside"
            self._step_aside(aside)
            rows = [row for row in rows if row is not aside]
            short = sum(not row.firm and row.computed == len(row.blocks) * size for row in rows)
        return rows

    def _step_aside(self, sequence: Sequence) -> None:
        del self._running[sequence.id]
        self._memory.leave(sequence, pin=True)
        sequence.preemptions += 1
        sequence.uncached = 1
        self._preemptions += 1
        self._fair.rejoin(sequence.account)
        self._waiting[sequence.id] = sequence

    def _make_way(self, now: float) -> None:
        """Where somebody waits who is of a higher band than somebody who runs, and has no place, lower ones step aside."""
        top = max(sequence.request.band for sequence in self._waiting.values())
        if not self._memory.can_swap or all(sequence.request.band >= top for sequence in self._running.values()):
            return
        first = next(self._line.turns([sequence for sequence in self._waiting.values() if sequence.request.band == top], now))
        path = self._memory.find(first)
        while not self._has_place(first, path):
            aside = victim(self._running.values(), below=top)
            if aside is None:
                return
            self._step_aside(aside)

    # --- everything else ------------------------------------------------------------------------

    def _catch_up(self, now: float) -> None:
        """Chunks of those with more than one token to compute. One that would begin the very block that another begins in
        this step sits it out: in the next step it finds that block in the cache.
        """
        candidates = self._candidates()
        passed_by = sum(sequence.submitted_at < self._planned_at for sequence in self._waiting.values())
        to_do = [_to_do(sequence) for sequence in candidates]
        budget = StepBudget(self._model, self._settings.targets, self._draft.load, to_do, passed_by)
        begun: set[Beginning] = set()
        passed: list[Sequence] = []
        closed: Band | None = None
        for sequence in self._line.turns(candidates, now):
            if budget.spent:
                break
            if sequence.id in self._waiting:
                if closed is not None and sequence.request.band <= closed:
                    continue
                path = self._memory.find(sequence)
                if self._begins_like(sequence, path, begun):
                    continue
                if not self._is_left_for(sequence, path, budget):
                    # What is too much for the rest of this step goes first in the next: nobody smaller takes its turn.
                    closed = sequence.request.band if closed is None else max(closed, sequence.request.band)
                    continue
                if not self._has_place(sequence, path):
                    passed.append(sequence)
                    if sequence.pinned is not None or sequence.passed_over >= _MOST_PASSES:
                        closed = sequence.request.band if closed is None else max(closed, sequence.request.band)
                    continue
                self._admit(sequence, path, now)
                for other in passed:
                    other.passed_over += 1
            self._compute_chunk(sequence, budget, begun, now)

    def _candidates(self) -> list[Sequence]:
        """Those with a prompt to compute, and those that wait."""
        return [*(one for one in self._running.values() if len(one.tokens) - one.computed > 1), *self._waiting.values()]

    def _begins_like(self, sequence: Sequence, path: list[CachedBlock], begun: set[Beginning]) -> bool:
        """Whether another begins the same block in this step."""
        return self._beginning(sequence, path[-1] if path else None, len(path) * self._room.block_tokens) in begun

    def _is_left_for(self, sequence: Sequence, path: list[CachedBlock], budget: StepBudget) -> bool:
        """Whether it gets anything of this step."""
        sequence.uncached = self._memory.uncached(sequence, path)
        return budget.chunk(len(sequence.tokens) - sequence.uncached, sequence.uncached, self._chunk_multiple) > 0

    def _compute_chunk(self, sequence: Sequence, budget: StepBudget, begun: set[Beginning], now: float) -> None:
        """Give a running sequence what it gets of this step."""
        self._memory.adopt(sequence)
        beginning = self._beginning(sequence, sequence.indexed, sequence.computed)
        if beginning in begun:
            return
        tokens = budget.chunk(sequence.computed, sequence.remaining, self._chunk_multiple)
        tokens = min(tokens, self._memory.room_for(sequence))
        if tokens <= 0:
            return
        if beginning is not None:
            begun.add(beginning)
        budget.spend(sequence.computed, tokens)
        self._draft.chunk(sequence, tokens)
        self._line.served(sequence.request.band, now)

    def _beginning(self, sequence: Sequence, after: CachedBlock | None, past: int) -> Beginning | None:
        """What names the next block it computes, wherever that block is whole."""
        size = self._room.block_tokens
        if past % size or len(sequence.tokens) - past < size:
            return None
        index = past // size
        return sequence.salt(index), 0 if after is None else id(after), sequence.block_key(index)

    def _has_place(self, sequence: Sequence, path: list[CachedBlock]) -> bool:
        if len(self._running) >= self._settings.max_rows:
            return False
        return has_place(self._memory, self._running.values(), sequence, path)

    def _admit(self, sequence: Sequence, path: list[CachedBlock], now: float) -> None:
        del self._waiting[sequence.id]
        self._fair.leave(sequence.account)
        self._running[sequence.id] = sequence
        self._memory.attach(sequence, path)
        if sequence.started_at is None:
            sequence.started_at = now
            sequence.cached = sequence.computed
            cost = INPUT_COST * (len(sequence.tokens) - sequence.cached) + CACHED_COST * sequence.cached
            sequence.account.charge(cost, sequence.request.weight)
        else:
            self._recomputed += max(sequence.computed_before - sequence.computed, 0)

    # --- inside -------------------------------------------------------------------------------

    def _sampled(self, sequence: Sequence, token_id: int, now: float) -> SequenceOutput:
        sequence.append(token_id, now)
        sequence.account.charge(OUTPUT_COST, sequence.request.weight)
        if len(sequence.tokens) >= sequence.expected_tokens:
            self._expect(sequence)
        reason = sequence.reason_after(self._end_token_ids)
        if reason is None:
            return SequenceOutput(sequence.id, token_id, sequence.computed, len(sequence.tokens))
        self._lengths.observe(len(sequence.output_ids))
        self._end(sequence)
        return SequenceOutput(sequence.id, token_id, sequence.computed, len(sequence.tokens), Ended(reason, sequence.usage(now)))

    def _expect(self, sequence: Sequence) -> None:
        prompt_tokens = len(sequence.request.prompt_ids)
        most = sequence.limit_tokens - prompt_tokens
        sequence.expect(prompt_tokens + self._lengths.expect(len(sequence.output_ids), most))

    def _end(self, sequence: Sequence) -> None:
        assert self._in_flight is None, "a sequence may only end between two steps"
        del self._running[sequence.id]
        self._memory.leave(sequence)


def _to_do(sequence: Sequence) -> tuple[int, int]:
    """Tokens cached and to compute."""
    if sequence.blocks:
        return sequence.computed, sequence.remaining
    return len(sequence.tokens) - sequence.uncached, sequence.uncached
