"""Whose a data folder is, and which schemas a server takes."""

from __future__ import annotations

import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from antiphon.stores.sql import schema
from tests.stores.old_schema import TEXT, old_database, version_in
from tests.system.served import Server, eventually, reference_config

pytestmark = [pytest.mark.system, pytest.mark.timeout(90)]

MakeServer = Callable[[str], Server]


def serve(server: Server) -> subprocess.CompletedProcess[str]:
    """Another server on the same folder, until it ends by itself."""
    flags = ["--port", "0", "--data", str(server.data), "--config", str(server.data / "antiphon.toml")]
    return subprocess.run([sys.executable, "-m", "antiphon", "serve", *flags], capture_output=True, check=False, text=True, timeout=60)


def test_a_second_server_is_refused_and_the_first_goes_on(make_server: MakeServer) -> None:
    server = make_server(reference_config())
    second = serve(server)
    assert (second.returncode, second.stdout) == (2, "")
    assert second.stderr == f"the data folder {server.data} is in use by another server ({server.url})\n"
    assert server.person().new_conversation()


def test_an_older_schema_is_migrated_at_the_start_and_a_newer_one_refused(make_server: MakeServer) -> None:
    server = make_server(reference_config())
    assert server.stop() == 0
    path = server.data / "antiphon.db"
    path.unlink()
    old_database(path)
    server.start()
    backup = server.data / "backups" / "antiphon-0001.db"
    assert version_in(backup) == "0001"
    assert version_in(path) == schema.versions()[-1]
    assert str(backup) in server.log()
    assert server.stop() == 0
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute("SELECT count(*) FROM messages WHERE content LIKE ?", (f"{TEXT}%",)).fetchone() == (50,)
        db.execute("UPDATE alembic_version SET version_num = '9999'")
    refused = serve(server)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "config: store.url: the database has schema 9999" in refused.stderr


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_data_folder_that_cannot_be_is_a_fault_of_the_configuration(below: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    data = tmp_path / "file" / below
    flags = ["--port", "0", "--data", str(data)]
    refused = subprocess.run([sys.executable, "-m", "antiphon", "serve", *flags], capture_output=True, check=False, text=True, timeout=60)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"config: data: cannot be a folder at {data}: ")


def test_a_server_that_is_stopped_while_it_loads_ends_well_and_says_nothing(tmp_path: Path) -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    config = reference_config().replace("drain_seconds = 5", "drain_seconds = 600")
    for _ in range(5):  # where it was stopped too late, it said that it is ready, and nothing is known
        server = Server(tmp_path / "data", config, port)
        server.launch()
        process = server.process
        assert process is not None
        assert process.stdout is not None
        try:
            eventually(lambda: _listens(port), within_s=40, what="it listens")
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0, "nothing was accepted, so there is nothing to wait for"
            if process.stdout.read() == "":
                return
        finally:
            server.end()
    raise AssertionError("it was ready each time before it was stopped")


def _listens(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
