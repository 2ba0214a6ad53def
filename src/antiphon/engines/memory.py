"""How much memory a KV cache may take on this machine or in this container."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from antiphon.engines.control_group import available_group_bytes

_MEMINFO = Path("/proc/meminfo")
_SHARE_OF_AVAILABLE = 0.25
_HOST_SHARE = 1 / 3
_MOST_BLOCKS_UNASKED = 2048


@dataclass(frozen=True, slots=True)
class CacheSize:
    """Blocks that sequences compute in, and slots of the second tier that blocks are swapped to."""

    blocks: int
    host_slots: int


def cache_size(kv_bytes: int, block_bytes: int, replicas: int, host_slots: int = -1) -> CacheSize | None:
    """Divide one budget between blocks and slots, one block being the executor's own; ``None`` when two blocks do not fit.

    The budget is ``kv_bytes``, or, at 0, a quarter of what is available divided by the ``replicas`` that start here.
    ``host_slots`` -1 gives the second tier a third of the budget.
    """
    asked = kv_bytes > 0
    budget = kv_bytes if asked else int(available_bytes() * _SHARE_OF_AVAILABLE) // max(replicas, 1)
    units = budget // block_bytes - 1
    slots = int(units * _HOST_SHARE) if host_slots < 0 else min(host_slots, units - 2)
    blocks = units - slots
    if not asked:
        blocks = min(blocks, _MOST_BLOCKS_UNASKED)
        slots = min(slots, _MOST_BLOCKS_UNASKED) if host_slots < 0 else slots
    return CacheSize(blocks, slots) if blocks >= 2 and slots >= 0 else None


def available_bytes() -> int:
    """Memory that can be used now without swapping: the machine's, or what the control group still allows if that is less."""
    machine = _machine_available()
    group = available_group_bytes()
    return machine if group is None else min(machine, group)


def _machine_available() -> int:
    try:
        for line in _MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
