"""Blocks and host slots with their content: whatever moves, every node holds the ids of its path."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from antiphon.inference.host_tier import HostTier
from antiphon.inference.kv_blocks import BlockPool
from antiphon.inference.prefix_cache import CachedBlock, PrefixCache
from antiphon.inference.segmented_lru import SegmentedLru

Path = tuple[object, ...]


def test_the_oldest_on_probation_goes_first_and_protection_is_bounded() -> None:
    order = SegmentedLru(5)
    for key in range(4):
        assert order.add(key, protected=True) is None
    assert order.add(4, protected=False) is None
    assert order.oldest == 4
    assert order.add(5, protected=True) == 0
    assert order.in_order() == [4, 0, 1, 2, 3, 5]
    order.remove(4)
    order.remove(2)
    assert (order.oldest, len(order)) == (0, 4)


@settings(max_examples=60, stateful_step_count=40, deadline=None)
class Tiers(RuleBasedStateMachine):
    """Holders arrive at what is cached, extend it, leave it, or leave it pinned and come back."""

    @initialize(blocks=st.integers(3, 8), slots=st.integers(0, 6))
    def start(self, blocks: int, slots: int) -> None:
        self.pool = BlockPool(blocks)
        self.host = HostTier(slots)
        self.cache = PrefixCache(self.pool, self.host)
        self.device: list[Path] = [()] * blocks
        self.slots: list[Path] = [()] * slots
        self.writes: dict[int, Path] = {}
        self.holders: list[tuple[str, list[CachedBlock]]] = []
        self.pinned: list[tuple[str, list[tuple[int, ...]], CachedBlock]] = []

    @rule(salt=st.sampled_from("ab"), tokens=st.lists(st.integers(0, 2), max_size=4))
    def arrive(self, salt: str, tokens: list[int]) -> None:
        self.attach(salt, [(token,) for token in tokens])

    def attach(self, salt: str, keys: list[tuple[int, ...]]) -> bool:
        path = self.cache.match(salt, keys)
        needed = sum(node.block < 0 or self.pool.references(node.block) == 0 for node in path)
        if needed > self.pool.takeable:
            return False
        self.cache.hold(path)
        self.holders.append((salt, path))
        return True

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), token=st.integers(0, 2))
    def extend(self, data: st.DataObject, token: int) -> None:
        salt, path = data.draw(st.sampled_from(self.holders))
        if not self.pool.takeable:
            return
        self.step()
        parent = path[-1] if path else None
        own = self.cache.take()
        node = self.cache.insert(salt, parent, (token,), own)
        if node.block == own:
            self.writes[own] = path_of(node)
        else:
            self.pool.share(node.block)
            self.pool.release(own)
        path.append(node)

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), come_back=st.booleans())
    def depart(self, data: st.DataObject, come_back: bool) -> None:
        self.step()
        salt, path = self.holders.pop(data.draw(st.integers(0, len(self.holders) - 1)))
        if come_back and path:
            self.cache.pin(path[-1])
            self.pinned.append((salt, [node.tokens for node in path], path[-1]))
        for node in reversed(path):
            self.pool.release(node.block)

    @precondition(lambda self: self.pinned)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        salt, keys, node = self.pinned[data.draw(st.integers(0, len(self.pinned) - 1))]
        lost = node.block < 0 and node.slot < 0
        if self.attach(salt, keys):
            self.pinned.remove((salt, keys, node))
            self.cache.unpin(node)
            assert lost or self.holders[-1][1][-1] is node, "a pinned path was lost although it was there"

    @rule()
    def step(self) -> None:
        swap_out, swap_in = self.cache.moves()
        for swap in swap_out:
            self.slots[swap.host_slot] = self.device[swap.device_block]
        for swap in swap_in:
            self.device[swap.device_block] = self.slots[swap.host_slot]
        for block, content in self.writes.items():
            self.device[block] = content
        self.writes.clear()
        self.cache.settle()

    @invariant()
    def everything_is_accounted_for(self) -> None:
        self.pool.check()
        self.cache.check()
        held = {node.block for _, path in self.holders for node in path}
        assert self.pool.counts.held == len(held)
        assert self.host.used <= self.host.slots

    @invariant()
    def every_held_path_holds_its_ids(self) -> None:
        self.step()
        for salt, path in self.holders:
            assert self.cache.match(salt, [node.tokens for node in path]) == path
            for node in path:
                assert self.device[node.block] == path_of(node)

    @rule(salt=st.sampled_from("ab"), tokens=st.lists(st.integers(0, 2), max_size=4))
    def what_is_cached_is_right(self, salt: str, tokens: list[int]) -> None:
        self.step()
        for node in self.cache.match(salt, [(token,) for token in tokens]):
            assert (self.device[node.block] if node.block >= 0 else self.slots[node.slot]) == path_of(node)


def path_of(node: CachedBlock) -> Path:
    return (node.salt, *(each.tokens for each in node.path()))


TestTiers = Tiers.TestCase
