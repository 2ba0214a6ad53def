"""The memory and the processors a replica may count on are no more than the container's."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.engines import control_group, memory
from antiphon.engines.control_group import available_group_bytes, quota_processors, replica_threads
from antiphon.engines.memory import CacheSize, cache_size


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n")


def test_the_tightest_group_above_this_process_counts(tmp_path: Path) -> None:
    own, root = tmp_path / "own", tmp_path / "root"
    own.write_text("0::/system.slice/antiphon.service\n")
    write(root / "system.slice" / "antiphon.service", memory__max="max", memory__current="5", cpu__max="max 100000")
    write(root / "system.slice", memory__max="50000000", memory__current="20000000", cpu__max="150000 100000")
    write(root, memory__max="90000000", memory__current="20000000")
    assert available_group_bytes(root, own) == 30_000_000
    assert quota_processors(root, own) == 1.5
    assert available_group_bytes(root, tmp_path / "absent") == 70_000_000
    assert quota_processors(root, tmp_path / "absent") is None


def test_the_first_version_of_control_groups_is_read_too(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("4:memory:/pod\n3:cpu,cpuacct:/pod\n")
    write(tmp_path / "memory" / "pod", memory__limit_in_bytes="1000", memory__usage_in_bytes="400")
    write(tmp_path / "cpu", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    assert available_group_bytes(tmp_path, own) == 600
    assert quota_processors(tmp_path, own) is None
    write(tmp_path / "cpu", cpu__cfs_quota_us="50000")
    assert quota_processors(tmp_path, own) == 0.5


def test_the_smaller_of_machine_and_control_group_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_group_bytes", lambda: 7)
    assert memory.available_bytes() == 7
    monkeypatch.setattr(memory, "available_group_bytes", lambda: None)
    assert memory.available_bytes() > 100_000_000


def test_a_machine_without_proc_is_halved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "absent")
    assert memory.available_bytes() > 100_000_000


def test_one_budget_holds_blocks_slots_and_the_executors_own_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 4 * 601 * 10)
    assert cache_size(0, 10, 1) == CacheSize(400, 200)
    assert cache_size(0, 10, 2) == CacheSize(200, 99)
    assert cache_size(3100, 10, 2) == CacheSize(206, 103), "what was asked for is each replica's own"
    assert cache_size(3100, 10, 1, host_slots=9) == CacheSize(300, 9)
    assert cache_size(3100, 10, 1, host_slots=0) == CacheSize(309, 0)
    assert cache_size(29, 10, 1) is None


def test_threads_are_divided_between_replicas_and_kept_within_the_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_group, "_processors", lambda: 8)
    assert replica_threads(1, None) == 0, "OpenVINO's own choice"
    assert replica_threads(1, 8.0) == 0
    assert replica_threads(1, 2.5) == 3
    assert replica_threads(2, 5.0) == 2
    assert replica_threads(3, None) == 2
    assert replica_threads(9, 1.0) == 1
