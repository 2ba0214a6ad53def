"""A real ``antiphon serve`` on loopback with a folder of its own, and a plain HTTP client for it."""

from __future__ import annotations

import http.client
import json
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

READY_SECONDS = 120.0
SCOPES = "chat,usage,admin,metrics"


@dataclass(frozen=True, slots=True)
class Served:
    """A running server: its address, an API key with all scopes, its process and its data folder."""

    url: str
    key: str
    pid: int
    data: Path
    ready_s: float

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port


@contextmanager
def served(config: str = "", *, kept: Path | None = None, module: str = "antiphon", python: str = sys.executable) -> Iterator[Served]:
    """Start a server with ``config`` (TOML), wait until it is ready, and drain it at the end; on the folder ``kept`` if given.

    ``module`` is what is run as ``antiphon``, ``python`` the interpreter that has it.
    """
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as made:
        folder = made if kept is None else str(kept)
        data = Path(folder)
        file = data / "antiphon.toml"
        file.write_text(config)
        command = [python, "-m", module, "serve", "--port", "0", "--data", folder, "--config", str(file)]
        start = time.perf_counter()
        with (data / "server.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            line = _first_line(process, data)
            ready_s = time.perf_counter() - start
            url = line.partition(": ")[2].partition("/?token=")[0]
            key = subprocess.run(
                [
                    python,
                    "-m",
                    "antiphon",
                    "keys",
                    "create",
                    "--name",
                    "bench",
                    "--scopes",
                    SCOPES,
                    "--data",
                    folder,
                    "--config",
                    str(file),
                ],
                check=True,
                capture_output=True,
                text=True,
            ).stdout.strip()
            yield Served(url=url, key=key, pid=process.pid, data=data, ready_s=ready_s)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port() -> int:
    """A port of loopback that nobody has now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _first_line(process: subprocess.Popen[str], data: Path) -> str:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], READY_SECONDS)
    line = process.stdout.readline() if ready else ""
    if not line.startswith("Antiphon is ready: "):
        raise RuntimeError(f"the server did not start:\n{(data / 'server.log').read_text()[-4000:]}")
    return line.strip()


@dataclass(slots=True)
class Answer:
    """One streamed answer as its client saw it. Seconds count from the send."""

    text: str = ""
    generation_id: str = ""
    ttft_s: float | None = None
    seconds: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    error: str = ""
    delta_s: list[float] = field(default_factory=list)


class ChatClient:
    """One user on one connection of its own."""

    def __init__(self, server: Served) -> None:
        self._connection = http.client.HTTPConnection(*server.address, timeout=120)
        self._headers = {"Authorization": f"Bearer {server.key}", "Content-Type": "application/json"}

    def close(self) -> None:
        self._connection.close()

    def new_conversation(self) -> str:
        self._connection.request("POST", "/v1/conversations", "{}", self._headers)
        response = self._connection.getresponse()
        body = json.loads(response.read())
        assert response.status == 201, body
        return str(body["id"])

    def ask(self, conversation_id: str, question: str, *, max_tokens: int, seed: int) -> Answer:
        """Send one message and read its stream to the end."""
        answer = Answer()
        body = json.dumps({"content": question, "params": {"max_tokens": max_tokens, "seed": seed}})
        start = time.perf_counter()
        self._connection.request("POST", f"/v1/conversations/{conversation_id}/messages", body, self._headers)
        response = self._connection.getresponse()
        if response.status != 200:
            answer.error = response.read().decode()
            return answer
        kind, data = "", ""
        for raw in response:
            line = raw.decode().rstrip("\n")
            if line.startswith("event: "):
                kind = line[7:]
            elif line.startswith("data: "):
                data = line[6:]
            elif not line and kind:
                _apply(answer, kind, json.loads(data), time.perf_counter() - start)
                kind, data = "", ""
        answer.seconds = time.perf_counter() - start
        return answer


def _apply(answer: Answer, kind: str, data: dict[str, object], elapsed_s: float) -> None:
    if kind == "meta":
        answer.generation_id = str(data["generation_id"])
    elif kind == "delta":
        answer.text += str(data["text"])
        answer.delta_s.append(elapsed_s)
        if answer.ttft_s is None:
            answer.ttft_s = elapsed_s
    elif kind == "done":
        answer.prompt_tokens = int(str(data["prompt_tokens"]))
        answer.cached_tokens = int(str(data["cached_tokens"]))
        answer.output_tokens = int(str(data["output_tokens"]))
    elif kind == "error":
        answer.error = str(data["code"])
