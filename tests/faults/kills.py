"""kill -9 at each crash point of an answer's life, again and again, with readers attached; then every promise is checked.

``python -m tests.faults.kills [--rounds 20] [--points C6,C9]``. Rounds that passed at this commit are remembered.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx

from antiphon.client.errors import ProtocolError
from tests.system.served import Person, Reading, Server, reference_config

SERVER_POINTS = ("C1", "C2", "C3", "C4", "C5", "C6", "C6t", "C7", "C8", "C9", "C10", "C11", "C12", "C13", "C14", "C15", "C16")
"""C6t: in the middle of the journal's write."""
REPLICA_POINTS = ("R4", "R5", "R6", "R9")
TOKENS = 24
QUESTION = "What is kept?"
_LONGEST_ROUND_S = 40.0
_REPEATED = {"C6", "C6t"}


class KilledServer(Server):
    """Always on the same port, started with a crash point."""

    __slots__ = ("arm", "point", "port")

    def __init__(self, folder: Path, point: str, broker: str = "") -> None:
        config = reference_config(output_tokens_per_s=150, vocabulary="nasty")
        if broker:
            config = f'[events]\nurl = "kafka://{broker}"\n{config}'
        config = config.replace("checkpoint_seconds = 0.5", "checkpoint_seconds = 0.05").replace(
            "heartbeat_seconds = 0.5", "heartbeat_seconds = 0.3"
        )
        super().__init__(folder, config)
        self.arm = folder / "arm"
        self.point = point
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])

    def start(self, *, timeout_s: float = 60.0) -> None:
        self.data.mkdir(exist_ok=True)
        self.arm.unlink(missing_ok=True)
        (self.data / "antiphon.toml").write_text(self.config)
        command = [sys.executable, "-m", "tests.faults.killed_server", self.point, str(self.arm), "serve", "--port", str(self.port)]
        command += ["--data", str(self.data), *self._config_flag, "--log-format", "json"]
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()
        with (self.data / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line.startswith("Antiphon is ready: "), self.log()
        self.url = f"http://127.0.0.1:{self.port}"

    def gone(self) -> None:
        """Wait for the kill; take what is left of the group."""
        assert self.process is not None
        self.process.wait(timeout=_LONGEST_ROUND_S)
        assert self.process.returncode == -signal.SIGKILL, self.log()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


@dataclass
class Turn:
    """One question, sent until it is accepted, and a reader that comes back until it has the end."""

    server: KilledServer
    person: Person
    conversation: str
    key: str
    sent: dict[str, str] = field(default_factory=dict)
    acknowledged: dict[str, str] = field(default_factory=dict)
    reading: Reading = field(default_factory=Reading)
    trouble: list[str] = field(default_factory=list)

    def run(self) -> None:
        try:
            self._send()
            while not self.reading.ended:
                self._read()
        except Exception as error:  # noqa: BLE001 - told by the thread that waits
            self.trouble.append(repr(error))

    def _send(self) -> None:
        body = {"content": QUESTION, "params": {"max_tokens": TOKENS, "seed": 1}, "idempotency_key": self.key}
        while True:
            try:
                answer = self.person.http.post(
                    f"/v1/conversations/{self.conversation}/messages", json=body, headers={"Accept": "application/json"}
                )
            except httpx.HTTPError:
                time.sleep(0.05)
                continue
            if answer.status_code == 503:
                time.sleep(0.1)
                continue
            assert answer.status_code in {200, 202}, answer.text
            self.acknowledged = dict(answer.json())
            return

    def _read(self) -> None:
        try:
            with contextlib.closing(self.person.events(self.acknowledged["generation_id"], after=self.reading.last_id or None)) as events:
                for event in events:
                    if event.kind in {"status", "reconnect", "title"}:
                        continue
                    self.reading.take(event)
        except (httpx.HTTPError, ProtocolError):
            time.sleep(0.03)


class Harness:
    """One data folder through many deaths."""

    def __init__(self, folder: Path, points: Sequence[str], seed: int, broker: str = "") -> None:
        self._points = list(points)
        self._random = Random(seed)
        self._server = KilledServer(folder, self._points[0], broker)
        self._server.start()
        headers = {"Authorization": f"Bearer {self._server.key()}"}
        self._person = Person(
            self._server, httpx.Client(base_url=self._server.url, headers=headers, timeout=20, limits=httpx.Limits(max_connections=50))
        )
        self._rounds = 0
        self._ended: dict[str, str] = {}
        try:
            first = self._turns(1)[0]
            assert first.reading.text, (first.reading.kinds, self._server.log())
        except BaseException:
            self.close()
            raise
        self._undisturbed = first.reading.text

    def close(self) -> None:
        self._person.http.close()
        self._server.end()

    def round(self, number: int) -> None:
        """Die at the ``number``-th point and check what is left; the next point is armed in the next life."""
        point = self._points[number]
        after = self._random.randrange(0, 9) if point in _REPEATED else 0
        if point == "R6":
            after = self._random.randrange(0, 5)
        following = self._points[number + 1] if number + 1 < len(self._points) else "none"
        self._turns(3, point, after, following)

    def _turns(self, count: int, point: str = "none", after: int = 0, following: str = "none") -> list[Turn]:
        self._rounds += 1
        conversations = [self._person.new_conversation() for _ in range(count)]
        turns = [Turn(self._server, self._person, one, f"{self._rounds}-{at}") for at, one in enumerate(conversations)]
        if point not in {"none", "C16"}:
            self._server.arm.write_text(str(after))
        threads = [threading.Thread(target=turn.run, daemon=True) for turn in turns]
        for thread in threads:
            thread.start()
        stopper = None
        if point == "C15":
            stopper = threading.Thread(target=self._stop, args=(turns[0],), daemon=True)
            stopper.start()
        if point.startswith("R"):
            self._until_unlinked()
        if point == "C16":
            # Die once with work under way; the next life claims it, and dies of that.
            self._until_text(turns[0])
            os.killpg(self._process.pid, signal.SIGKILL)
            self._server.gone()
            self._restart("C16", armed=True)
        if point.startswith("C"):
            self._server.gone()
        if point != "none" and (point.startswith("C") or following != self._server.point):
            self._restart(following, stop=point.startswith("R"), threads=threads)
        for thread in [*threads, *([stopper] if stopper else [])]:
            thread.join(_LONGEST_ROUND_S)
            assert not thread.is_alive(), f"{point}: a reader still waits\n{self._server.log()}"
        for at, turn in enumerate(turns):
            assert not turn.trouble, (point, turn.trouble)
            self._check(point, turn, cancelled=point == "C15" and at == 0)
        return turns

    @property
    def _process(self) -> subprocess.Popen[str]:
        assert self._server.process is not None
        return self._server.process

    def _restart(self, point: str, *, armed: bool = False, stop: bool = False, threads: Sequence[threading.Thread] = ()) -> None:
        if stop:
            for thread in threads:
                thread.join(_LONGEST_ROUND_S)
            os.killpg(self._process.pid, signal.SIGKILL)
            self._server.gone()
        self._server.point = point
        if armed:
            self._start_doomed()
        else:
            self._server.start()

    def _start_doomed(self) -> None:
        """A life that ends before it is ready, perhaps."""
        (self._server.data / "armed").write_text("0")
        real, self._server.arm = self._server.arm, self._server.data / "armed"
        command = [
            sys.executable,
            "-m",
            "tests.faults.killed_server",
            "C16",
            str(self._server.arm),
            "serve",
            "--port",
            str(self._server.port),
        ]
        with (self._server.data / "server.log").open("ab") as log:
            self._server.process = subprocess.Popen(
                [*command, "--data", str(self._server.data), *self._server._config_flag],
                stdout=subprocess.DEVNULL,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._server.arm = real

    def _until_unlinked(self) -> None:
        end = time.monotonic() + _LONGEST_ROUND_S
        while self._server.arm.exists():
            assert time.monotonic() < end, f"the point was not reached\n{self._server.log()}"
            time.sleep(0.01)

    def _until_text(self, turn: Turn) -> None:
        end = time.monotonic() + _LONGEST_ROUND_S
        while not turn.reading.text and time.monotonic() < end:
            time.sleep(0.002)

    def _stop(self, turn: Turn) -> None:
        self._until_text(turn)
        with contextlib.suppress(httpx.HTTPError):
            self._person.cancel(turn.acknowledged["generation_id"], turn.reading.last_id)

    def _check(self, point: str, turn: Turn, *, cancelled: bool) -> None:
        ids, reading = turn.acknowledged, turn.reading
        terminal = [kind for kind in reading.kinds if kind in {"done", "error"}]
        assert len(terminal) == 1, (point, reading.kinds)
        answer = self._person.message(turn.conversation, ids["message_id"])
        question = self._person.message(turn.conversation, ids["user_message_id"])
        assert question["content"] == QUESTION
        assert answer["content"] == reading.text, (point, answer["content"], reading.text)
        with contextlib.closing(sqlite3.connect(self._server.data / "antiphon.db")) as database:
            records = database.execute("select count(*) from outbox where dedup_key = ?", [ids["generation_id"]]).fetchone()[0]
            generations = database.execute("select count(*) from generations where conversation_id = ?", [turn.conversation]).fetchone()[0]
        assert (records, generations) == (1, 1), point
        self._accounted(point, ids["generation_id"])
        if self._rounds == 1:
            return
        if point.startswith("R") and answer["status"] == "interrupted":
            assert reading.text and self._undisturbed.startswith(reading.text)
        elif cancelled and answer["status"] == "cancelled":
            assert self._undisturbed.startswith(reading.text)
        else:
            assert answer["status"] == "complete", (point, answer)
            assert reading.text == self._undisturbed, point

    def _accounted(self, point: str, generation_id: str) -> None:
        """What it cost is in the ledger, once; totals agree; nothing is held for it any more."""
        end = time.monotonic() + _LONGEST_ROUND_S
        while True:
            with contextlib.closing(sqlite3.connect(self._server.data / "antiphon.db")) as database:
                kept = database.execute("select count(*) from ledger where generation_id = ?", [generation_id]).fetchone()[0]
                all_kept, waiting = (
                    database.execute(f"select count(*) from {rows}").fetchone()[0]
                    for rows in ("ledger where purpose = 'answer'", "outbox where sent_at is null")
                )
                counted = database.execute("select coalesce(sum(generations), 0) from usage_days").fetchone()[0]
            limits = {one["name"]: one["used"] for one in self._person.http.get("/v1/usage").json()["limits"]}
            if kept == 1 and waiting == 0 and counted == all_kept and limits["concurrency"] == 0:
                return
            assert kept <= 1, point
            assert time.monotonic() < end, (point, kept, waiting, counted, all_kept, limits)
            time.sleep(0.05)


def run(points: Sequence[str], *, seed: int = 0, done: Any = None, broker: str = "") -> int:
    """One round per entry of ``points``; ``done`` is called with each that passed. ``broker``: usage goes over it."""
    with tempfile.TemporaryDirectory(prefix="kills") as folder:
        harness = Harness(Path(folder) / "data", points, seed, broker)
        try:
            for number, point in enumerate(points):
                harness.round(number)
                if done is not None:
                    done(point)
        finally:
            harness.close()
    return len(points)


def all_points(server_rounds: int, replica_rounds: int) -> list[str]:
    return [*SERVER_POINTS * server_rounds, *REPLICA_POINTS * replica_rounds]


def remembered(record: Path) -> dict[str, int]:
    return json.loads(record.read_text()) if record.exists() else {}


def run_remembering(wanted: Sequence[str], record: Path) -> dict[str, int]:
    """Run what ``record`` does not tell of yet; how often each point has passed."""
    passed = remembered(record)
    left: list[str] = []
    for point in dict.fromkeys(wanted):
        left += [point] * (list(wanted).count(point) - passed.get(point, 0))
    record.parent.mkdir(exist_ok=True)

    def done(point: str) -> None:
        passed[point] = passed.get(point, 0) + 1
        record.write_text(json.dumps(passed))
        print(f"{sum(passed.values())}/{len(wanted)} {point}", file=sys.stderr, flush=True)

    if left:
        run(left, seed=sum(passed.values()), done=done)
    return passed


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--replica-rounds", type=int, default=5)
    parser.add_argument("--points", default="")
    asked = parser.parse_args()
    wanted = all_points(asked.rounds, asked.replica_rounds)
    if asked.points:
        wanted = [point for point in wanted if point in asked.points.split(",")]
    start = time.monotonic()
    passed = run_remembering(wanted, record_of_this_commit())
    print(json.dumps({"rounds": passed, "seconds": round(time.monotonic() - start)}))


def record_of_this_commit() -> Path:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    return Path(".test-all") / f"kills-{commit or 'none'}.json"


if __name__ == "__main__":
    main()
