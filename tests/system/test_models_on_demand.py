"""Three models and memory for one, over HTTP: everybody is served and told that the model starts, and when; nothing is broken off."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from tests.system.served import TERMINAL, TIMING, Person, Server, eventually, started

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

NAMES = ("a", "b", "c")
POOL = """
[[pools]]
name = "{name}"
model = "reference-{name}"
engine = "reference"
output_tokens_per_s = 60
prefill_tokens_per_s = 20000
context_tokens = 1024
blocks = 256
memory_bytes = 60
"""
CONFIG = f"""
{TIMING}
[[plans]]
name = "free"
models = ["a", "b", "c"]
tokens_per_minute = 100000000
requests_per_minute = 1000000
concurrency = 1000
max_output_tokens = 900
ttft_limit_ms = 1000

[residency]
memory_bytes = 100
tenure_seconds = 1

[background]
titles = "words"
{"".join(POOL.format(name=name) for name in NAMES)}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with started(tmp_path_factory.mktemp("on-demand") / "data", CONFIG) as made:
        yield made


@pytest.fixture
def person(server: Server) -> Person:
    return server.person()


@dataclass(slots=True)
class Told:
    """What one reader was told, each thing at its time."""

    at: list[float] = field(default_factory=list[float])
    events: list[tuple[str, dict[str, object]]] = field(default_factory=list[tuple[str, dict[str, object]]])

    def all(self, kind: str) -> list[dict[str, object]]:
        return [data for told, data in self.events if told == kind]

    def first(self, kind: str) -> float:
        return next(at for at, (told, _) in zip(self.at, self.events, strict=True) if told == kind)

    @property
    def end(self) -> dict[str, object]:
        kinds = [kind for kind, _ in self.events if kind in TERMINAL]
        assert len(kinds) == 1, kinds
        return self.events[-1][1]


@dataclass(frozen=True, slots=True)
class Asked:
    generation_id: str
    reading: Future[Told]

    def told(self) -> Told:
        """All that its reader was told, once it has ended."""
        return self.reading.result()


