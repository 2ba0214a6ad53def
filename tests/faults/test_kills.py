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
@pytest.mark.timeout(1800)
def test_a_server_killed_before_it_reconciles_or_marks_accounts_once() -> None:
    """Fifty deaths between reserve and finish, fifty between the relay's delivery and its mark."""
    points = ["C3", "C4", "C9", "C11", "C12"] * 10 + ["C13", "C14"] * 25
    assert run(points, seed=7) == len(points)


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
