"""What survives kill -9: of the replica, and of the server with everything it started."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.awake import awake_s
from tests.system.served import LEASE_SECONDS, Person, Server, eventually, reference_config

pytestmark = [pytest.mark.system, pytest.mark.timeout(90)]

MakeServer = Callable[[str], Server]


def replica_pid(person: Person) -> int:
    pools = person.http.get("/v1/admin/pools").json()
    return int(pools[0]["replicas"][0]["pid"])


def alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def sockets() -> set[str]:
    """Socket files that servers on this machine have bound."""
    return {
        line.split()[-1]
        for line in Path("/proc/net/unix").read_text().splitlines()
        if "antiphon" in line and line.split()[-1].endswith(".sock")
    }


def test_a_killed_replica_interrupts_and_the_answer_can_be_continued(make_server: MakeServer) -> None:
    others = sockets()
    server = make_server(reference_config(output_tokens_per_s=20))
    person = server.person()
    conversation = person.new_conversation()
    sent = person.send(conversation, "Tell me something long.", params={"max_tokens": 400})
    partly = person.read_until(sent["generation_id"], lambda reading: len(reading.text) > 30)
    old = replica_pid(person)
    before = sockets() - others

    os.kill(old, signal.SIGKILL)
    killed_at = awake_s()
    ended = person.read(sent["generation_id"])

    assert ended.kinds[-1] == "error"
    assert ended.end["code"] == "interrupted"
    assert ended.text.startswith(partly.text)
    message = person.message(conversation, sent["message_id"])
    assert message["status"] == "interrupted"
    assert message["content"] == ended.text

    other = person.send(person.new_conversation(), "Next question", params={"max_tokens": 3})
    assert person.read(other["generation_id"]).kinds[-1] == "done"
    assert awake_s() - killed_at < 5
    assert not alive(old)
    assert not sockets() & before

    more = person.continue_message(sent["message_id"], params={"max_tokens": 20})
    rest = person.read(more["generation_id"])
    assert next(kind for kind in rest.kinds if kind != "status") == "snapshot"  # it may have to wait for the replica first
    assert rest.kinds[-1] == "done"
    assert rest.text.startswith(ended.text)
    assert len(rest.text) > len(ended.text)
    assert person.message(conversation, sent["message_id"])["content"] == rest.text


def test_a_killed_server_goes_on_with_every_answer_after_the_restart(make_server: MakeServer) -> None:
    server = make_server(reference_config(output_tokens_per_s=20))
    person = server.person()
    turns = []
    for number in range(5):
        conversation = person.new_conversation()
        turns.append((conversation, person.send(conversation, f"Question {number}", params={"max_tokens": 50})))
    shown = [person.read_until(sent["generation_id"], lambda reading: len(reading.text) > 20).text for _, sent in turns]
    old = replica_pid(person)

    server.kill_group()
    assert not alive(old)
    server.start()
    restarted = awake_s()
    person = server.person()

    readings = [person.read(sent["generation_id"]) for _, sent in turns]
    for (conversation, sent), text, reading in zip(turns, shown, readings, strict=True):
        message = person.message(conversation, sent["message_id"])
        assert reading.text.startswith(text)
        assert message["content"] == reading.text
        assert message["status"] in {"complete", "interrupted"}
        user = person.message(conversation, sent["user_message_id"])
        assert user["status"] == "complete"
    assert all(reading.kinds[-1] == "done" for reading in readings), "the journal has their tokens, so they go on"
    assert awake_s() - restarted < LEASE_SECONDS + 5 + 50 / 20


def test_a_continued_answer_is_the_undisturbed_one(make_server: MakeServer) -> None:
    server = make_server(reference_config(output_tokens_per_s=40, vocabulary="nasty"))
    person = server.person()
    undisturbed = person.read(person.send(person.new_conversation(), "Same question", params={"max_tokens": 60})["generation_id"]).text
    sent = person.send(person.new_conversation(), "Same question", params={"max_tokens": 60})
    person.read_until(sent["generation_id"], lambda reading: len(reading.text) > 40)

    server.kill_group()
    server.start()

    assert server.person().read(sent["generation_id"]).text == undisturbed


def test_the_replica_ends_with_its_server(make_server: MakeServer) -> None:
    server = make_server(reference_config())
    pid = replica_pid(server.person())
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGKILL)
    eventually(lambda: not alive(pid), within_s=5, what="the replica exits")


@pytest.mark.slow
def test_a_terminated_server_hands_its_answers_to_the_next(make_server: MakeServer) -> None:
    server = make_server(reference_config(output_tokens_per_s=10).replace("drain_seconds = 5", "drain_seconds = 1"))
    person = server.person()
    conversation = person.new_conversation()
    sent = person.send(conversation, "A long one", params={"max_tokens": 50})
    shown = person.read_until(sent["generation_id"], lambda reading: len(reading.text) > 20).text

    assert server.stop() == 0
    server.start()

    reading = server.person().read(sent["generation_id"])
    assert reading.kinds[-1] == "done"
    assert reading.text.startswith(shown)
