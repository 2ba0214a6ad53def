"""The KV memory of one replica as its sequences use it: attach to what is cached, grow, step aside, leave. Pure.

A pre-empted sequence gives all its blocks back to the prefix cache and pins the path to them. Nothing is copied unless
the blocks are needed; then they move to the host, and come back when the sequence does. So restoring a pre-empted
sequence and restoring a conversation that comes back are one and the same thing.
"""

from __future__ import annotations

from antiphon.engines.base import BlockCopy, BlockSwap, ExecutorShape
from antiphon.inference.host_tier import HostTier
from antiphon.inference.kv_blocks import BlockCounts, BlockPool
from antiphon.inference.prefix_cache import CachedBlock, PrefixCache
from antiphon.inference.sequence import Sequence

_FEWEST_COPIED = 4
"""Tokens for which a block is copied rather than computed anew, and for which the end of a text is kept."""


class KvMemory:
    """Blocks, prefix cache and host tier behind one set of rules.

    *Firm* sequences have every block they can ever need promised; the others may only take what is ``available``.
    """

    def __init__(self, shape: ExecutorShape) -> None:
        self.block_tokens = shape.block_tokens
        self._partial_copies = shape.partial_copies
        self._pool = BlockPool(shape.blocks)
        self._host = HostTier(shape.host_slots)
        self.cache = PrefixCache(self._pool, self._host)
        self._promised = 0
        self._copies: list[BlockCopy] = []

    @property
    def blocks(self) -> int:
        return self._pool.blocks

    @property
    def can_swap(self) -> bool:
        return self._host.slots > 0

    @property
    def counts(self) -> BlockCounts:
        return self._pool.counts

    @property
    def host_used(self) -> int:
        return self._host.used

    @property
    def available(self) -> int:
        """Blocks that can be taken and are promised to nobody."""
        return self._pool.takeable - self._promised

    # --- finding ------------------------------------------------------------------------------

    def find(self, sequence: Sequence) -> list[CachedBlock]:
        """The cached beginning of a sequence that is not running."""
        return self.cache.match(sequence.request.tenant_id, sequence.prompt_keys(), sequence.public_blocks)

    def uncached(self, sequence: Sequence, path: list[CachedBlock]) -> int:
        """Tokens it would still have to compute if it began now along ``path``."""
        begin = len(path) * self.block_tokens
        found = self._partial(sequence, path[-1] if path else None, begin)
        return len(sequence.tokens) - begin - (found[1] if found else 0)

    def needed_to_attach(self, path: list[CachedBlock]) -> int:
        """How many blocks stop being available when a sequence attaches to this path."""
        return sum(node.block < 0 or self._pool.references(node.block) == 0 for node in path)

    # --- a sequence's life ----------------------------------------------------------------------

    def attach(self, sequence: Sequence, path: list[CachedBlock]) -> None:
        """Begin, or begin again, with what is cached: whole blocks are shared, the next one is copied as far as it agrees."""
        if sequence.firm:
            self._promised += sequence.peak_blocks
        self.cache.hold(path)
        if sequence.firm:
            self._promised -= len(path)
        sequence.blocks = [node.block for node in path]
        sequence.indexed = path[-1] if path else None
        sequence.indexed_blocks = sequence.shared_blocks = len(path)
        sequence.computed = len(path) * self.block_tokens
        if self.available >= 2:
            self._copy_partial(sequence)
        if sequence.pinned is not None:
            self.cache.unpin(sequence.pinned)
            sequence.pinned = None

    def adopt(self, sequence: Sequence) -> None:
        """Use blocks that other sequences have computed since this one was attached."""
        size = self.block_tokens
        while sequence.computed % size == 0 and sequence.computed + size < len(sequence.tokens):
            index = sequence.indexed_blocks
            node = self.cache.find(sequence.salt(index), sequence.indexed, sequence.block_key(index))
            if node is None or node.block < 0 or (self._pool.references(node.block) == 0 and not sequence.firm and self.available < 1):
                return
            self._pool.share(node.block)
            if sequence.firm:
                self._promised -= 1
            sequence.blocks.append(node.block)
            sequence.indexed = node
            sequence.indexed_blocks += 1
            sequence.shared_blocks = sequence.indexed_blocks
            sequence.computed += size
            sequence.cached += size

    def short_of(self, sequence: Sequence, tokens: int) -> int:
        """Blocks it has to take before it can compute ``tokens`` more."""
        return -(-(sequence.computed + tokens) // self.block_tokens) - len(sequence.blocks)

    def room_for(self, sequence: Sequence) -> int:
        """Tokens it can compute with the blocks it has and those it may take."""
        if sequence.firm:
            return sequence.remaining
        return (len(sequence.blocks) + max(self.available, 0)) * self.block_tokens - sequence.computed

    def grow(self, sequence: Sequence, tokens: int) -> None:
        """Take the blocks for ``tokens`` more."""
        for _ in range(self.short_of(sequence, tokens)):
            self._take(sequence)

    def computed(self, sequence: Sequence, tokens: int) -> None:
        """``tokens`` more were computed: make the blocks that became full known to the cache.

        A block that is there already replaces the sequence's own.
        """
        sequence.computed += tokens
        full = sequence.computed // self.block_tokens
        if full == sequence.indexed_blocks:
            return
        while sequence.indexed_blocks < full:
            index = sequence.indexed_blocks
            own = sequence.blocks[index]
            node = self.cache.insert(sequence.salt(index), sequence.indexed, sequence.block_key(index), own)
            if node.block != own:
                self._pool.share(node.block)
                sequence.blocks[index] = node.block
                self._pool.release(own)
            sequence.indexed = node
            sequence.indexed_blocks += 1

    def leave(self, sequence: Sequence, *, pin: bool = False) -> None:
        """Give all blocks back, the deepest first, as the cache's order requires; with ``pin`` to come back to them."""
        if sequence.firm:
            self._promised -= sequence.peak_blocks - len(sequence.blocks)
        tail = self._keep_tail(sequence)
        if pin:
            sequence.pinned = tail or sequence.indexed
            if sequence.pinned is not None:
                self.cache.pin(sequence.pinned)
            sequence.computed_before = sequence.computed
        for block in reversed(sequence.blocks):
            self._pool.release(block)
        sequence.blocks = []
        sequence.indexed = None
        sequence.indexed_blocks = sequence.shared_blocks = sequence.computed = 0

    def forget(self, sequence: Sequence) -> None:
        """A pre-empted sequence does not come back."""
        if sequence.pinned is not None:
            self.cache.unpin(sequence.pinned)
            sequence.pinned = None

    # --- the step -------------------------------------------------------------------------------

    def copies(self) -> tuple[BlockCopy, ...]:
        return tuple(self._copies)

    def moves(self) -> tuple[tuple[BlockSwap, ...], tuple[BlockSwap, ...]]:
        return self.cache.moves()

    def settle(self) -> None:
        """The planned step was run."""
        self._copies.clear()
        self.cache.settle()

    # --- inside -------------------------------------------------------------------------------

    def _copy_partial(self, sequence: Sequence) -> None:
        found = self._partial(sequence, sequence.indexed, sequence.computed)
        if found is None:
            return
        source, tokens = found
        self.cache.lend(source)
        target = self._take(sequence)
        if source.block >= 0:
            self._copies.append(BlockCopy(source_block=source.block, target_block=target))
        else:
            self.cache.copy_from_host(source, target)
        sequence.computed += tokens

    def _partial(self, sequence: Sequence, after: CachedBlock | None, begin: int) -> tuple[CachedBlock, int] | None:
        """The block to copy after ``begin`` whole blocks' tokens, and how many of its tokens agree."""
        rest = sequence.tokens[begin : min(len(sequence.tokens) - 1, begin + self.block_tokens)]
        found = self.cache.find_partial(sequence.salt(begin // self.block_tokens), after, rest, whole=not self._partial_copies)
        return None if found is None or found[1] < _FEWEST_COPIED else found

    def _keep_tail(self, sequence: Sequence) -> CachedBlock | None:
        """Index the block that the text does not fill, so that who goes on from there can copy it."""
        begin = sequence.indexed_blocks * self.block_tokens
        if sequence.computed - begin < _FEWEST_COPIED:
            return None
        key = tuple(sequence.tokens[begin : sequence.computed])
        return self.cache.insert(sequence.salt(sequence.indexed_blocks), sequence.indexed, key, sequence.blocks[-1])

    def _take(self, sequence: Sequence) -> int:
        block = self.cache.take()
        if sequence.firm:
            self._promised -= 1
        sequence.blocks.append(block)
        return block

    def check(self, running: list[Sequence]) -> None:
        """Raise ``AssertionError`` unless every block is accounted for and every promise can be kept."""
        self._pool.check()
        self.cache.check()
        references = [0] * self._pool.blocks
        promised = 0
        for sequence in running:
            sequence.check()
            if sequence.firm:
                promised += sequence.peak_blocks - len(sequence.blocks)
            for block in sequence.blocks:
                references[block] += 1
        assert references == [self._pool.references(block) for block in range(self._pool.blocks)], "a block has a stray reference"
        assert promised == self._promised
        assert self._pool.takeable >= promised, "a promise cannot be kept"
