"""The one JSON line a benchmark ends with, in the contract's form."""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.machine import commit, cpu_probe, machine_name


@dataclass(frozen=True, slots=True)
class Options:
    quick: bool
    seed: int


def options(name: str) -> Options:
    """``--quick`` and ``--seed N`` of a benchmark's command line."""
    parser = argparse.ArgumentParser(prog=f"make bench NAME={name}")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parsed = parser.parse_args()
    return Options(quick=parsed.quick, seed=parsed.seed)


@dataclass(slots=True)
class Report:
    """Collects figures and prints them once, at the end."""

    name: str
    model: str
    seed: int
    n: int = 0
    results: dict[str, float | None] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    peers: dict[str, dict[str, object]] = field(default_factory=dict)
    started_s: float = field(default_factory=time.perf_counter)
    probe: dict[str, float] = field(default_factory=cpu_probe)

    def line(self) -> dict[str, object]:
        """The contract's object, as it is now."""
        return {
            "name": self.name,
            "machine": machine_name(),
            "commit": commit(),
            "model": self.model,
            "seed": self.seed,
            "n": self.n,
            "seconds": round(time.perf_counter() - self.started_s, 1),
            "cpu_probe": self.probe,
            "results": self.results,
            "ratios": self.ratios,
            "peers": self.peers,
        }

    def print_json(self) -> None:
        """Write the line; nothing may be printed on stdout after it."""
        print(json.dumps(self.line()), flush=True)


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def percentile(samples: Sequence[float], share: float) -> float:
    """The nearest-rank percentile; ``share`` in (0, 1]. Raises ``ValueError`` for too few samples (300 for a p99)."""
    if share >= 0.99 and len(samples) < 300:
        raise ValueError(f"a p99 needs 300 samples, not {len(samples)}")
    return sorted(samples)[math.ceil(share * len(samples)) - 1]


def median(samples: Sequence[float]) -> float:
    return statistics.median(samples)
