"""Stop: the accelerator stops, the shown text stays, the next turn hangs under the stopped answer."""

from __future__ import annotations

import contextlib

import pytest

from tests.system.served import Reading, Server, eventually

pytestmark = pytest.mark.system


def test_stop_in_mid_answer(server: Server) -> None:
    person = server.person()
    conversation = person.new_conversation()
    sent = person.send(conversation, "Go on for long", params={"max_tokens": 1000})
    reading = Reading()
    with contextlib.closing(person.events(sent["generation_id"])) as events:
        for event in events:
            reading.take(event)
            if len(reading.text) > 40 and "done" not in reading.kinds:
                break
        eventually(lambda: person.gauge("antiphon_requests_running") == 1, within_s=5, what="no title of an earlier chat is written")
        stopped = person.cancel(sent["generation_id"], reading.last_id)
        assert stopped.status_code == 200
        assert stopped.json()["status"] == "cancelled"
        eventually(lambda: person.gauge("antiphon_requests_running") == 0, within_s=0.5, what="the replica is idle")
        for event in events:
            reading.take(event)

    assert reading.end["finish_reason"] == "cancelled"
    message = person.message(conversation, sent["message_id"])
    assert message["status"] == "cancelled"
    assert message["content"] == reading.text
    assert person.cancel(sent["generation_id"]).json() == stopped.json()


def test_stop_then_send_at_once_fifty_times(server: Server) -> None:
    person = server.person()
    conversation = person.new_conversation()
    stopped = None
    for number in range(50):
        sent = person.send(conversation, f"Turn {number}", params={"max_tokens": 200})
        if stopped is not None:
            assert person.message(conversation, sent["user_message_id"])["parent_id"] == stopped
        if number % 2:
            person.read_until(sent["generation_id"], lambda reading: reading.text != "")
        assert person.cancel(sent["generation_id"]).status_code == 200
        stopped = sent["message_id"]
    path = person.http.get(f"/v1/conversations/{conversation}/messages", params={"limit": 100}).json()["data"]
    assert len(path) == 100
    assert {message["status"] for message in path if message["role"] == "assistant"} == {"cancelled"}
