"""How a server wants its interpreter: nothing is collected while it loads, little is looked through while it serves."""

from __future__ import annotations

import gc
import sys

_SWITCH_INTERVAL_S = 0.001
_COLLECTOR_THRESHOLDS = (10_000, 20, 100)


def load_without_collector() -> None:
    """What is loaded stays, so looking through it while it is loaded finds nothing; until ``tune_interpreter``."""
    gc.disable()


def tune_interpreter() -> None:
    """Once everything is loaded: what lives now is never looked through again, garbage is looked for less often, threads give way.

    With CPython's defaults 10,000 open streams mean pauses of 110-600 ms; streams leave few cycles behind. A store's thread that
    has to ask a busy event loop for the interpreter waits a switch interval each time, and it asks once for every row.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.freeze()
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)
    gc.enable()
