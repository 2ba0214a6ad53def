"""Which blocks already hold the beginning of a prompt. Pure.

A radix tree whose edges are whole blocks: a child is found by the exact token ids of its block, so a hit *is* the
verification, and no hash can be made to collide. Each salt has a tree of its own; a tenant cannot see, by timing or by
counting, what another tenant has asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from antiphon.inference.kv_blocks import BlockPool

BlockTokens = tuple[int, ...]
"""The ids of one full block."""

_PARTIAL_SCAN = 32


@dataclass(slots=True, eq=False)
class CachedBlock:
    """A node: one full block, reached by exactly one sequence of ids from its salt's root."""

    salt: str
    parent: CachedBlock | None
    tokens: BlockTokens
    block: int
    children: dict[BlockTokens, CachedBlock] = field(default_factory=dict["BlockTokens", "CachedBlock"])


class PrefixCache:
    """Indexes full blocks of a ``BlockPool``.

    Whoever holds a node's block holds the blocks of all its ancestors, and releases the deepest first. Hence the block
    that has been unreferenced for longest is always a leaf, and eviction in that order (LRU) never cuts a path.
    """

    __slots__ = ("_by_block", "_pool", "_roots")

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._roots: dict[str, dict[BlockTokens, CachedBlock]] = {}
        self._by_block: dict[int, CachedBlock] = {}

    def find(self, salt: str, parent: CachedBlock | None, tokens: BlockTokens) -> CachedBlock | None:
        """The block that holds ``tokens`` right after ``parent`` (``None``: at the beginning)."""
        children = self._roots.get(salt) if parent is None else parent.children
        return children.get(tokens) if children else None

    def match(self, salt: str, blocks: Sequence[BlockTokens]) -> list[CachedBlock]:
        """The longest cached path along ``blocks``. Takes no reference."""
        path: list[CachedBlock] = []
        node: CachedBlock | None = None
        for tokens in blocks:
            node = self.find(salt, node, tokens)
            if node is None:
                break
            path.append(node)
        return path

    def find_partial(self, salt: str, parent: CachedBlock | None, rest: Sequence[int]) -> tuple[CachedBlock, int] | None:
        """The block after ``parent`` that shares the most leading tokens with ``rest``, and how many; to be copied, not shared.

        Looks at a bounded number of children, so a scan of many branches costs no step.
        """
        children = self._roots.get(salt) if parent is None else parent.children
        best: tuple[CachedBlock, int] | None = None
        for node, _ in zip(children.values() if children else (), range(_PARTIAL_SCAN), strict=False):
            common = _common_length(node.tokens, rest)
            if common > (best[1] if best else 0):
                best = node, common
        return best

    def insert(self, salt: str, parent: CachedBlock | None, tokens: BlockTokens, block: int) -> CachedBlock:
        """Index ``block``, which its caller holds, and return its node.

        When the same ids are already indexed in another block, that node is returned and ``block`` stays unindexed: the
        caller should share the node's block and release its own.
        """
        children = self._roots.setdefault(salt, {}) if parent is None else parent.children
        node = children.get(tokens)
        if node is None:
            node = children[tokens] = CachedBlock(salt=salt, parent=parent, tokens=tokens, block=block)
            self._by_block[block] = node
            self._pool.index(block)
        return node

    def evict(self) -> bool:
        """Free the block that has been unreferenced for longest; ``False`` when every indexed block is held."""
        block = self._pool.oldest_cached()
        if block is None:
            return False
        node = self._by_block.pop(block)
        assert not node.children, "eviction would cut a path"
        siblings = self._roots[node.salt] if node.parent is None else node.parent.children
        del siblings[node.tokens]
        if node.parent is None and not siblings:
            del self._roots[node.salt]
        self._pool.forget(block)
        return True

    def check(self) -> None:
        """Raise ``AssertionError`` unless tree, index and pool agree."""
        seen: dict[int, CachedBlock] = {}
        stack = [node for children in self._roots.values() for node in children.values()]
        while stack:
            node = stack.pop()
            assert node.block not in seen, f"block {node.block} is in the tree twice"
            seen[node.block] = node
            if node.parent is not None:
                held = self._pool.references(node.block)
                assert self._pool.references(node.parent.block) >= held, "a held block has an ancestor that is not held"
            stack.extend(node.children.values())
        assert seen == self._by_block
        evicted: set[int] = set()
        for block in self._pool.cached_in_order():
            assert all(child.block in evicted for child in seen[block].children.values()), "LRU order would cut a path"
            evicted.add(block)


def _common_length(left: Sequence[int], right: Sequence[int]) -> int:
    length = 0
    for mine, theirs in zip(left, right, strict=False):
        if mine != theirs:
            break
        length += 1
    return length
