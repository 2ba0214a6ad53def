"""The door of a real server: the owner's password first, then sign-in by it from another address of the machine."""

from __future__ import annotations

import contextlib
import select
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.system.served import Server, eventually, reference_config

PASSWORD = "correct horse battery\n"
ANTIPHON = [sys.executable, "-m", "antiphon"]


@pytest.mark.system
def test_other_machines_are_served_once_the_owner_has_a_password(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", reference_config(extra='[server]\nhost = "0.0.0.0"\n'))
    server.data.mkdir()
    flags = ["--data", str(server.data), "--config", str(server.data / "antiphon.toml")]
    (server.data / "antiphon.toml").write_text(server.config)
    refused = subprocess.run([*ANTIPHON, "serve", "--port", "0", *flags], capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 2
    assert refused.stdout == ""
    (told,) = [line for line in refused.stderr.splitlines() if line.startswith("config: ")]
    assert told.startswith("config: server.host: ") and "antiphon users password --data" in told

    for bad in ("short\n", "owner\n", "\n"):
        again = subprocess.run([*ANTIPHON, "users", "password", *flags], input=bad, capture_output=True, text=True, timeout=30, check=False)
        assert (again.returncode, again.stdout) == (1, ""), again.stderr
    subprocess.run([*ANTIPHON, "users", "password", *flags], input=PASSWORD, text=True, timeout=30, check=True)
    try:
        server.start()
        with httpx.Client(base_url=server.url, trust_env=False) as browser:
            wrong = browser.post("/v1/session", json={"name": "owner", "password": "not the password"})
            assert (wrong.status_code, wrong.json()["code"]) == (401, "unauthenticated")
            signed_in = browser.post("/v1/session", json={"name": "owner", "password": PASSWORD.strip()})
            assert signed_in.status_code == 204
            assert browser.get("/v1/me").json()["role"] == "owner"
    finally:
        server.end()


@pytest.mark.system
def test_who_comes_while_the_server_loads_waits_and_is_served(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    for _ in range(5):  # where it was ready by the time that we looked, nothing is known
        server = Server(tmp_path / "data", reference_config(), port)
        server.launch()
        assert server.process is not None and server.process.stdout is not None
        try:
            with _connected(port) as early:
                told, _, _ = select.select([server.process.stdout], [], [], 0)
                early.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
                assert early.recv(64).startswith(b"HTTP/1.1 200 ")
            if not told:
                return
        finally:
            server.end()
    raise AssertionError("it was ready each time before its port was looked at")


def _connected(port: int) -> socket.socket:
    """A connection, as soon as there can be one."""
    made: list[socket.socket] = []

    def connects() -> bool:
        with contextlib.suppress(ConnectionRefusedError):
            made.append(socket.create_connection(("127.0.0.1", port), timeout=20))
        return bool(made)

    eventually(connects, within_s=40, what="the port is open")
    return made[0]
