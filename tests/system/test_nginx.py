"""Streams through nginx as distributions ship it (buffering and gzip on, HTTP/1.0 to us), over HTTP/1.1 and HTTP/2."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from antiphon.client.sse import ServerEvent, SseParser
from tests.system.nginx import Proxy, missing_programs, nginx
from tests.system.served import Person, Reading, Server, eventually

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

STREAMS = "antiphon_streams_open"


@pytest.fixture(scope="module")
def proxy(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    missing = missing_programs()
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    with nginx(tmp_path_factory.mktemp("nginx"), server.url) as proxy:
        yield proxy


@dataclass(slots=True)
class Curl:
    """A client of the proxy that speaks one version of HTTP."""

    person: Person
    base: str
    flags: tuple[str, ...]
    status_line: str
    headers: dict[str, str] = field(default_factory=dict[str, str])

    @contextlib.contextmanager
    def events(self, path: str, *, after: str | None = None, body: dict[str, object] | None = None) -> Iterator[Iterator[ServerEvent]]:
        """The events as they come; leaving the context kills the client."""
        command = ["curl", "--silent", "--no-buffer", "--insecure", "--include", "--http1.1", *self.flags, self.base + path]
        command += ["--header", f"Authorization: {self.person.http.headers['authorization']}", "--header", "Accept-Encoding: gzip, br"]
        if after is not None:
            command += ["--header", f"Last-Event-ID: {after}"]
        if body is not None:
            command += ["--header", "Content-Type: application/json", "--data", json.dumps(body)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            yield self._read(process)
        finally:
            process.kill()
            process.communicate()

    def _read(self, process: subprocess.Popen[bytes]) -> Iterator[ServerEvent]:
        assert process.stdout is not None
        assert process.stdout.readline().decode().startswith(self.status_line)
        self.headers = {}
        while line := process.stdout.readline().strip().decode():
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()
        parser = SseParser()
        while line := process.stdout.readline():
            yield from parser.push(line)


@pytest.fixture(params=["HTTP/1.1", "HTTP/2"])
def curl(request: pytest.FixtureRequest, server: Server, proxy: Proxy) -> Curl:
    if request.param == "HTTP/2":
        return Curl(server.person(), proxy.https, ("--http2",), "HTTP/2 200")
    return Curl(server.person(), proxy.http, (), "HTTP/1.1 200")


def test_the_answer_comes_while_it_is_written(curl: Curl) -> None:
    """Nothing waits in the proxy: when the first words are here, the answer is still being computed."""
    person = curl.person
    path = f"/v1/conversations/{person.new_conversation()}/messages"
    reading, generation_id = Reading(), ""
    with curl.events(path, body={"content": "hello", "params": {"max_tokens": 600}}) as events:
        for event in events:
            reading.take(event)
            if event.kind == "meta":
                generation_id = str(json.loads(event.data)["generation_id"])
            if event.kind == "delta" and reading.kinds.count("delta") in {1, 10}:
                assert person.generation(generation_id)["status"] == "running"
            if event.kind == "delta" and reading.kinds.count("delta") == 10:
                person.cancel(generation_id)
    assert curl.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert curl.headers["cache-control"] == "no-store, no-transform"
    assert "content-encoding" not in curl.headers
    assert reading.kinds[-1] == "done"
    assert reading.kinds.count("delta") >= 10
    assert reading.text == person.generation(generation_id)["text"]


def test_cut_and_resumed(curl: Curl) -> None:
    person = curl.person
    sent = person.send(person.new_conversation(), "hello", params={"max_tokens": 600})
    reading, connections = Reading(), 0
    while not reading.ended:
        connections += 1
        taken = 0
        with curl.events(f"/v1/generations/{sent['generation_id']}/stream", after=reading.last_id or None) as events:
            for event in events:
                reading.take(event)
                taken += 1
                if taken == 6 and connections <= 4:
                    break
                if taken == 6:
                    person.cancel(sent["generation_id"], reading.last_id)
    assert connections == 5
    assert "snapshot" not in reading.kinds
    assert reading.text == person.generation(sent["generation_id"])["text"]


def test_a_client_that_leaves_is_noticed(curl: Curl) -> None:
    person = curl.person
    eventually(lambda: person.gauge(STREAMS) == 0, within_s=30, what="earlier streams are closed")
    sent = person.send(person.new_conversation(), "hello", params={"max_tokens": 1000})
    with curl.events(f"/v1/generations/{sent['generation_id']}/stream") as events:
        assert next(events).kind in {"meta", "status"}
        assert person.gauge(STREAMS) == 1
    eventually(lambda: person.gauge(STREAMS) == 0, within_s=10, what="the stream is closed behind the proxy")
    assert person.generation(sent["generation_id"])["status"] == "running"
    person.cancel(sent["generation_id"])


def test_refusals_pass_unchanged(server: Server, proxy: Proxy) -> None:
    person = server.person()
    authorization = f"Authorization: {person.http.headers['authorization']}"
    command = ["curl", "--silent", "--insecure", "--http2", "--header", authorization, "--write-out", "\n%{http_code} %{content_type}"]
    done = subprocess.run([*command, f"{proxy.https}/v1/generations/gen_x/stream"], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("404 application/problem+json")


def test_the_packaged_configuration_is_the_one_in_use(proxy: Proxy, tmp_path_factory: pytest.TempPathFactory) -> None:
    del proxy
    text = next(Path(tmp_path_factory.getbasetemp()).glob("nginx*/nginx.conf")).read_text()
    assert "gzip on;" in text
    assert "proxy_buffering" not in text
    assert "proxy_http_version" not in text
