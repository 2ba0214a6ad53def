"""A release's name follows what a replica would load."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from antiphon.engines.base import ReplicaSpec
from antiphon.engines.release import release_of


def test_a_release_is_its_files_and_settings(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"weights")
    spec = ReplicaSpec("small", "openvino", "m", str(tmp_path))
    first = release_of(spec)
    assert release_of(replace(spec, pool="other", threads=3)) == first
    others = {release_of(replace(spec, precision="exact")), release_of(replace(spec, context_tokens=64))}
    state = (tmp_path / "model.gguf").stat()
    os.utime(tmp_path / "model.gguf", ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    others.add(release_of(spec))
    (tmp_path / "adapter.bin").write_bytes(b"")
    others.add(release_of(spec))
    assert first not in others
    assert len(others) == 4