class Readers:
    """Each turn is read by a thread of its own, to its end."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads

    def ask(self, person: Person, model: str, tokens: int) -> Asked:
        sent = person.send(person.new_conversation(), f"hello {model}", model=model, params={"max_tokens": tokens})
        return Asked(sent["generation_id"], self._threads.submit(read, person, sent["generation_id"]))


@pytest.fixture
def readers() -> Iterator[Readers]:
    with ThreadPoolExecutor(32) as threads:
        yield Readers(threads)


def read(person: Person, generation_id: str) -> Told:
    told = Told()
    for event in person.events(generation_id):
        told.at.append(time.monotonic())
        told.events.append((event.kind, json.loads(event.data)))
    return told


def top(server: Server) -> str:
    command = [sys.executable, "-m", "antiphon", "top", "--once", "--url", server.url]
    environment = {**os.environ, "ANTIPHON_KEY": server.key()}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def presences(person: Person) -> dict[str, str]:
    return {pool["name"]: pool["presence"] for pool in person.http.get("/v1/admin/pools").json()}


def left(person: Person) -> tuple[int, int, int]:
    """Those that wait, those that run, and blocks that are held."""
    pools = person.http.get("/v1/admin/pools").json()
    replicas = [replica for pool in pools for replica in pool["replicas"]]
    waiting = sum(band["waiting"] for pool in pools for band in pool["queue"])
    return waiting, sum(one["running"] + one["waiting"] for one in replicas), sum(one["blocks"]["held"] for one in replicas)


def absent(person: Person) -> str:
    """A model that is not there."""
    return next(name for name, presence in presences(person).items() if presence == "absent")


def pid_while_it_loads(person: Person, model: str) -> int:
    found: list[int] = []

    def loads() -> bool:
        (pool,) = [one for one in person.http.get("/v1/admin/pools").json() if one["name"] == model]
        found[:] = [one["pid"] for one in pool["replicas"] if one["pid"] is not None and pool["presence"] == "loading"]
        return bool(found)

    eventually(loads, within_s=20, what=f"{model} is being loaded")
    return found[0]


def test_who_asks_for_another_model_waits_for_it_and_breaks_nothing_off(server: Server, person: Person, readers: Readers) -> None:
    eventually(lambda: "resident" in presences(person).values(), within_s=10, what="one is there")
    here = next(name for name, presence in presences(person).items() if presence == "resident")
    other, third = (name for name in NAMES if name != here)
    long = readers.ask(person, here, 240)
    eventually(lambda: left(person)[1] == 1, within_s=5, what="it writes")
    waits = readers.ask(person, other, 20)
    eventually(lambda: presences(person)[here] in {"leaving", "resident"} and left(person)[0] == 1, within_s=5, what="the other waits")
    models = {model["id"]: model for model in person.http.get("/v1/models").json()["data"]}
    assert (models[here]["loaded"], models[other]["loaded"], models[third]["loaded"]) == (True, False, False)
    assert (models[other]["status"], models[other]["load"]) == ("ready", "high")
    lines = {line.split()[0]: line for line in top(server).splitlines() if not line.startswith(" ")}
    assert "not in memory" in lines[third]
    assert "answers in about" in lines[third]

    told, first = waits.told(), long.told()
    assert (first.end["finish_reason"], first.end["output_tokens"]) == ("length", 240)
    assert told.first("delta") > first.first("done"), "room for one"
    assert (told.end["finish_reason"], told.end["output_tokens"]) == ("length", 20)
    starting = [data for data in told.all("status") if data["state"] == "starting"]
    assert len(starting) >= 2, "told again each second"
    assert all(data["position"] == 1 for data in starting)
    shown_s, waited_s = int(str(starting[0]["eta_ms"])) / 1000, told.first("delta") - told.at[0]
    assert 0.3 * waited_s <= shown_s <= 3 * waited_s + 1, (shown_s, waited_s)
    assert presences(person) == {here: "absent", other: "resident", third: "absent"}
    eventually(lambda: left(person) == (0, 0, 0), within_s=5, what="nothing is left of them")


def test_a_stop_while_the_model_is_loaded(person: Person, readers: Readers) -> None:
    model = absent(person)
    asked = readers.ask(person, model, 50)
    pid_while_it_loads(person, model)
    assert person.cancel(asked.generation_id).json()["status"] == "cancelled"
    told = asked.told()
    assert (told.end["finish_reason"], told.end["output_tokens"], told.all("delta")) == ("cancelled", 0, [])
    eventually(lambda: left(person) == (0, 0, 0), within_s=5, what="nothing is left of it")
    again = readers.ask(person, model, 5).told()
    assert again.end["finish_reason"] == "length"


@pytest.mark.slow
def test_a_replica_that_is_killed_while_it_loads_is_started_again(person: Person, readers: Readers) -> None:
    model = absent(person)
    asked = readers.ask(person, model, 20)
    os.kill(pid_while_it_loads(person, model), signal.SIGKILL)
    told = asked.told()
    assert (told.end["finish_reason"], told.end["output_tokens"]) == ("length", 20)
    assert person.http.get("/healthz").status_code == 200
    assert left(person) == (0, 0, 0)


@pytest.mark.slow
def test_twenty_that_want_three_models_are_all_served_and_the_models_do_not_storm(server: Server, person: Person, readers: Readers) -> None:
    before = server.data.joinpath("server.log").read_text().count('"move": "load"')
    began = time.monotonic()
    asked = [readers.ask(person, NAMES[number % 3], 20 + number) for number in range(20)]
    told = [one.told() for one in asked]
    seconds = time.monotonic() - began
    for number, one in enumerate(told):
        assert (one.end["finish_reason"], one.end["output_tokens"]) == ("length", 20 + number)
        assert all(data["model"] == f"reference-{NAMES[number % 3]}" for data in one.all("meta"))
    loads = server.data.joinpath("server.log").read_text().count('"move": "load"') - before
    assert 2 <= loads <= 4 + seconds, f"{loads} loads in {seconds:.1f} s"
    eventually(lambda: left(person) == (0, 0, 0), within_s=5, what="nothing is left")
    assert list(presences(person).values()).count("resident") == 1
