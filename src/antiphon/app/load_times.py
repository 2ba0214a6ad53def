"""How long models took to load the last time, kept in the data folder, so that a start can say how long it is going to take."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import cast

_FILE = "load-times.json"


def read_load_times(data: Path) -> dict[str, float]:
    """Seconds by model; nothing where the file is missing or not one of ours. Blocking."""
    try:
        found: object = json.loads((data / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    times = cast("dict[str, object]", found).items()
    return {model: float(seconds) for model, seconds in times if isinstance(seconds, int | float) and 0 < seconds < math.inf}


def write_load_times(data: Path, times: Mapping[str, float]) -> None:
    """In one step; a folder that takes nothing now is no fault. Blocking."""
    staged = data / f".{_FILE}"
    try:
        staged.write_text(json.dumps({model: round(seconds, 3) for model, seconds in times.items()}) + "\n", encoding="utf-8")
        staged.replace(data / _FILE)
    except OSError:
        staged.unlink(missing_ok=True)
