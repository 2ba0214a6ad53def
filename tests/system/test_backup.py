"""backup and restore on a real server: taken while it writes, put back whole or not at all."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.system.served import Server, reference_config

pytestmark = pytest.mark.system


def antiphon(server: Server, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "antiphon", *arguments, "--data", str(server.data), "--config", str(server.data / "antiphon.toml")]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_a_backup_of_a_serving_server_serves_elsewhere(make_server: Callable[[str], Server], tmp_path: Path) -> None:
    server = make_server(reference_config(output_tokens_per_s=20))
    person = server.person()
    conversation = person.new_conversation()
    person.read(person.send(conversation, "first", params={"max_tokens": 3})["generation_id"])
    running = person.send(conversation, "second", params={"max_tokens": 300})
    file = tmp_path / "kept.backup"
    assert server.command("backup", str(file)) == str(file)
    assert file.stat().st_mode & 0o077 == 0, "it holds everybody's conversations"
    again = antiphon(server, "backup", str(file))
    assert again.returncode == 1 and "is there already" in again.stderr
    refused = antiphon(server, "restore", str(file))
    assert refused.returncode == 2 and "in use" in refused.stderr
    assert person.generation(running["generation_id"])["status"] == "running", "nobody noticed"

    other = Server(tmp_path / "other", server.config)
    other.data.mkdir()
    (other.data / "antiphon.toml").write_text(server.config)
    assert "is as it was in" in other.command("restore", str(file))
    other.start()
    try:
        theirs = other.person()
        theirs.http.headers["authorization"] = person.http.headers["authorization"]  # keys are in it too
        messages = theirs.http.get(f"/v1/conversations/{conversation}/messages").json()["data"]
        assert [one["content"] for one in messages if one["role"] == "user"] == ["first", "second"]
        assert messages[1]["status"] == "complete"
        assert theirs.generation(running["generation_id"])["status"] in {"running", "complete", "interrupted", "queued"}
    finally:
        other.end()


@pytest.mark.slow
def test_going_back_keeps_what_was_there_and_bad_files_change_nothing(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", reference_config())
    server.data.mkdir()
    (server.data / "antiphon.toml").write_text(server.config)
    server.command("users", "create", "ann")
    file = tmp_path / "kept.backup"
    server.command("backup", str(file))
    server.command("users", "create", "bob")
    database = server.data / "antiphon.db"
    before = database.read_bytes()

    (tmp_path / "text").write_text("not a database " * 400)
    (tmp_path / "cut").write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with closing(sqlite3.connect(tmp_path / "foreign")) as foreign:
        foreign.execute("create table things (a)")
        foreign.commit()
    newer = tmp_path / "newer"
    newer.write_bytes(file.read_bytes())
    with closing(sqlite3.connect(newer)) as changed:
        changed.execute("update alembic_version set version_num = '9999'")
        changed.commit()
    for name in ("text", "cut", "foreign", "newer", "absent"):
        refused = antiphon(server, "restore", str(tmp_path / name))
        assert refused.returncode in {1, 2} and refused.stderr.count("\n") == 1, (name, refused.stderr)
        assert database.read_bytes() == before, name
        assert not [left for left in os.listdir(server.data) if left.startswith(".")], name

    told = server.command("restore", str(file))
    assert "bob" not in server.command("users", "list") and "ann" in server.command("users", "list")
    kept = Path(told.rpartition("before: ")[2])
    with closing(sqlite3.connect(kept)) as held:
        assert {row[0] for row in held.execute("select name from users")} >= {"ann", "bob"}
    assert "ann" in server.command("users", "list")
