"""Which blocks already hold the beginning of a prompt, on the accelerator or in host memory. Pure.

A radix tree whose edges are whole blocks: a child is found by the exact token ids of its block, so a hit *is* the
verification, and no hash can be made to collide. Every tenant's blocks hang under its own salt; a tenant cannot see, by
timing or by counting, what another tenant has asked. Only blocks of a public prefix hang under a salt that all share.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from antiphon.engines.base import BLOCK_TOKENS, BlockSwap
from antiphon.inference.host_tier import HostTier
from antiphon.inference.kv_blocks import BlockPool

BlockTokens = tuple[int, ...]
"""The ids of one block: a whole one, or those at the end of a text that did not fill its last block."""

PUBLIC_SALT = ""
"""No tenant's id is empty."""

_PARTIAL_SCAN = 32
_FINGERPRINT_BYTES = 8


@dataclass(slots=True, eq=False)
class CachedBlock:
    """A node: one block, reached by exactly one sequence of ids. It is in ``block``, or in host ``slot``, or (-1) was dropped.

    ``fingerprint`` names the whole path; it is for placement and statistics, never for a match.
    """

    salt: str
    parent: CachedBlock | None
    tokens: BlockTokens
    fingerprint: int
    block: int = -1
    slot: int = -1
    pins: int = 0
    """Pre-empted sequences that will come back to it: it may leave the accelerator, but not the host."""
    found_again: bool = False
    children: dict[str, dict[BlockTokens, CachedBlock]] = field(default_factory=dict[str, "dict[BlockTokens, CachedBlock]"])

    def path(self) -> Iterator[CachedBlock]:
        """This node and its ancestors, the deepest first."""
        node: CachedBlock | None = self
        while node is not None:
            yield node
            node = node.parent


