from __future__ import annotations

from tests.orchestrator.conftest import gateway, quiet_logs

__all__ = ["gateway", "quiet_logs"]
