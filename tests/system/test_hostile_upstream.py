"""A pool whose server is somebody else's and does its worst: each turn ends once, nothing is left, and the next is answered."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from tests.system.served import PLANS, TERMINAL, TIMING, Person, Server, eventually

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(180)]


def delta(text: str, reason: str | None = None) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]}).encode() + b"\n\n"


class Upstream(BaseHTTPRequestHandler):
    """Answers in the ``manner`` of the moment."""

    manner: ClassVar[str] = "kind"
    let_go: ClassVar[threading.Event] = threading.Event()

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.answer("application/json", json.dumps({"data": [{"id": "m", "max_model_len": 4096}]}).encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        try:
            if self.manner == "hangs":
                self.let_go.wait(60)
            elif self.manner == "never ends":
                self.answer("text/event-stream", b"")
                while True:
                    self.wfile.write(delta("again "))
            elif self.manner == "leads elsewhere":
                self.send_response(307)
                self.send_header("Location", "/v1/models")
                self.end_headers()
            elif self.manner == "error inside":
                self.answer("application/json", b'{"error": {"message": "out of memory"}}')
            else:
                self.answer("text/event-stream", BODIES[self.manner])
        except ConnectionError:
            pass

    def answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)


BODIES = {
    "kind": delta("fine") + delta("", "stop") + b"data: [DONE]\n\n",
    "garbage": delta("some ") + b"\x00\xff data: \n" * 100,
    "half a line": delta("some ") + delta("more")[:-9],
    "one endless line": delta("some ") + b"data: " + b"x" * 4_000_000,
    "counts beyond measure": delta("hi \x00") + b'data: {"choices": [{"delta": {"content": "\\ud83d"}, "finish_reason": "stop"}], '
    b'"usage": {"completion_tokens": 1e400, "prompt_tokens": 99999999999999999999999}}\n\n',
}
ENDS = {
    "garbage": "interrupted",
    "half a line": "interrupted",
    "one endless line": "interrupted",
    "never ends": "length",
    "leads elsewhere": "engine_failed",
    "error inside": "engine_failed",
    "counts beyond measure": "stop",
}


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as upstream:
        upstream.daemon_threads = True
        threading.Thread(target=upstream.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{upstream.server_port}/v1"
        pools = f'\n[[pools]]\nname = "far"\nengine = "openai"\nmodel = "m"\nurl = "{url}"\n[background]\ntitles = "words"\n'
        server = Server(tmp_path_factory.mktemp("hostile") / "data", f"{TIMING}{PLANS}{pools}")
        server.start()
        made = server.person()
        eventually(lambda: made.http.get("/readyz").status_code == 200, within_s=20, what="it is there")
        yield made
        server.end()
        Upstream.let_go.set()
        upstream.shutdown()


def ended(person: Person, generation_id: str) -> str:
    reading = person.read(generation_id)
    assert len([kind for kind in reading.kinds if kind in TERMINAL]) == 1
    return str(reading.end.get("finish_reason") or reading.end["code"])


def under_way(person: Person, name: str) -> tuple[int, int, int]:
    """Waiting in the line, at the replica, blocks."""
    (pool,) = [pool for pool in person.http.get("/v1/admin/pools").json() if pool["name"] == name]
    replicas = pool["replicas"]
    waiting = sum(band["waiting"] for band in pool["queue"])
    return waiting, sum(one["running"] + one["waiting"] for one in replicas), sum(one["blocks"]["held"] for one in replicas)


@pytest.mark.parametrize("manner", list(ENDS))
def test_each_turn_ends_once_and_the_next_is_answered(person: Person, manner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Upstream, "manner", manner)
        sent = person.send(person.new_conversation(), "hello", params={"max_tokens": 50})
        assert ended(person, sent["generation_id"]) == ENDS[manner]
    assert person.http.get("/healthz").status_code == 200
    assert ended(person, person.send(person.new_conversation(), "and now?")["generation_id"]) == "stop"
    eventually(lambda: under_way(person, "far") == (0, 0, 0), within_s=5, what="nothing is left")


def test_a_pool_that_hangs_is_taken_away_while_others_wait_in_it(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    url = person.server.config.partition('url = "')[2].partition('"')[0]
    added = person.http.post("/v1/admin/pools", json={"url": url, "key": "", "model": "m", "name": "more"})
    assert added.status_code == 201, added.text

    def statuses() -> dict[str, str]:
        return {model["id"]: model["status"] for model in person.http.get("/v1/models").json()["data"]}

    eventually(lambda: statuses()["more"] == "ready", within_s=20, what="it is there")
    monkeypatch.setattr(Upstream, "manner", "hangs")
    with ThreadPoolExecutor(100) as threads:
        sent = [person.send(person.new_conversation(), f"{number}", model="more", params={"max_tokens": 10}) for number in range(70)]
        endings = [threads.submit(ended, person, one["generation_id"]) for one in sent]
        # One that only takes its time is given as much as it may have.
        eventually(
            lambda: sum(under_way(person, "more")[:2]) == 70 and under_way(person, "more")[1] > 50, within_s=5, what="most are there"
        )
        stopped = person.cancel(sent[0]["generation_id"])
        assert stopped.json()["status"] == "cancelled"
        began = time.monotonic()
        assert person.http.delete("/v1/admin/pools/more").status_code == 204
        assert sorted({one.result() for one in endings}) == ["cancelled", "engine_failed"]
        assert time.monotonic() - began < 10
    assert person.http.get("/healthz").status_code == 200
    eventually(lambda: person.gauge("antiphon_requests_waiting") == 0, within_s=5, what="nobody waits")
