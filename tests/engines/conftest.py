"""The real model, converted once into the store that ``make setup`` uses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from antiphon.core.errors import ModelUnusable
from antiphon.engines.model_source import ModelStore
from antiphon.engines.tokenizer import ModelTokenizer, load_tokenizer


@pytest.fixture(scope="session")
def model_folder() -> Path:
    """The default model, ready to serve; skipped (failed in CI) where it cannot be had."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    store = ModelStore(Path(os.environ.get("ANTIPHON_MODELS") or cache / "antiphon" / "models"))
    try:
        return store.pull_default(lambda _label, _done, _total: None)
    except ModelUnusable as error:
        pytest.skip(f"the default model cannot be had here: {error}")


@pytest.fixture(scope="session")
def tokenizer(model_folder: Path) -> ModelTokenizer:
    return load_tokenizer(model_folder)
