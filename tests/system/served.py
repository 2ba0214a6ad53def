"""A real server as a child process, and one person's HTTP client for it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from antiphon.client.sse import ServerEvent, SseParser
from tests.awake import awake_s

TERMINAL = {"done", "error"}
LEASE_SECONDS = 2.0
TIMING = f"""
[timing]
lease_seconds = {LEASE_SECONDS}
heartbeat_seconds = 0.5
sweep_seconds = 0.5
checkpoint_seconds = 0.5
drain_seconds = 5
"""
PLANS = """
[[plans]]
name = "free"
tokens_per_minute = 100000000
requests_per_minute = 1000000
concurrency = 1000
max_output_tokens = 1024
"""


def reference_config(*, output_tokens_per_s: float = 50.0, extra: str = "", vocabulary: str = "ascii") -> str:
    """A configuration with one reference pool, generous limits, and short timings."""
    return f"""
{TIMING}
{PLANS}
[[pools]]
name = "small"
model = "reference"
engine = "reference"
output_tokens_per_s = {output_tokens_per_s}
prefill_tokens_per_s = 20000
context_tokens = 4096
blocks = 2048
vocabulary = "{vocabulary}"
{extra}
"""


@dataclass(slots=True)
class Server:
    """One data folder and the process that serves it; ``start`` may be called again after the process is gone.

    ``port`` 0 lets each start pick one.
    """

    data: Path
    config: str
    port: int = 0
    process: subprocess.Popen[str] | None = None
    url: str = ""
    link: str = ""
    _keys: dict[str, str] = field(default_factory=dict[str, str])
    _clients: list[httpx.Client] = field(default_factory=list[httpx.Client])

    def start(self, *, timeout_s: float = 60.0) -> None:
        """Start it, and wait until it is ready."""
        self.launch()
        assert self.process is not None
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], timeout_s)
        line = self.process.stdout.readline().strip() if ready else ""
        assert line.startswith("Antiphon is ready: "), self.log()
        self.link = line.removeprefix("Antiphon is ready: ")
        self.url = self.link.partition("/?token=")[0]

    def launch(self) -> None:
        """Start it, and wait for nothing."""
        self.data.mkdir(exist_ok=True)
        (self.data / "antiphon.toml").write_text(self.config)
        log = (self.data / "server.log").open("ab")
        with log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "antiphon",
                    "serve",
                    "--port",
                    str(self.port),
                    "--data",
                    str(self.data),
                    *self._config_flag,
                    "--log-format",
                    "json",
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    @property
    def _config_flag(self) -> list[str]:
        return ["--config", str(self.data / "antiphon.toml")]

    def log(self) -> str:
        return (self.data / "server.log").read_text()[-6000:]

    def command(self, *arguments: str) -> str:
        """Run an ``antiphon`` command beside the server; its stdout, stripped."""
        done = subprocess.run(
            [sys.executable, "-m", "antiphon", *arguments, "--data", str(self.data), *self._config_flag],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def key(self, user: str | None = None) -> str:
        """An API key with every scope, of the owner or of ``user``, who is made when new."""
        name = user or "owner"
        if name not in self._keys:
            flags = []
            if user is not None:
                self.command("users", "create", user)
                flags = ["--user", user]
            self._keys[name] = self.command("keys", "create", "--name", name, "--scopes", "chat,usage,admin,metrics", *flags)
        return self._keys[name]

    def person(self, user: str | None = None) -> Person:
        client = httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.key(user)}"}, timeout=30)
        self._clients.append(client)
        return Person(self, client)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=30)
        self._closed()
        return code

    def kill_group(self) -> None:
        """SIGKILL to the server and everything it started."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=30)
        self._closed()

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(timeout=30)
        self._closed()

    def _closed(self) -> None:
        while self._clients:
            self._clients.pop().close()
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()

    def rows(self) -> dict[str, int]:
        """How many rows each table has; a search index is not counted by itself, but through the tables it keeps its entries in."""
        with contextlib.closing(sqlite3.connect(f"file:{self.data / 'antiphon.db'}?mode=ro", uri=True)) as database:
            tables = [
                row[0]
                for row in database.execute(
                    "select name from sqlite_master where type = 'table' and name not like 'sqlite_%' and sql not like 'create virtual%'"
                )
            ]
            return {table: database.execute(f'select count(*) from "{table}"').fetchone()[0] for table in tables}


