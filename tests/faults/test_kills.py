"""kill -9 of server and replica at the crash points; ``python -m tests.faults.kills`` runs more of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.kills import all_points, record_of_this_commit, run, run_remembering

pytestmark = pytest.mark.system


@pytest.mark.timeout(240)
def test_a_server_killed_between_store_and_log_loses_nothing() -> None:
    assert run(["C11"]) == 1


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_crash_point_many_times() -> None:
    """About half an hour on an idle machine; it goes on where it was interrupted."""
    wanted = all_points(20, 5)
    passed = run_remembering(wanted, record_of_this_commit())
    assert passed == {point: wanted.count(point) for point in dict.fromkeys(wanted)}


def test_rounds_are_remembered(tmp_path: Path) -> None:
    record = tmp_path / "kills.json"
    record.write_text('{"C1": 2, "R4": 1}')
    assert run_remembering(["C1", "C1", "R4"], record) == {"C1": 2, "R4": 1}
