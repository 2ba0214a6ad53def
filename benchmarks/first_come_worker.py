"""The replica's worker with its line in plain order of arrival: what fairness is measured against."""

from __future__ import annotations

import os
from functools import partial

from antiphon.app import worker
from antiphon.inference import replica
from antiphon.inference.line import LineRules
from antiphon.inference.scheduler import SchedulerSettings

if __name__ == "__main__":
    replica.Replica = partial(replica.Replica, settings=SchedulerSettings(line=LineRules(order="fcfs")))  # type: ignore[misc,assignment]
    os._exit(worker.main())
