"""The orchestrator's timings: the ``[timing]`` table of the configuration."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds, except ``coalesce_ms``. Tests shorten them; the defaults are the contract's."""

    lease_seconds: float = 10.0
    heartbeat_seconds: float = 3.0
    sweep_seconds: float = 5.0
    checkpoint_seconds: float = 2.5
    coalesce_ms: float = 40.0
    ping_seconds: float = 15.0
    log_seconds: float = 900.0
    drain_seconds: float = 60.0
    idempotency_seconds: float = 86_400.0
    detached_grace_seconds: float = 60.0
    purge_seconds: float = 3600.0
