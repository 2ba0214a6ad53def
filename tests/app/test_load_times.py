"""What a data folder remembers of how long models take to load."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.app.load_times import read_load_times, write_load_times


def test_what_was_written_is_read(tmp_path: Path) -> None:
    assert read_load_times(tmp_path) == {}
    write_load_times(tmp_path, {"a/b:c \N{SNOWMAN}": 12.34567, "d": 0.5})
    assert read_load_times(tmp_path) == {"a/b:c \N{SNOWMAN}": 12.346, "d": 0.5}
    assert [file.name for file in tmp_path.iterdir()] == ["load-times.json"]
    write_load_times(tmp_path / "gone", {"a": 1.0})  # no fault


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\xff", b'{"a": "x", "b": -1, "c": 1e999, "d": NaN, "e": null}'])
def test_a_file_of_anything_else_says_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "load-times.json").write_bytes(content)
    assert read_load_times(tmp_path) == {}
