"""People who ask, stop and leave while replicas and servers die; afterwards usage is held against what the engines wrote down.

``python -m tests.faults.chaos [--seconds 300] [--seed 0]`` runs it by hand and prints the account.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import httpx

from tests.system.served import PLANS, TIMING, Server, eventually

TENANTS = ("acme", "birch", "cedar")
MODELS = ("small", "large")
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "seven", "herons", "watch", "from", "their", "nests"]
_POOL = """
[[pools]]
name = "{name}"
model = "reference-{name}"
engine = "reference"
replicas = 2
output_tokens_per_s = {rate}
prefill_tokens_per_s = 2500
context_tokens = 4096
blocks = 512
"""
_OWN_WORK = '[background]\ntitles = "words"\nsummaries = "sentences"\n'
"""What the server asks of engines for itself is on nobody's account."""

CONFIG = TIMING + _OWN_WORK + PLANS + _POOL.format(name="small", rate=120) + _POOL.format(name="large", rate=60)


_UNBILLED = 2
"""A completion is on the books before its second token is handed on."""


class CountedServer(Server):
    """Its replicas write into ``counted.jsonl``."""

    @property
    def counted(self) -> Path:
        return self.data / "counted.jsonl"

    def launch(self) -> None:
        self.data.mkdir(exist_ok=True)
        (self.data / "antiphon.toml").write_text(self.config)
        command = [sys.executable, "-m", "tests.faults.counted_server", "serve", "--port", str(self.port), "--data", str(self.data)]
        with (self.data / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *self._config_flag, "--log-format", "json"],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env={**os.environ, "ANTIPHON_COUNTED": str(self.counted)},
            )


@dataclass
class Tally:
    """What happened to whom, for the account's last line."""

    counts: Counter[str] = field(default_factory=Counter)
    completions: dict[str, int] = field(default_factory=dict)
    """How many pieces of text each completion's reader was given."""

    def add(self, what: str) -> None:
        self.counts[what] += 1


