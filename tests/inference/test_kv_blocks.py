from __future__ import annotations

import pytest

from antiphon.inference.kv_blocks import BlockCounts, BlockPool, OutOfBlocks


def test_a_block_is_free_then_held_then_free() -> None:
    pool = BlockPool(2)
    block = pool.take()
    assert pool.counts == BlockCounts(free=1, held=1, cached=0)
    pool.share(block)
    pool.release(block)
    assert pool.counts == BlockCounts(free=1, held=1, cached=0)
    pool.release(block)
    assert pool.counts == BlockCounts(free=2, held=0, cached=0)
    pool.check()


def test_an_indexed_block_is_kept_until_forgotten() -> None:
    pool = BlockPool(2)
    block = pool.take()
    pool.index(block)
    pool.release(block)
    assert pool.counts == BlockCounts(free=1, held=0, cached=1)
    assert pool.takeable == 2
    pool.share(block)
    assert pool.counts.held == 1
    pool.release(block)
    pool.forget(block)
    assert pool.counts == BlockCounts(free=2, held=0, cached=0)
    pool.check()


def test_only_a_sole_unindexed_holder_may_write() -> None:
    pool = BlockPool(1)
    block = pool.take()
    assert pool.writable(block)
    pool.share(block)
    assert not pool.writable(block)
    pool.release(block)
    pool.index(block)
    assert not pool.writable(block)


def test_cached_blocks_are_offered_oldest_first() -> None:
    pool = BlockPool(3)
    blocks = [pool.take() for _ in range(3)]
    for block in blocks:
        pool.index(block)
    for block in (blocks[1], blocks[2], blocks[0]):
        pool.release(block)
    pool.share(blocks[1])
    pool.release(blocks[1])
    assert pool.cached_in_order() == [blocks[2], blocks[0], blocks[1]]


def test_misuse_is_refused() -> None:
    pool = BlockPool(1)
    block = pool.take()
    with pytest.raises(OutOfBlocks):
        pool.take()
    pool.release(block)
    with pytest.raises(ValueError, match="no reference"):
        pool.release(block)
    with pytest.raises(ValueError, match="not held"):
        pool.index(block)
    with pytest.raises(ValueError, match="at least one"):
        BlockPool(0)
