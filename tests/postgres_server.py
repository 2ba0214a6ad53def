"""A real PostgreSQL, started for tests: Debian's where it is installed, else the one that the pgserver wheel carries."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import psycopg

_FAST = {"fsync": "off", "full_page_writes": "off", "max_connections": "60", "shared_buffers": "32MB", "autovacuum": "off"}
"""What a machine that loses power needs is off: only processes are killed here."""


def postgres_programs() -> Path:
    """The folder with ``initdb`` and ``postgres``, the newest there is."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    found = [path.parent for path in reversed(debian)]
    spec = find_spec("pgserver")
    if spec is not None and spec.origin is not None:
        found.append(Path(spec.origin).parent / "pginstall" / "bin")
    programs = [folder for folder in found if (folder / "postgres").is_file()]
    assert programs, "no PostgreSQL: install postgresql, or the pgserver wheel of the development requirements"
    return programs[0]


class PostgresServer:
    """Listens on a loopback port of its own. ``kill`` and ``start`` again for an outage; ``stop`` takes its folder away."""

    def __init__(self) -> None:
        # PostgreSQL refuses to run as root, and whom it runs as must reach its folder, which pytest's own folders do not grant.
        self._user = "nobody" if os.geteuid() == 0 else None
        self._folder = Path(tempfile.mkdtemp(prefix="antiphon-postgres-"))
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        self._programs = postgres_programs()
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        options = ["--no-sync", "--auth=trust", "--username=antiphon", "--locale=C", "--encoding=UTF8"]
        made = self._run([str(self._programs / "initdb"), f"--pgdata={self._folder / 'data'}", *options])
        assert made.wait() == 0, self._log()

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://antiphon@127.0.0.1:{self.port}/{database}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        settings = {**_FAST, "listen_addresses": "127.0.0.1", "port": str(self.port), "unix_socket_directories": str(self._folder)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._process = self._run([str(self._programs / "postgres"), "-D", str(self._folder / "data"), *options])
        for _ in range(500):
            if self._answers():
                return
            assert self._process.poll() is None, self._log()
            time.sleep(0.02)
        raise AssertionError(self._log())

    def kill(self) -> None:
        """``kill -9`` of it and of the processes that serve its connections, as when its machine goes: no goodbye to anybody."""
        children = [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]
        self._end(signal.SIGKILL)
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def restart(self) -> None:
        """As an operator does it: connections are told and closed."""
        self._end(signal.SIGINT)
        self.start()

    def stop(self) -> None:
        self._end(signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def execute(self, *statements: str, database: str = "postgres") -> None:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def create_database(self, name: str, *, template: str = "template0") -> str:
        """A new database's URL."""
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return self.url(name)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, command: list[str]) -> subprocess.Popen[bytes]:
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                user=self._user,
                group=None if self._user is None else pwd.getpwnam(self._user).pw_gid,
                extra_groups=None if self._user is None else [],
                cwd=self._folder,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - it calls prctl
            )

    def _log(self) -> str:
        return (self._folder / "log").read_text()


class Emptier:
    """Takes every row out of the tables of a migrated database, again and again."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        # No order of the tables suits their foreign keys; without their triggers none is needed.
        self._connection.execute("SET session_replication_role = replica")
        found = self._connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'")
        # TRUNCATE would make every file anew.
        self._deletes = "".join(f'DELETE FROM "{name}";' for (name,) in found).encode()

    def empty(self) -> None:
        self._connection.execute(self._deletes)

    def close(self) -> None:
        self._connection.close()


def _die_with_parent() -> None:
    """Linux: the server ends when the test run is killed."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGQUIT)
    os.setsid()
