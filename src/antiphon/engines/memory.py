"""How much memory a KV cache may take on this machine or in this container."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")


def available_bytes() -> int:
    """Memory that can be used now without swapping: the machine's, or what the control group still allows if that is less."""
    machine = _machine_available()
    group = _group_available()
    return machine if group is None else min(machine, group)


def _machine_available() -> int:
    try:
        for line in _MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _group_available() -> int | None:
    for limit, usage in (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")):
        try:
            return max(int((_CGROUP / limit).read_text(encoding="ascii")) - int((_CGROUP / usage).read_text(encoding="ascii")), 0)
        except (OSError, ValueError):  # no such hierarchy, or the word "max"
            continue
    return None