@dataclass(slots=True)
class Person:
    """One caller of the API."""

    server: Server
    http: httpx.Client

    def new_conversation(self) -> str:
        answer = self.http.post("/v1/conversations", json={})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def send(self, conversation_id: str, content: str | None, **fields: object) -> dict[str, str]:
        """Accept a turn and return its ids."""
        body = {"content": content, **fields}
        answer = self.http.post(f"/v1/conversations/{conversation_id}/messages", json=body, headers={"Accept": "application/json"})
        assert answer.status_code == 202, answer.text
        return dict(answer.json())

    def continue_message(self, message_id: str, **fields: object) -> dict[str, str]:
        answer = self.http.post(f"/v1/messages/{message_id}/continue", json=fields, headers={"Accept": "application/json"})
        assert answer.status_code == 202, answer.text
        return dict(answer.json())

    def events(self, generation_id: str, *, after: str | None = None) -> Iterator[ServerEvent]:
        """The generation's events as they come."""
        headers = {} if after is None else {"Last-Event-ID": after}
        with self.http.stream("GET", f"/v1/generations/{generation_id}/stream", headers=headers) as response:
            assert response.status_code == 200, response.status_code
            parser = SseParser()
            for piece in response.iter_raw():
                yield from parser.push(piece)

    def read_until(self, generation_id: str, enough: Callable[[Reading], bool]) -> Reading:
        """Read until ``enough`` says so, then leave; at the end of the stream at the latest."""
        reading = Reading()
        with contextlib.closing(self.events(generation_id)) as events:
            for event in events:
                reading.take(event)
                if enough(reading):
                    break
        return reading

    def read(self, generation_id: str) -> Reading:
        return self.read_until(generation_id, lambda reading: reading.ended)

    def message(self, conversation_id: str, message_id: str) -> dict[str, object]:
        """A message as the conversation's path shows it."""
        answer = self.http.get(f"/v1/conversations/{conversation_id}/messages", params={"leaf": message_id, "limit": 100})
        assert answer.status_code == 200, answer.text
        return next(message for message in answer.json()["data"] if message["id"] == message_id)

    def generation(self, generation_id: str) -> dict[str, object]:
        answer = self.http.get(f"/v1/generations/{generation_id}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def cancel(self, generation_id: str, seen: str | None = None) -> httpx.Response:
        return self.http.post(f"/v1/generations/{generation_id}/cancel", json={} if seen is None else {"seen_id": seen})

    def gauge(self, name: str) -> float:
        """The sum of a metric over its labels."""
        text = self.http.get("/metrics").text
        return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} ")))


@dataclass(slots=True)
class Reading:
    """What one reader has on screen."""

    text: str = ""
    kinds: list[str] = field(default_factory=list[str])
    last_id: str = ""
    end: dict[str, object] = field(default_factory=dict[str, object])

    def take(self, event: ServerEvent) -> None:
        """Show one event. The text only grows, except where the server retracts it."""
        data = json.loads(event.data)
        self.kinds.append(event.kind)
        self.last_id = event.id
        if event.kind == "delta":
            self.text += data["text"]
        elif event.kind == "snapshot":
            assert data["text"].startswith(self.text), "shown text changed"
            self.text = data["text"]
        elif event.kind in TERMINAL:
            self.end = data

    @property
    def ended(self) -> bool:
        return bool(self.kinds) and self.kinds[-1] in TERMINAL


def eventually(check: Callable[[], bool], *, within_s: float, what: str) -> None:
    """Wait until ``check`` holds; fails after ``within_s`` awake seconds."""
    start = awake_s()
    while not check():
        assert awake_s() - start < within_s, f"not within {within_s} s: {what}"
        time.sleep(0.02)


@contextlib.contextmanager
def started(folder: Path, config: str) -> Iterator[Server]:
    """A server on ``folder``, for as long as the context lasts."""
    server = Server(folder, config)
    server.start()
    try:
        yield server
    finally:
        server.end()
