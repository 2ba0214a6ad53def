"""The file of pools that were added while a server ran."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from antiphon.app.added_pools import AddedPools
from antiphon.app.config import Flags, load_config
from antiphon.core.errors import ConfigErrors
from antiphon.core.pools import PoolSpec

KEYED = PoolSpec(name="far", model="big", engine="openai", url="https://far.example/v1", api_key="sk-secret", added=True)
OPEN = PoolSpec(name="near", model="llama3:8b", engine="openai", url="http://127.0.0.1:11434/v1", added=True)


def test_what_was_written_is_read_and_nobody_else_reads_it(tmp_path: Path) -> None:
    pools = AddedPools(tmp_path / "data")
    assert pools.read() == ()
    pools.write((KEYED, OPEN))
    assert pools.read() == (KEYED, OPEN)
    assert "sk-secret" not in repr(KEYED)
    (file,) = (tmp_path / "data").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_configured_pool_goes_before_an_added_one_of_its_name(tmp_path: Path) -> None:
    AddedPools(tmp_path).write((KEYED, OPEN))
    config = tmp_path / "antiphon.toml"
    config.write_text('[[pools]]\nname = "far"\nengine = "reference"\n[[plans]]\nname = "free"\nmodels = ["far", "near"]\n')
    loaded = load_config(Flags(config=config, data=tmp_path), {"HOME": str(tmp_path)})
    assert [(pool.name, pool.engine, pool.added) for pool in loaded.pools] == [("far", "reference", False), ("near", "openai", True)]


@pytest.mark.parametrize("content", ["", "{}", "[{}]", '[{"name": "a", "model": "b", "url": "c", "more": 1}]'])
def test_a_broken_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "endpoints.json").write_text(content)
    with pytest.raises(ConfigErrors, match=r"endpoints\.json: is not what was written"):
        AddedPools(tmp_path).read()
