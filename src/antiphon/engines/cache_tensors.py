"""The KV cache's memory: blocks that the model reads and writes, and slots that blocks are swapped to.

Blocks are rows of one tensor per layer and kind; a block moves as bytes, so what comes back is what went, whatever its format.
The system gives the memory of blocks and slots when they are first written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from antiphon.engines.base import BlockCopy, BlockSwap
from antiphon.engines.quiet_openvino import ov


@dataclass(frozen=True, slots=True)
class CachePart:
    """One cache input: ``shape`` is that of one block."""

    name: str
    element: ov.Type
    shape: tuple[int, ...]

    @property
    def block_bytes(self) -> int:
        return int(np.prod(self.shape)) * self.element.size


class CacheTensors:
    """``blocks`` blocks and ``slots`` slots. Ids are trusted: the executor checks them."""

    def __init__(self, parts: Sequence[CachePart], blocks: int, slots: int) -> None:
        self.tensors: dict[str, ov.Tensor] = {part.name: ov.Tensor(part.element, ov.Shape([blocks, *part.shape])) for part in parts}
        self._blocks: list[NDArray[np.uint8]] = [tensor.data.reshape(blocks, -1).view(np.uint8) for tensor in self.tensors.values()]
        self._slots: list[NDArray[np.uint8]] = [np.empty((slots, part.block_bytes), np.uint8) for part in parts]

    def copy(self, copies: Sequence[BlockCopy]) -> None:
        """Copy blocks in every layer, in the order given."""
        targets = {copy.target_block for copy in copies}
        if len(copies) == 1 or any(copy.source_block in targets for copy in copies):
            for copy in copies:
                for blocks in self._blocks:
                    blocks[copy.target_block] = blocks[copy.source_block]
            return
        _move(self._blocks, [copy.source_block for copy in copies], self._blocks, [copy.target_block for copy in copies])

    def swap_out(self, swaps: Sequence[BlockSwap]) -> None:
        """Blocks to slots."""
        _move(self._blocks, [swap.device_block for swap in swaps], self._slots, [swap.host_slot for swap in swaps])

    def swap_in(self, swaps: Sequence[BlockSwap]) -> None:
        """Slots to blocks."""
        _move(self._slots, [swap.host_slot for swap in swaps], self._blocks, [swap.device_block for swap in swaps])


def _move(sources: list[NDArray[np.uint8]], source_rows: list[int], targets: list[NDArray[np.uint8]], target_rows: list[int]) -> None:
    """Copy rows of each array to rows of its counterpart. Neighbouring rows that stay neighbours are copied at once."""
    runs: list[tuple[slice, slice]] = []
    start = 0
    for end in range(1, len(source_rows) + 1):
        ends = end == len(source_rows)
        if ends or source_rows[end] != source_rows[end - 1] + 1 or target_rows[end] != target_rows[end - 1] + 1:
            source, target = source_rows[start], target_rows[start]
            runs.append((slice(source, source + end - start), slice(target, target + end - start)))
            start = end
    for source_array, target_array in zip(sources, targets, strict=True):
        for source, target in runs:
            target_array[target] = source_array[source]
