"""The Redis limiter against the sequential machine, under many processes at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.stores.limits.tally import Tally
from tests.contracts.drift import Drift, drift
from tests.redis_server import RedisServer


def measured(tmp_path: Path, *, processes: int, operations: int) -> Drift:
    server = RedisServer(tmp_path)
    server.start()
    try:
        return drift(server.url, processes=processes, operations=operations, seed=1)
    finally:
        server.stop()


def test_three_processes_drift_nowhere(tmp_path: Path) -> None:
    found = measured(tmp_path, processes=3, operations=700)
    assert found.wrong == 0, found.first_wrong
    assert found.steps == 2100
    assert found.refused > 50


def test_a_machine_that_forgets_a_refund_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: were the comparison blind, this would pass too."""
    monkeypatch.setattr(Tally, "release", lambda tally, generation_id, now_ms: generation_id in tally._held)
    assert measured(tmp_path, processes=2, operations=300).wrong > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sixteen_processes_of_ten_thousand_steps_drift_nowhere(tmp_path: Path) -> None:
    found = measured(tmp_path, processes=16, operations=10_000)
    assert found.wrong == 0, found.first_wrong
    assert found.steps == 160_000
