"""``antiphon`` with lines in plain order of arrival, in gateway and replica: the control that a claim of fairness must fail."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from antiphon.app import pool_wiring
from antiphon.cli.main import main
from antiphon.engines.base import ReplicaSpec


def _by_arrival(**named: Any) -> ReplicaSpec:
    return replace(ReplicaSpec(**named), order="fcfs")


if __name__ == "__main__":
    pool_wiring.ReplicaSpec = _by_arrival  # type: ignore[misc,assignment]
    sys.exit(main())
