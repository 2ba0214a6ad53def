"""Finding a configured model on disk, and fetching the default one where it is missing."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from antiphon.app.progress import ProgressBars
from antiphon.core.errors import ModelUnusable
from antiphon.core.pools import PoolSpec
from antiphon.engines.catalogue import CATALOGUE, Machine, Recommendation, recommend
from antiphon.engines.catalogue import find as find_in_catalogue
from antiphon.engines.control_group import quota_processors, replica_threads
from antiphon.engines.memory import available_bytes
from antiphon.engines.model_source import DEFAULT_MODEL, ModelStore

_PROBE_BYTES = 64 * 1024**2
_PROBES = 5


def recommended(context_tokens: int) -> tuple[Recommendation, ...]:
    """The catalogue on this machine as it is now. Blocking, for less than a second."""
    return recommend(CATALOGUE, Machine(available_bytes(), _memory_bytes_per_s()), context_tokens=context_tokens)


def _memory_bytes_per_s() -> float:
    """How fast the processors that a replica would use read memory together, at the best of a few tries."""
    import numpy as np

    from antiphon.app.system import SystemClock

    clock = SystemClock()
    threads = replica_threads(1, quota_processors()) or os.cpu_count() or 1
    held = [np.ones(_PROBE_BYTES // 8, np.int64) for _ in range(threads)]
    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(_PROBES):
            began = clock.monotonic()
            for _total in pool.map(np.bitwise_or.reduce, held):
                pass
            best = max(best, threads * _PROBE_BYTES / (clock.monotonic() - began))
    return best


def model_folder(models_folder: Path, model: str) -> Path:
    """The folder of an installed model. Blocking; raises ``ModelUnusable`` naming the command that installs it."""
    folder = ModelStore(models_folder).find(model)
    if folder is None:
        command = f"antiphon models pull {model}" if find_in_catalogue(model) else f"antiphon models add PATH --name {model}"
        raise ModelUnusable(f"The model {model} is not installed; install it with: {command}")
    return folder


def pull_missing_default(models_folder: Path, pools: tuple[PoolSpec, ...]) -> None:
    """Install the default model if a pool wants it and it is not there. Blocking; progress on stderr. Raises ``ModelUnusable``."""
    wanted = any(pool.engine == "openvino" and pool.model == DEFAULT_MODEL for pool in pools)
    store = ModelStore(models_folder)
    if wanted and store.find(DEFAULT_MODEL) is None:
        with ProgressBars() as bars:
            store.pull_default(bars.show)
