"""The memory a cache may count on is no more than the container's."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.engines import memory


def test_the_smaller_of_machine_and_control_group_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    machine = memory.available_bytes()
    assert machine > 100_000_000
    (tmp_path / "memory.max").write_text("50000000\n")
    (tmp_path / "memory.current").write_text("20000000\n")
    assert memory.available_bytes() == 30_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available_bytes() > 100_000_000


def test_a_machine_without_proc_is_halved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "absent")
    assert memory.available_bytes() > 100_000_000
