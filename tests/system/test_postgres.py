"""A server whose store is PostgreSQL: it serves, it is looked after, and it outlives its database's outages."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from antiphon.client.sse import ServerEvent
from tests.postgres_server import PostgresServer
from tests.system.served import LEASE_SECONDS, Person, Reading, Server, eventually, reference_config
from tests.system.test_doctor import found

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

MakeServer = Callable[[str], Server]


def config_on(url: str, *, output_tokens_per_s: float = 50.0) -> str:
    return f'{reference_config(output_tokens_per_s=output_tokens_per_s)}\n[store]\nurl = "{url}"\n'


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """One that may be killed."""
    server = PostgresServer()
    server.start()
    yield server
    server.stop()


def antiphon(server: Server, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "antiphon", *arguments, "--data", str(server.data), "--config", str(server.data / "antiphon.toml")]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def records(server: PostgresServer, database: str = "postgres") -> list[str]:
    with psycopg.connect(server.url(database)) as connection:
        return [row[0] for row in connection.execute("SELECT generation_id FROM ledger").fetchall()]


def refused(person: Person, conversation: str) -> bool:
    """Whether a message is refused as it should be while the database is away."""
    body, headers = {"content": "Now?"}, {"Accept": "application/json", "Idempotency-Key": "now"}
    answer = person.http.post(f"/v1/conversations/{conversation}/messages", json=body, headers=headers)
    assert answer.status_code in {202, 503}, answer.text
    if answer.status_code == 503:
        assert (answer.json()["code"], answer.headers["retry-after"]) == ("store_unavailable", "2")
        assert "127.0.0.1" not in answer.text
    return answer.status_code == 503


def test_it_serves_a_chat(make_server: MakeServer, postgres_server: PostgresServer) -> None:
    server = make_server(config_on(postgres_server.create_database("chat")))
    person = server.person()
    conversation = person.new_conversation()
    sent = person.send(conversation, "Where do herons winter?", params={"max_tokens": 5})
    reading = person.read(sent["generation_id"])
    assert reading.kinds[-1] == "done"
    assert person.message(conversation, sent["message_id"])["content"] == reading.text
    hits = person.http.get("/v1/search", params={"q": "heron"}).json()["data"]
    assert {hit["conversation_id"] for hit in hits} == {conversation}
    assert not (server.data / "antiphon.db").exists()
    assert server.stop() == 0


@pytest.mark.slow
def test_it_is_looked_after(make_server: MakeServer, postgres_server: PostgresServer, tmp_path: Path) -> None:
    url = postgres_server.create_database("kept_well")
    server = make_server(config_on(url.replace("antiphon@", "antiphon:pass-word@")))
    person = server.person()
    conversation = person.new_conversation()
    reading = person.read(person.send(conversation, "Anybody?", params={"max_tokens": 5})["generation_id"])
    state, detail = found(server)["store"]
    assert state == "warn" and "it may forget what it accepted" in detail, "the tests' server does not sync"
    assert "PostgreSQL 1" in detail and "schema 00" in detail and "pass-word" not in detail
    for command in ("backup", "restore"):
        done = antiphon(server, command, str(tmp_path / "file"))
        assert done.returncode == 2 and f"pg_{'dump' if command == 'backup' else 'restore'}" in done.stderr
        assert "pass-word" not in done.stderr
    second = Server(tmp_path / "second", server.config)
    second.data.mkdir()
    (second.data / "antiphon.toml").write_text(server.config)
    done = antiphon(second, "serve", "--port", "0")
    assert done.returncode == 2 and "another server works on this database" in done.stderr

    assert server.stop() == 0
    assert "is up to date" in server.command("migrate")
    postgres_server.execute("UPDATE alembic_version SET version_num = '0011'", "DROP TABLE open_usage", database="kept_well")
    done = antiphon(server, "serve", "--port", "0")
    assert done.returncode == 2 and "then run antiphon migrate" in done.stderr
    assert "from schema 0011 to" in server.command("migrate")
    server.start()
    again = server.person().http.get(f"/v1/conversations/{conversation}/messages").json()["data"]
    assert [message["content"] for message in again] == ["Anybody?", reading.text]


@pytest.mark.slow
def test_a_database_that_is_not_there_is_said_at_the_start(tmp_path: Path, free_port: int) -> None:
    server = Server(tmp_path / "data", config_on(f"postgresql://me:pass-word@127.0.0.1:{free_port}/chat"))
    server.data.mkdir()
    (server.data / "antiphon.toml").write_text(server.config)
    done = antiphon(server, "serve", "--port", "0")
    assert done.returncode != 0 and "refused" in done.stderr and "pass-word" not in done.stderr
    assert "Traceback" not in done.stderr
    assert found(server)["store"][0] == "fail"


def grow(reading: Reading, events: Iterator[ServerEvent], length: int | None) -> None:
    """Read on until there are that many characters, or to the end."""
    while not reading.ended and (length is None or len(reading.text) < length):
        reading.take(next(events))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "restarted"])
def test_an_answer_outlives_its_database(make_server: MakeServer, own_server: PostgresServer, how: str) -> None:
    server = make_server(config_on(own_server.url(), output_tokens_per_s=20))
    person = server.person()
    conversation, other = person.new_conversation(), person.new_conversation()
    turns = [person.send(conversation, "Go on", params={"max_tokens": 150}), person.send(other, "Go on", params={"max_tokens": 20})]
    third = person.new_conversation()
    reading, events = Reading(), person.events(turns[0]["generation_id"])
    grow(reading, events, 20)
    if how == "killed":
        own_server.kill()
        assert refused(person, third)
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        eventually(lambda: httpx.get(f"{server.url}/readyz").status_code == 503, within_s=10, what="not ready")
        grow(reading, events, 300)  # without its database
        time.sleep(2 * LEASE_SECONDS)
        own_server.start()
    else:
        own_server.restart()
    eventually(lambda: not refused(person, third), within_s=10, what="messages are taken again")
    eventually(lambda: httpx.get(f"{server.url}/readyz").status_code == 200, within_s=10, what="ready again")
    for place, sent in zip((conversation, other), turns, strict=True):
        whole = person.read(sent["generation_id"])
        assert whole.kinds[-1] == "done"
        assert person.message(place, sent["message_id"])["content"] == whole.text
        assert whole.text.startswith(reading.text) or sent is not turns[0]
        assert person.generation(sent["generation_id"])["status"] == "complete"
    grow(reading, events, None)
    assert reading.text == person.message(conversation, turns[0]["message_id"])["content"]
    eventually(lambda: {sent["generation_id"] for sent in turns} <= set(records(own_server)), within_s=10, what="both are in the ledger")
    assert len(records(own_server)) == len(set(records(own_server)))


@pytest.mark.slow
def test_ten_kills_of_the_database_lose_no_turn_that_was_accepted(make_server: MakeServer, own_server: PostgresServer) -> None:
    server = make_server(config_on(own_server.url(), output_tokens_per_s=40))
    person = server.person()
    conversations = [person.new_conversation() for _ in range(4)]
    accepted: list[tuple[str, dict[str, str]]] = []
    for round_number in range(10):
        for conversation in conversations:
            body = {"content": f"Round {round_number}", "params": {"max_tokens": 10 + 7 * round_number}, "parent_message_id": None}
            headers = {"Accept": "application/json", "Idempotency-Key": f"{conversation}-{round_number}"}
            answer = person.http.post(f"/v1/conversations/{conversation}/messages", json=body, headers=headers)
            if answer.status_code == 202:
                accepted.append((conversation, answer.json()))
        time.sleep(0.05 * round_number)
        own_server.kill()
        own_server.start()
    assert len(accepted) >= 30
    for conversation, sent in accepted:
        reading = person.read(sent["generation_id"])
        assert reading.kinds[-1] == "done", reading.end
        assert person.message(conversation, sent["message_id"])["content"] == reading.text
    billed = {sent["generation_id"] for _, sent in accepted}
    eventually(lambda: billed <= set(records(own_server)), within_s=15, what="all are billed")
    assert len(records(own_server)) == len(set(records(own_server)))


@pytest.mark.slow
def test_a_killed_server_goes_on_with_every_answer_after_the_restart(make_server: MakeServer, own_server: PostgresServer) -> None:
    server = make_server(config_on(own_server.url(), output_tokens_per_s=20))
    person = server.person()
    turns = []
    for number in range(5):
        conversation = person.new_conversation()
        turns.append((conversation, person.send(conversation, f"Question {number}", params={"max_tokens": 50})))
    shown = [person.read_until(sent["generation_id"], lambda reading: len(reading.text) > 20).text for _, sent in turns]
    server.kill_group()
    server.start()
    person = server.person()
    for (conversation, sent), text in zip(turns, shown, strict=True):
        reading = person.read(sent["generation_id"])
        assert reading.kinds[-1] == "done"
        assert reading.text.startswith(text)
        assert person.message(conversation, sent["message_id"])["content"] == reading.text