class PrefixCache:
    """Indexes the blocks of a ``BlockPool`` and of the ``HostTier`` below it.

    Whoever holds a node's block holds the blocks of all its ancestors, and releases the deepest first, so that what is
    given up first is deepest. A block that the pool gives up moves to the host, whose oldest makes room for it.
    ``swap_out`` and ``swap_in`` are the moves that the next step has to make; ``settle`` says that it has.
    """

    def __init__(self, pool: BlockPool, host: HostTier) -> None:
        self._pool = pool
        self._host = host
        self._roots: dict[str, dict[BlockTokens, CachedBlock]] = {}
        self._by_block: dict[int, CachedBlock] = {}
        self._by_slot: dict[int, CachedBlock] = {}
        self._outs: dict[int, int] = {}
        self._ins: list[BlockSwap] = []
        self._lent: list[tuple[CachedBlock, int]] = []
        self.added: list[int] = []
        self.removed: list[int] = []
        """Fingerprints of blocks that came and went since their reader last cleared the lists."""

    # --- finding ------------------------------------------------------------------------------

    def find(self, salt: str, parent: CachedBlock | None, tokens: BlockTokens) -> CachedBlock | None:
        """The block that holds ``tokens`` right after ``parent`` (``None``: at the beginning)."""
        children = self._children(salt, parent)
        return children.get(tokens) if children else None

    def match(self, salt: str, blocks: Sequence[BlockTokens], public_blocks: int = 0) -> list[CachedBlock]:
        """The longest cached path along ``blocks``, the first ``public_blocks`` of them under the public salt. Takes no reference."""
        path: list[CachedBlock] = []
        node: CachedBlock | None = None
        for index, tokens in enumerate(blocks):
            node = self.find(PUBLIC_SALT if index < public_blocks else salt, node, tokens)
            if node is None:
                break
            path.append(node)
        return path

    def find_partial(
        self, salt: str, parent: CachedBlock | None, rest: Sequence[int], *, whole: bool = False
    ) -> tuple[CachedBlock, int] | None:
        """The block after ``parent`` that shares the most leading tokens with ``rest``, and how many; to be copied, not shared.

        With ``whole`` only a block all of whose tokens are shared. Looks at the newest of a bounded number of children, so
        a scan of many branches costs no step.
        """
        children = self._children(salt, parent)
        best: tuple[CachedBlock, int] | None = None
        for node, _ in zip(reversed(children.values()) if children else (), range(_PARTIAL_SCAN), strict=False):
            common = _common_length(node.tokens, rest)
            if common > (best[1] if best else 0) and (not whole or common == len(node.tokens)):
                best = node, common
        return best

    # --- adding -------------------------------------------------------------------------------

    def insert(self, salt: str, parent: CachedBlock | None, tokens: BlockTokens, block: int) -> CachedBlock:
        """Index ``block``, which its caller holds, and return its node.

        When the same ids are already indexed in another block, that node is returned and ``block`` stays unindexed: the
        caller should share the node's block and release its own.
        """
        children = self._roots.setdefault(salt, {}) if parent is None else parent.children.setdefault(salt, {})
        node = children.get(tokens)
        if node is None:
            name = fingerprint(salt, 0 if parent is None else parent.fingerprint, tokens)
            node = children[tokens] = CachedBlock(salt, parent, tokens, name)
            self.added.append(node.fingerprint)
        elif node.block < 0:
            self._leave_host(node, cooling=True)
        else:
            return node
        node.block = block
        self._by_block[block] = node
        self._pool.index(block)
        return node

    # --- moving -------------------------------------------------------------------------------

    def take(self) -> int:
        """A block with one reference, out of the free ones or the one to give up first. Raises ``OutOfBlocks``."""
        if self._pool.free == 0:
            self._evict()
        return self._pool.take()

    def hold(self, path: Sequence[CachedBlock]) -> None:
        """One reference to each block of a path that ``match`` returned; those in host memory are brought back into blocks.

        They were found again, so they are protected. There must be enough blocks to take.
        """
        for node in path:
            self._pin_one(node)
            if node.block >= 0:
                self._pool.share(node.block)
        for node in path:
            if node.block < 0:
                block = self.take()
                self._ins.append(BlockSwap(device_block=block, host_slot=node.slot))
                self._leave_host(node, cooling=True)
                node.block = block
                self._by_block[block] = node
                self._pool.index(block)
            self._pool.protect(node.block)
        for node in path:
            self._unpin_one(node)

    def copy_from_host(self, node: CachedBlock, block: int) -> None:
        """Fill ``block`` with what ``node`` holds in host memory, and leave it there."""
        self._ins.append(BlockSwap(device_block=block, host_slot=node.slot))

    def lend(self, node: CachedBlock) -> None:
        """Keep what ``node`` holds where it is, on the accelerator or the host, until the next step was run."""
        self._pin_one(node)
        if node.block >= 0:
            self._pool.share(node.block)
        self._lent.append((node, node.block))

    def pin(self, node: CachedBlock) -> None:
        """Somebody will come back to this path. Only for want of host slots is it dropped nevertheless."""
        for each in node.path():
            self._pin_one(each)

    def unpin(self, node: CachedBlock) -> None:
        for each in node.path():
            self._unpin_one(each)

    def moves(self) -> tuple[tuple[BlockSwap, ...], tuple[BlockSwap, ...]]:
        """What the next step has to swap out, and then in."""
        return tuple(BlockSwap(device_block=block, host_slot=slot) for slot, block in self._outs.items()), tuple(self._ins)

    def settle(self) -> None:
        """The step with these moves was run."""
        self._outs.clear()
        self._ins.clear()
        self._host.settle()
        for node, block in self._lent:
            if block >= 0:
                self._pool.release(block)
            self._unpin_one(node)
        self._lent.clear()

    # --- inside -------------------------------------------------------------------------------

    def _children(self, salt: str, parent: CachedBlock | None) -> dict[BlockTokens, CachedBlock] | None:
        return self._roots.get(salt) if parent is None else parent.children.get(salt)

    def _pin_one(self, node: CachedBlock) -> None:
        node.pins += 1
        if node.pins == 1 and node.slot >= 0:
            self._host.pin(node.slot)

    def _unpin_one(self, node: CachedBlock) -> None:
        node.pins -= 1
        if node.pins == 0 and node.slot >= 0:
            self._host.unpin(node.slot, protected=node.found_again)

    def _evict(self) -> None:
        """Free the block to give up first; its content moves to the host when it is worth more than what is there."""
        block = self._pool.oldest_cached()
        if block is None:
            return
        node = self._by_block[block]
        node.found_again = self._pool.protected(block)
        if not self._make_slot():
            self._drop(node)
            return
        slot = self._host.fill()
        self._outs[slot] = block
        self._by_slot[slot] = node
        del self._by_block[block]
        node.block, node.slot = -1, slot
        if node.pins == 0:
            self._host.unpin(slot, protected=node.found_again)
        self._pool.forget(block)

    def _make_slot(self) -> bool:
        """Whether a slot is free now; what it held is gone."""
        if self._host.free:
            return True
        victim = self._host.victim
        if victim is None:
            return False
        self._drop(self._by_slot[victim])
        return True

    def _drop(self, node: CachedBlock) -> None:
        """Forget a node and all that is only reachable through it; none of them is held."""
        siblings = self._roots[node.salt] if node.parent is None else node.parent.children[node.salt]
        del siblings[node.tokens]
        if not siblings:
            if node.parent is None:
                del self._roots[node.salt]
            else:
                del node.parent.children[node.salt]
        stack = [node]
        while stack:
            gone = stack.pop()
            self.removed.append(gone.fingerprint)
            if gone.block >= 0:
                del self._by_block[gone.block]
                self._pool.forget(gone.block)
                gone.block = -1
            if gone.slot >= 0:
                self._leave_host(gone, cooling=False)
            stack.extend(child for children in gone.children.values() for child in children.values())
            gone.children.clear()

    def _leave_host(self, node: CachedBlock, *, cooling: bool) -> None:
        del self._by_slot[node.slot]
        self._host.empty(node.slot, cooling=cooling)
        if not cooling:
            self._outs.pop(node.slot, None)
        node.slot = -1

    def check(self) -> None:
        """Raise ``AssertionError`` unless tree, index, pool and host agree."""
        self._host.check()
        blocks: dict[int, CachedBlock] = {}
        slots: dict[int, CachedBlock] = {}
        stack = [node for children in self._roots.values() for node in children.values()]
        while stack:
            node = stack.pop()
            assert (node.block >= 0) != (node.slot >= 0), "a node is in two places, or in none"
            place, where = (node.block, blocks) if node.block >= 0 else (node.slot, slots)
            assert place not in where, f"place {place} is in the tree twice"
            where[place] = node
            held = self._references(node)
            parent = node.parent
            assert parent is None or held == 0 or self._references(parent) >= 1, "a held block has an ancestor that is not held"
            for salt, children in node.children.items():
                assert children, f"{salt!r} is an empty branch"
                stack.extend(children.values())
        assert blocks == self._by_block
        assert slots == self._by_slot
        assert set(self._pool.cached_in_order()) <= blocks.keys()
        assert self._host.filled == len(slots)

    def _references(self, node: CachedBlock) -> int:
        return self._pool.references(node.block) if node.block >= 0 else 0


