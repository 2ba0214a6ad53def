"""What the control group of this process allows it: memory and processors."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


def group_folders(controller: str, root: Path = ROOT, own: Path = OWN) -> Iterator[Path]:
    """The folders whose limits bind this process, innermost first, in either version of control groups.

    Inside a container the path that ``own`` names may not be mounted; then only ``root`` itself is.
    """
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, names, path = (*line.split(":", 2), "", "")[:3]
        if names and controller not in names.split(","):
            continue
        base = root / controller if names else root
        folder = base / path.lstrip("/")
        while folder != base and base in folder.parents:
            yield folder
            folder = folder.parent
    yield root
    yield root / controller


def quota_processors(root: Path = ROOT, own: Path = OWN) -> float | None:
    """Processors' worth of time this process may use, or ``None`` where nothing limits it."""
    found: list[float] = []
    for folder in group_folders("cpu", root, own):
        try:
            quota, period = (int(word) for word in (folder / "cpu.max").read_text(encoding="ascii").split())
        except (OSError, ValueError):  # no such hierarchy, or the word "max"
            try:
                quota = int((folder / "cpu.cfs_quota_us").read_text(encoding="ascii"))
                period = int((folder / "cpu.cfs_period_us").read_text(encoding="ascii"))
            except (OSError, ValueError):
                continue
        if quota > 0 and period > 0:
            found.append(quota / period)
    return min(found, default=None)


def available_group_bytes(root: Path = ROOT, own: Path = OWN) -> int | None:
    """Memory that the control groups of this process still allow, or ``None`` where nothing limits it."""
    found: list[int] = []
    for folder in group_folders("memory", root, own):
        for limit, usage in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            try:
                left = int((folder / limit).read_text(encoding="ascii")) - int((folder / usage).read_text(encoding="ascii"))
            except (OSError, ValueError):  # no such hierarchy, or the word "max"
                continue
            found.append(max(left, 0))
    return min(found, default=None)


def replica_threads(replicas: int, quota: float | None) -> int:
    """Threads for one of ``replicas`` on this machine; 0 leaves the choice, and the pinning, to OpenVINO.

    OpenVINO sees the processors, but neither a ``quota`` on their time nor its neighbours.
    """
    processors = _processors()
    if replicas <= 1 and (quota is None or quota >= processors):
        return 0
    usable = processors if quota is None else min(processors, math.ceil(quota))
    return max(usable // max(replicas, 1), 1)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