class Actor(threading.Thread):
    """One person: asks, stops, leaves, reads to the end; comes back when the server does."""

    def __init__(self, chaos: Chaos, key: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._chaos, self._key, self._random = chaos, key, Random(seed)
        self._sent = 0
        self.trouble: list[str] = []

    def run(self) -> None:
        while not self._chaos.over.is_set():
            try:
                with httpx.Client(
                    base_url=self._chaos.server.url, headers={"Authorization": f"Bearer {self._key}"}, timeout=20, trust_env=False
                ) as http:
                    while not self._chaos.over.is_set():
                        self._act(http)
            except (httpx.HTTPError, OSError):
                time.sleep(0.2)  # the server is away
            except Exception as error:  # noqa: BLE001 - told by the thread that waits
                self.trouble.append(repr(error))
                return

    def _act(self, http: httpx.Client) -> None:
        if self._random.random() < 0.35:
            self._complete(http)
            return
        conversation = http.post("/v1/conversations", json={"model": self._random.choice(MODELS)})
        if conversation.status_code != 201:
            time.sleep(0.1)
            return
        for _ in range(self._random.randint(1, 3)):
            if not self._send(http, str(conversation.json()["id"])):
                return

    def _send(self, http: httpx.Client, conversation: str) -> bool:
        self._sent += 1
        body = {
            "content": self._text(),
            "params": {"max_tokens": self._random.randint(1, 60)},
            "idempotency_key": f"{id(self)}-{self._sent}",
        }
        sent = http.post(f"/v1/conversations/{conversation}/messages", json=body, headers={"Accept": "application/json"})
        if sent.status_code != 202:
            self._chaos.tally.add(f"refused {sent.status_code}")
            time.sleep(0.1)
            return False
        generation = sent.json()["generation_id"]
        what = self._random.choice(("read", "read", "stop", "stop early", "leave"))
        self._chaos.tally.add(what)
        if what == "read":
            http.get(f"/v1/generations/{generation}/stream").read()
        elif what != "leave":
            time.sleep(self._random.uniform(0, 0.6 if what == "stop" else 0.08))
            http.post(f"/v1/generations/{generation}/cancel", json={})
        return what == "read"

    def _complete(self, http: httpx.Client) -> None:
        body = {
            "model": self._random.choice(MODELS),
            "messages": [{"role": "user", "content": self._text()}],
            "max_tokens": self._random.randint(1, 60),
            "stream": True,
        }
        patience = self._random.choice((0.02, 0.2, 60.0))
        with http.stream("POST", "/v1/chat/completions", json=body) as answer:
            if answer.status_code != 200:
                self._chaos.tally.add(f"refused {answer.status_code}")
                return
            generation, told = answer.headers["x-antiphon-generation"], self._chaos.tally.completions
            told[generation] = 0
            self._chaos.tally.add("completion" if patience > 1 else "completion left")
            until = time.monotonic() + patience
            for line in answer.iter_lines():
                told[generation] += '"content":' in line and '"content":""' not in line
                if time.monotonic() > until:
                    return

    def _text(self) -> str:
        return " ".join(self._random.choice(WORDS) for _ in range(self._random.choice((3, 30, 400, 1200))))


class Chaos:
    """One data folder, people of three tenants, and what dies under them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.server = CountedServer(folder / "data", CONFIG)
        self.over = threading.Event()
        self.tally = Tally()
        self._random = Random(seed)
        self.server.start()
        self.tenant_ids = {}
        self._owner = self.server.key()
        keys = []
        for tenant in TENANTS:
            self.tenant_ids[tenant] = self.server.command("tenants", "create", tenant)
            self.server.command("users", "create", f"{tenant} user", "--tenant", tenant)
            keys.append(self.server.command("keys", "create", "--name", tenant, "--user", f"{tenant} user"))
        self.actors = [Actor(self, keys[number % len(keys)], seed + number) for number in range(9)]

    def run(self, seconds: float) -> None:
        """Let them, for so long; then let all that was accepted come to its end, and stop the server."""
        for actor in self.actors:
            actor.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self._random.uniform(4, 12))
            self._strike(self._random.choice(("replica", "replica", "replica", "kill", "restart")))
        self.over.set()
        for actor in self.actors:
            actor.join(60)
            assert not actor.is_alive(), "an actor still waits"
            assert not actor.trouble, actor.trouble
        eventually(lambda: self._open() == 0, within_s=120, what="the end of all that was accepted")
        eventually(lambda: self._count("select count(*) from outbox where sent_at is null") == 0, within_s=30, what="the ledger")
        assert self.server.stop() == 0

    def _strike(self, what: str) -> None:
        self.tally.add(f"struck: {what}")
        if what == "replica":
            with httpx.Client(base_url=self.server.url, headers={"Authorization": f"Bearer {self._owner}"}, trust_env=False) as http:
                pools = http.get("/v1/admin/pools").json()
            pids = [replica["pid"] for pool in pools for replica in pool["replicas"] if replica["pid"] and replica["state"] == "ready"]
            if pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._random.choice(pids), signal.SIGKILL)
            return
        if what == "kill":
            self.server.kill_group()
        else:
            assert self.server.stop() == 0
        self.server.start()

    def _open(self) -> int:
        return self._count("select count(*) from generations where status in ('queued', 'running')")

    def _count(self, question: str) -> int:
        with contextlib.closing(sqlite3.connect(self.server.data / "antiphon.db", timeout=30)) as database:
            return int(database.execute(question).fetchone()[0])


@dataclass
class Attempt:
    """One request in one replica's life, as its engine wrote it down."""

    tenant: str
    prompt: int
    read: int = 0
    sampled: int = 0
    ended: dict[str, int] | None = None


def attempts_of(file: Path) -> dict[str, list[Attempt]]:
    """By generation, in order."""
    found: dict[tuple[int, int], Attempt] = {}
    of_generation: dict[str, list[Attempt]] = defaultdict(list)
    for line in file.read_text().splitlines():
        event = json.loads(line)
        name = (event["pid"], event["handle"])
        if name not in found:
            found[name] = Attempt(event["tenant"], event.get("prompt", 0))
            of_generation[event["generation"]].append(found[name])
        attempt = found[name]
        if event["kind"] == "read":
            attempt.read += event["tokens"]
        elif event["kind"] == "sampled":
            attempt.sampled += 1
        elif event["kind"] == "ended":
            attempt.ended = event
    return of_generation


@dataclass
class Account:
    """Sums by (tenant, model): what was billed exactly, and what the engines say of the same generations."""

    billed: dict[tuple[str, str], Counter[str]]
    computed: dict[tuple[str, str], Counter[str]]
    exact: int = 0
    estimated: int = 0
    uncomputed: int = 0
    read_again: int = 0
    cut_off: int = 0
    faults: list[str] = field(default_factory=list)


def account_of(chaos: Chaos) -> Account:
    """Every record of the ledger beside its engine's word. ``faults``: where the two differ, one sentence each."""
    attempts = attempts_of(chaos.server.counted)
    account = Account(defaultdict(Counter), defaultdict(Counter))
    for record in _records(chaos.server.data / "antiphon.db"):
        generation, tries = record["generation_id"], attempts.pop(record["generation_id"], [])
        known = [one for one in tries if one.ended is not None]
        if record["estimated"]:
            _check_estimate(account, record, tries)
            continue
        account.exact += 1
        place = (record["tenant_id"], record["model"])
        billed = (record["prompt_tokens"], record["cached_tokens"], record["output_tokens"])
        if not known:
            account.uncomputed += 1
            if any(billed) or any(one.sampled for one in tries):
                account.faults.append(f"{generation}: {billed} billed exactly, which no engine said; {tries}")
            continue
        last = known[-1]
        assert last.ended is not None
        figures = (_prompt_of(tries), *_figures(last)[1:])
        if billed != figures:
            account.faults.append(f"{generation}: {billed} billed, {figures} said by its engine; {tries}")
        _check(account, generation, last)
        account.read_again += sum(one.read for one in tries if one is not last)
        for sums, those in ((account.billed, billed), (account.computed, figures)):
            sums[place].update(dict(zip(("prompt", "cached", "output"), those, strict=True)))
    for generation, tries in attempts.items():
        if chaos.tally.completions.get(generation, _UNBILLED) < _UNBILLED:
            account.cut_off += 1
        elif generation != "probe":
            account.faults.append(f"{generation}: computed and never billed; {tries}")
    return account


def _check_estimate(account: Account, record: sqlite3.Row, tries: list[Attempt]) -> None:
    """Where an engine died before its last word, what readers were given is billed: never more than was computed."""
    account.estimated += 1
    if record["output_tokens"] > sum(one.sampled for one in tries):
        account.faults.append(f"{record['generation_id']}: {record['output_tokens']} tokens billed; {tries}")
    if record["prompt_tokens"] > max((one.prompt for one in tries), default=0):
        account.faults.append(f"{record['generation_id']}: {record['prompt_tokens']} of its prompt billed; {tries}")


def _figures(last: Attempt) -> tuple[int, int, int]:
    assert last.ended is not None
    return last.ended["prompt"], last.ended["cached"], last.ended["output"]


def _prompt_of(tries: list[Attempt]) -> int:
    """The prompt once, however often it was read: as far as the attempt got that came furthest."""
    return max(one.prompt if one.sampled else one.ended["prompt"] if one.ended else 0 for one in tries)


def _check(account: Account, generation: str, last: Attempt) -> None:
    """The engine's last word agrees with what its executor did."""
    assert last.ended is not None
    prompt, cached, output = _figures(last)
    if last.sampled != output - last.ended["already"]:
        account.faults.append(f"{generation}: {output} tokens said, {last.sampled} sampled; {last}")
    if last.read != prompt - cached:
        account.faults.append(f"{generation}: {last.read} tokens of the prompt computed, {prompt} - {cached} said; {last}")


def _records(file: Path) -> Iterator[sqlite3.Row]:
    with contextlib.closing(sqlite3.connect(file)) as database:
        database.row_factory = sqlite3.Row
        yield from database.execute("select * from ledger").fetchall()


def told(chaos: Chaos, account: Account) -> str:
    """What happened, in a few lines."""
    lines = [", ".join(f"{what}: {count}" for what, count in sorted(chaos.tally.counts.items()))]
    lines.append(
        f"{account.exact} records exact ({account.uncomputed} of them before any step), {account.estimated} estimated; "
        f"{account.read_again} prompt tokens computed again and not billed again; "
        f"{account.cut_off} completions are on nobody's bill, killed before anybody saw a second token"
    )
    names = {value: key for key, value in chaos.tenant_ids.items()}
    for place in sorted(account.billed):
        billed, computed = account.billed[place], account.computed[place]
        lines.append(f"{names.get(place[0], place[0])} {place[1]}: billed {dict(billed)}, computed {dict(computed)}")
    return "\n".join([*lines, *account.faults[:20]])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos") as folder:
        chaos = Chaos(Path(folder), asked.seed)
        try:
            chaos.run(asked.seconds)
            account = account_of(chaos)
            print(told(chaos, account))
        finally:
            chaos.server.end()
    return 1 if account.faults or account.billed != account.computed else 0


if __name__ == "__main__":
    sys.exit(main())