def fingerprint(salt: str, parent: int, tokens: Sequence[int]) -> int:
    """Names the path that ends with the block ``tokens`` behind the path called ``parent`` (0: at the beginning)."""
    digest = hashlib.blake2b(array("q", (parent, *tokens)), digest_size=_FINGERPRINT_BYTES)
    digest.update(salt.encode())
    return int.from_bytes(digest.digest(), "little") >> 1


def prompt_fingerprints(prompt_ids: Sequence[int], tenant: str, public_prefix_tokens: int) -> tuple[int, ...]:
    """Names of the paths to each whole block of a prompt, as the cache of a replica would name them.

    The last token is always computed, so a block that ends with it is left out.
    """
    names: list[int] = []
    public, name = public_prefix_tokens // BLOCK_TOKENS, 0
    for index in range((len(prompt_ids) - 1) // BLOCK_TOKENS):
        begin = index * BLOCK_TOKENS
        name = fingerprint(PUBLIC_SALT if index < public else tenant, name, prompt_ids[begin : begin + BLOCK_TOKENS])
        names.append(name)
    return tuple(names)


def _common_length(left: Sequence[int], right: Sequence[int]) -> int:
    length = 0
    for mine, theirs in zip(left, right, strict=False):
        if mine != theirs:
            break
        length += 1
    return length
