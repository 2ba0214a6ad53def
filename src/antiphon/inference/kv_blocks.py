"""The KV blocks of one replica: who holds them, which are free, which are kept as cache. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.inference.segmented_lru import SegmentedLru


class OutOfBlocks(Exception):
    """A block was taken where none is free: the caller broke its own admission rule."""


@dataclass(frozen=True, slots=True)
class BlockCounts:
    """Exact at any moment: ``free + held + cached`` is the size of the pool."""

    free: int
    held: int
    cached: int


class BlockPool:
    """Reference-counted blocks ``0 … blocks - 1``.

    A block is *held* while it has references, *cached* when it has none but is indexed by a prefix cache, else *free*.
    Every operation is O(1). The pool owns the order in which cached blocks are given up: a segmented LRU in which
    blocks that were found again are protected.
    """

    __slots__ = ("_cached", "_free", "_indexed", "_protected", "_references")

    def __init__(self, blocks: int) -> None:
        if blocks < 1:
            raise ValueError("a pool has at least one block")
        self._references = [0] * blocks
        self._indexed = bytearray(blocks)
        self._protected = bytearray(blocks)
        self._free = list(range(blocks - 1, -1, -1))
        self._cached = SegmentedLru(blocks)

    @property
    def blocks(self) -> int:
        return len(self._references)

    @property
    def counts(self) -> BlockCounts:
        free, cached = len(self._free), len(self._cached)
        return BlockCounts(free=free, held=len(self._references) - free - cached, cached=cached)

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def takeable(self) -> int:
        """Blocks without a reference: free ones and those that eviction can free."""
        return len(self._free) + len(self._cached)

    def take(self) -> int:
        """A free block with one reference and undefined content. Raises ``OutOfBlocks``."""
        if not self._free:
            raise OutOfBlocks
        block = self._free.pop()
        self._references[block] = 1
        return block

    def share(self, block: int) -> None:
        """One more reference to a held or cached block."""
        if self._references[block] == 0:
            self._cached.remove(block)
        self._references[block] += 1

    def release(self, block: int) -> None:
        """One reference less; the last one makes the block cached when it is indexed, else free."""
        references = self._references[block]
        if references == 0:
            raise ValueError(f"block {block} has no reference to give back")
        self._references[block] = references - 1
        if references == 1:
            if not self._indexed[block]:
                self._free.append(block)
                return
            demoted = self._cached.add(block, protected=bool(self._protected[block]))
            if demoted is not None:
                self._protected[demoted] = 0

    def references(self, block: int) -> int:
        return self._references[block]

    def writable(self, block: int) -> bool:
        """Whether its one holder may write to it; a shared or indexed block has to be copied first."""
        return self._references[block] == 1 and not self._indexed[block]

    def index(self, block: int, *, protected: bool = False) -> None:
        """Keep this held block's content after its last release."""
        if self._references[block] == 0:
            raise ValueError(f"block {block} is not held")
        self._indexed[block] = 1
        self._protected[block] = protected

    def protect(self, block: int) -> None:
        """This held, indexed block was found again: give it up later than those that never were."""
        self._protected[block] = 1

    def protected(self, block: int) -> bool:
        return bool(self._protected[block])

    def forget(self, block: int) -> None:
        """The opposite of ``index``; an unreferenced block becomes free at once."""
        self._indexed[block] = 0
        self._protected[block] = 0
        if self._references[block] == 0:
            self._cached.remove(block)
            self._free.append(block)

    def oldest_cached(self) -> int | None:
        """The cached block to give up next."""
        return self._cached.oldest

    def cached_in_order(self) -> list[int]:
        """All cached blocks, the next to give up first; O(cached), for checks."""
        return self._cached.in_order()

    def check(self) -> None:
        """Raise ``AssertionError`` unless the three states partition the pool."""
        free = set(self._free)
        assert len(free) == len(self._free), "a block is free twice"
        cached = set(self._cached.in_order())
        assert len(cached) == len(self._cached), "a block is cached twice"
        for block, references in enumerate(self._references):
            expected = "held" if references else ("cached" if self._indexed[block] else "free")
            actual = "free" if block in free else ("cached" if block in cached else "held")
            assert references >= 0, f"block {block} has {references} references"
            assert actual == expected, f"block {block} is {actual}, its references say {expected}"
        counts = self.counts
        assert counts.free + counts.held + counts.cached == self.blocks
