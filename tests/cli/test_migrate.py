"""``antiphon migrate``, and other commands on an older or newer schema."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from antiphon.app.data_folder import DataFolder
from antiphon.stores.sql import schema
from tests.cli.conftest import Antiphon
from tests.stores.old_schema import old_database, version_in


def test_migrate_says_what_it_did(antiphon: Antiphon, tmp_path: Path) -> None:
    data, newest = tmp_path / "data", schema.versions()[-1]
    assert antiphon("migrate", "--data", str(data)).out == f"{data / 'antiphon.db'} is new (schema {newest}).\n"
    assert antiphon("migrate", "--data", str(data)).out == f"{data / 'antiphon.db'} is up to date (schema {newest}).\n"


def test_an_older_schema_is_migrated_with_a_copy(antiphon: Antiphon, tmp_path: Path) -> None:
    old_database(tmp_path / "antiphon.db")
    done = antiphon("migrate", "--data", str(tmp_path))
    assert done.code == 0
    backup = Path(done.out.strip().rpartition("as it was before: ")[2])
    assert version_in(backup) == "0001"
    assert version_in(tmp_path / "antiphon.db") == schema.versions()[-1]


def test_nobody_migrates_under_a_running_server(antiphon: Antiphon, tmp_path: Path) -> None:
    old_database(tmp_path / "antiphon.db")
    with DataFolder(tmp_path).held():
        for command in (["migrate"], ["users", "list"], ["keys", "create", "--name", "x"]):
            refused = antiphon(*command, "--data", str(tmp_path))
            assert (refused.code, refused.err) == (2, f"antiphon: the data folder {tmp_path} is in use by another server\n")
        assert version_in(tmp_path / "antiphon.db") == "0001"
    assert antiphon("users", "list", "--data", str(tmp_path)).code == 0
    assert version_in(tmp_path / "antiphon.db") == schema.versions()[-1]


def test_a_newer_schema_is_refused(antiphon: Antiphon, tmp_path: Path) -> None:
    old_database(tmp_path / "antiphon.db")
    with closing(sqlite3.connect(tmp_path / "antiphon.db")) as db, db:
        db.execute("UPDATE alembic_version SET version_num = '9999'")
    for command in (["migrate"], ["users", "list"]):
        refused = antiphon(*command, "--data", str(tmp_path))
        assert refused.code == 2
        assert refused.out == ""
        assert "config: store.url: the database has schema 9999; this Antiphon knows up to" in refused.err
