"""Whether a sequence has a place in the batch, and who gives one up. Pure."""

from __future__ import annotations

from collections.abc import Collection

from antiphon.core.tenancy import Band
from antiphon.inference.kv_memory import KvMemory
from antiphon.inference.predicted_peak import Growth, predicted_peak
from antiphon.inference.prefix_cache import CachedBlock
from antiphon.inference.sequence import MOST_PREEMPTIONS, Sequence

_RESUME_SHARE = 0.02
"""Of all blocks, how many must be left over when a pre-empted sequence comes back, so that it is not pre-empted at once."""
_NEARLY_DONE_TOKENS = 8
"""One that will probably end within so many tokens is not pre-empted while there are others."""


def has_place(memory: KvMemory, running: Collection[Sequence], newcomer: Sequence, path: list[CachedBlock]) -> bool:
    """Whether ``newcomer``, whose beginning is cached along ``path``, fits beside ``running``. Decides whether it is firm.

    Alone it always fits.
    """
    newcomer.firm = not memory.can_swap or newcomer.preemptions >= MOST_PREEMPTIONS
    taken = memory.needed_to_attach(path)
    if newcomer.firm:
        return memory.available >= newcomer.peak_blocks - len(path) + taken
    if not running:
        return memory.available > taken
    spare = int(_RESUME_SHARE * memory.blocks) if newcomer.pinned is not None else 0
    return memory.available > taken + spare and _peak(memory, running, newcomer, len(path), taken) <= memory.blocks


def victim(running: Collection[Sequence], below: Band | None = None) -> Sequence | None:
    """Who steps aside: of the lowest band, the tenant that was served most, the latest arrival; never one that is firm."""
    able = [sequence for sequence in running if not sequence.firm and (below is None or sequence.request.band < below)]
    far = [sequence for sequence in able if sequence.expected_tokens - len(sequence.tokens) > _NEARLY_DONE_TOKENS]
    return min(far or able, key=_first_to_go, default=None)


def _peak(memory: KvMemory, running: Collection[Sequence], newcomer: Sequence, cached_blocks: int, taken: int) -> int:
    growths = [Growth(newcomer.current_blocks - cached_blocks, newcomer.expected_tokens - len(newcomer.tokens))]
    own_now = 0
    for sequence in running:
        own_now += len(sequence.blocks) - sequence.shared_blocks
        tokens = max(sequence.expected_tokens - len(sequence.tokens), 1)
        growths.append(Growth(sequence.current_blocks - sequence.shared_blocks, tokens))
    shared = max(memory.counts.held - own_now, 0) + taken
    return predicted_peak(shared, growths, memory.block_tokens)


def _first_to_go(sequence: Sequence) -> tuple[float, ...]:
    return (sequence.request.band, -sequence.account.served, -sequence.submitted_at, -sequence.id)
