"""``antiphon chat`` against a scripted server: the answer as it comes, failures, and a model that tries to steer the terminal."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys

import pytest

from antiphon.cli.chat_session import ChatSession
from antiphon.client import Client
from tests.cli.conftest import Antiphon
from tests.client.scripted_server import Scene, scripted


@pytest.fixture(autouse=True)
def nothing_is_piped_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))


CONVERSATION = Scene(b'{"id":"conv_1","title":"","version":1}', 201, "application/json")
META = b'id: 1-1\nevent: meta\ndata: {"generation_id":"gen_1","model":"m","requested_model":"m"}\n\n'
DELTA = b'id: 1-2\nevent: delta\ndata: {"text":"Hel"}\n\nid: 1-3\nevent: delta\ndata: {"text":"lo"}\n\n'
DONE = b'id: 1-4\nevent: done\ndata: {"finish_reason":"stop"}\n\n'


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_one_message_one_answer(antiphon: Antiphon) -> None:
    with scripted(CONVERSATION, Scene(META + DELTA + DONE)) as server:
        outcome = antiphon("chat", "--url", server.url, "--key", "ak_1", "--model", "small", "what", "is", "this?")
    assert (outcome.code, outcome.out, outcome.err) == (0, "Hello\n", "")
    assert json.loads(server.requests[0].body) == {"model": "small"}
    assert json.loads(server.requests[1].body) == {"content": "what is this?"}


def test_a_piped_message(antiphon: Antiphon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("from a pipe\n"))
    with scripted(CONVERSATION, Scene(META + DELTA + DONE)) as server:
        assert antiphon("chat", "--url", server.url, "--key", "ak_1").out == "Hello\n"
    assert json.loads(server.requests[1].body) == {"content": "from a pipe"}


def test_a_conversation_until_the_end_of_input(antiphon: Antiphon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("one\n\ntwo\n"))
    with scripted(CONVERSATION, Scene(META + DELTA + DONE), Scene(META + DELTA + DONE)) as server:
        assert antiphon("chat", "--url", server.url, "--key", "ak_1").code == 0
    assert [json.loads(request.body)["content"] for request in server.requests[1:]] == ["one", "two"]
    assert {request.path for request in server.requests[1:]} == {"/v1/conversations/conv_1/messages"}


def test_a_server_that_goes_away_is_told_and_the_conversation_stays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], free_port: int
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("/history\n/model\n"))
    session = ChatSession(Client(f"http://127.0.0.1:{free_port}", "ak_1"), "conv_1", model=None, plain=True)
    assert session.run() == 0
    assert capsys.readouterr().err.count("Connection refused") == 2


def test_a_failed_answer_is_exit_code_1(antiphon: Antiphon) -> None:
    failed = b'id: 1-4\nevent: error\ndata: {"code":"engine_failed","message":"The engine died.","retryable":true}\n\n'
    with scripted(CONVERSATION, Scene(META + DELTA + failed)) as server:
        outcome = antiphon("chat", "--url", server.url, "--key", "ak_1", "hi")
    assert (outcome.code, outcome.out) == (1, "Hello")
    assert "The engine died. (engine_failed)" in outcome.err


def test_a_refusal_is_exit_code_1(antiphon: Antiphon) -> None:
    problem = Scene(b'{"code":"unauthenticated","detail":"Sign in."}', 401, "application/problem+json")
    with scripted(problem) as server:
        outcome = antiphon("chat", "--url", server.url, "--key", "ak_1", "hi")
    assert (outcome.code, outcome.err) == (1, "antiphon: Sign in. (unauthenticated)\n")


def test_a_server_that_is_not_there_is_named(antiphon: Antiphon, free_port: int) -> None:
    outcome = antiphon("chat", "--url", f"http://127.0.0.1:{free_port}", "--key", "ak_1", "hi")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith(f"antiphon: http://127.0.0.1:{free_port}: Connection refused\n")
    assert all(hint in outcome.err for hint in ("antiphon serve", "--url", "ANTIPHON_URL"))


def test_no_key_is_usage(antiphon: Antiphon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTIPHON_KEY", raising=False)
    outcome = antiphon("chat", "hi")
    assert outcome.code == 2
    assert "ANTIPHON_KEY" in outcome.err


def test_a_snapshot_that_differs_is_shown_whole(antiphon: Antiphon) -> None:
    longer = b'id: 1-4\nevent: snapshot\ndata: {"text":"Hello, all"}\n\nid: 1-5\nevent: snapshot\ndata: {"text":"Bye"}\n\n'
    with scripted(CONVERSATION, Scene(META + DELTA + longer + DONE.replace(b"1-4", b"1-6"))) as server:
        assert antiphon("chat", "--url", server.url, "--key", "ak_1", "hi").out == "Hello, all\n\nBye\n"


def test_control_characters_never_reach_a_terminal(antiphon: Antiphon, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    steering = Scene(
        META + b'id: 1-2\nevent: delta\ndata: {"text":"a\\u001b]0;owned\\u0007b\\r\\n\\tc\\u009b2J"}\n\n' + DONE.replace(b"1-4", b"1-3")
    )
    for flags in ([], ["--plain"]):
        with scripted(CONVERSATION, steering) as server, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", terminal)
            antiphon("chat", "--url", server.url, "--key", "ak_1", *flags, "hi")
    assert terminal.getvalue() == 2 * "a\ufffd]0;owned\ufffdb\ufffd\n\tc\ufffd2J\n"


def test_what_is_piped_in_follows_the_message(antiphon: Antiphon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("the file\n"))
    with scripted(CONVERSATION, Scene(META + DELTA + DONE)) as server:
        antiphon("chat", "--url", server.url, "--key", "ak_1", "summarise")
    assert json.loads(server.requests[1].body) == {"content": "summarise\n\nthe file"}


def test_json_is_one_object(antiphon: Antiphon) -> None:
    with scripted(CONVERSATION, Scene(META + DELTA + DONE.replace(b'"stop"', b'"stop","output_tokens":2'))) as server:
        outcome = antiphon("chat", "--url", server.url, "--key", "ak_1", "--json", "hi")
    told = json.loads(outcome.out)
    assert (told["text"], told["finish_reason"], told["output_tokens"], told["conversation_id"]) == ("Hello", "stop", 2, "conv_1")


def test_nothing_to_say_is_usage(antiphon: Antiphon) -> None:
    assert antiphon("chat", "--key", "ak_1").code == 2


def test_an_interrupt_stops_the_answer_on_the_server() -> None:
    cancelled = Scene(b'{"id":"gen_1","message_id":"msg_1","status":"cancelled","text":"Hello"}', media="application/json")
    waiting = Scene(META + DELTA, holds=True)
    with scripted(CONVERSATION, waiting, cancelled) as server:
        command = [sys.executable, "-m", "antiphon", "chat", "--url", server.url, "--key", "ak_1", "hi"]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )
        with process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.read(5) == b"Hello"
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
            assert b"(stopped)" in process.stderr.read()
    assert server.requests[2].path == "/v1/generations/gen_1/cancel"
    assert json.loads(server.requests[2].body) == {"seen_id": "1-3"}
