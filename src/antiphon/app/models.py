"""Finding a configured model on disk, and fetching the default one where it is missing."""

from __future__ import annotations

from pathlib import Path

from antiphon.app.progress import ProgressBars
from antiphon.core.errors import ModelUnusable
from antiphon.core.pools import PoolSpec
from antiphon.engines.model_source import DEFAULT_MODEL, ModelStore


def model_folder(models_folder: Path, model: str) -> Path:
    """The folder of an installed model. Blocking; raises ``ModelUnusable`` naming the command that installs it."""
    folder = ModelStore(models_folder).find(model)
    if folder is None:
        command = "antiphon models pull" if model == DEFAULT_MODEL else "antiphon models add PATH --name " + model
        raise ModelUnusable(f"The model {model} is not installed; install it with: {command}")
    return folder


def pull_missing_default(models_folder: Path, pools: tuple[PoolSpec, ...]) -> None:
    """Install the default model if a pool wants it and it is not there. Blocking; progress on stderr. Raises ``ModelUnusable``."""
    wanted = any(pool.engine == "openvino" and pool.model == DEFAULT_MODEL for pool in pools)
    store = ModelStore(models_folder)
    if wanted and store.find(DEFAULT_MODEL) is None:
        with ProgressBars() as bars:
            store.pull_default(bars.show)
