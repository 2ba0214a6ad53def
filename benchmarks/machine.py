"""What machine a figure was taken on, and a probe of how fast it was at that moment."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path

import numpy as np


def machine_name() -> str:
    """Processor, cores and memory in one line."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}, {len(os.sched_getaffinity(0))} cores, {memory_gib:.0f} GiB"


def commit() -> str:
    """The checkout's commit, with ``+`` when there are changes on top."""
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    dirty = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True, check=False).stdout.strip()
    return head + ("+" if dirty else "")


def cpu_probe() -> dict[str, float]:
    """``gemm_gflops`` of a 512³ f32 product, and ``decode_ms``: memory-bound work like one decode step (128 MB read, one row of logits)."""
    left = np.random.default_rng(0).standard_normal((512, 512), dtype=np.float32)
    weights = np.ones((32, 1024, 1024), dtype=np.float32)
    logits = np.random.default_rng(1).standard_normal((1, 49_152), dtype=np.float32)
    gemm = min(_seconds(lambda: left @ left) for _ in range(20))
    decode = min(_seconds(lambda: (weights.sum(), np.exp(logits).argmax())) for _ in range(10))
    return {"decode_ms": round(decode * 1e3, 2), "gemm_gflops": round(2 * 512**3 / gemm / 1e9, 1)}


def _seconds(work: object) -> float:
    assert callable(work)
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
