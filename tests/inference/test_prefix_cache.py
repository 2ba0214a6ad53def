from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from antiphon.inference.host_tier import HostTier
from antiphon.inference.kv_blocks import BlockPool, OutOfBlocks
from antiphon.inference.prefix_cache import CachedBlock, PrefixCache


def test_a_hit_is_the_exact_tokens_under_the_same_salt() -> None:
    pool = BlockPool(4)
    cache = PrefixCache(pool, HostTier(0))
    first = cache.insert("a", None, (1, 2), pool.take())
    second = cache.insert("a", first, (3, 4), pool.take())
    assert cache.match("a", [(1, 2), (3, 4), (5, 6)]) == [first, second]
    assert cache.match("a", [(1, 2), (3, 5)]) == [first]
    assert cache.match("a", [(3, 4)]) == []
    assert cache.match("b", [(1, 2), (3, 4)]) == []


def test_a_partial_hit_is_the_longest_common_beginning() -> None:
    pool = BlockPool(4)
    cache = PrefixCache(pool, HostTier(0))
    cache.insert("a", None, (1, 2, 3), pool.take())
    better = cache.insert("a", None, (1, 2, 4), pool.take())
    assert cache.find_partial("a", None, (1, 2, 4, 9)) == (better, 3)
    assert cache.find_partial("a", None, (7,)) is None
    assert cache.find_partial("b", None, (1, 2, 4)) is None


def test_the_same_tokens_twice_are_indexed_once() -> None:
    pool = BlockPool(2)
    cache = PrefixCache(pool, HostTier(0))
    mine, other = pool.take(), pool.take()
    node = cache.insert("a", None, (1,), mine)
    assert cache.insert("a", None, (1,), other) is node
    pool.release(other)
    assert pool.counts.free == 1


def test_eviction_takes_the_longest_unused_and_never_a_held_one() -> None:
    pool = BlockPool(3)
    cache = PrefixCache(pool, HostTier(0))
    old, new, held = (cache.insert("a", None, (tokens,), pool.take()) for tokens in range(3))
    pool.release(old.block)
    pool.release(new.block)
    cache.take()
    assert cache.match("a", [(0,)]) == []
    assert cache.match("a", [(1,)]) == [new]
    cache.take()
    with pytest.raises(OutOfBlocks):
        cache.take()
    assert cache.match("a", [(2,)]) == [held]


@settings(max_examples=60, stateful_step_count=40, deadline=None)
class Holders(RuleBasedStateMachine):
    """Holders walk the tree as sequences do: share what is cached, add what is not, leave deepest first."""

    @initialize(blocks=st.integers(4, 12))
    def start(self, blocks: int) -> None:
        self.pool = BlockPool(blocks)
        self.cache = PrefixCache(self.pool, HostTier(0))
        self.holders: list[tuple[str, list[CachedBlock]]] = []

    @rule(salt=st.sampled_from("ab"))
    def arrive(self, salt: str) -> None:
        self.holders.append((salt, []))

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), token=st.integers(0, 2))
    def extend(self, data: st.DataObject, token: int) -> None:
        salt, path = data.draw(st.sampled_from(self.holders))
        parent = path[-1] if path else None
        node = self.cache.find(salt, parent, (token,))
        if node is not None:
            self.pool.share(node.block)
        elif self.pool.takeable:
            node = self.cache.insert(salt, parent, (token,), self.cache.take())
        if node is not None:
            path.append(node)

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def depart(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.holders) - 1))
        _, path = self.holders.pop(index)
        for node in reversed(path):
            self.pool.release(node.block)

    @invariant()
    def everything_is_accounted_for(self) -> None:
        self.pool.check()
        self.cache.check()
        held = {node.block for _, path in self.holders for node in path}
        assert self.pool.counts.held == len(held)

    @invariant()
    def every_held_path_is_found(self) -> None:
        for salt, path in self.holders:
            assert self.cache.match(salt, [node.tokens for node in path]) == path


TestHolders = Holders.TestCase
