"""A pool whose engine is somebody else's OpenAI-compatible server: here another Antiphon, a real one, that can be killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.served import PLANS, TIMING, Person, Server, eventually, reference_config

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

KEY = "ANTIPHON_TEST_UPSTREAM_KEY"


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("far") / "upstream", reference_config(output_tokens_per_s=40))
    server.start()
    yield server
    server.end()


@pytest.fixture(scope="module")
def front(upstream: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(KEY, upstream.key())
        server = Server(tmp_path_factory.mktemp("near") / "front", front_config(upstream.url))
        server.start()
        yield server.person()
    server.end()


def front_config(url: str) -> str:
    pool = f'[[pools]]\nname = "far"\nengine = "openai"\nmodel = "small"\nurl = "{url}/v1"\napi_key_env = "{KEY}"\n'
    return f'{TIMING}{PLANS}\n{pool}[background]\ntitles = "words"\n'


def test_the_answer_and_its_cost_are_the_servers_own(front: Person, upstream: Server) -> None:
    sent = front.send(front.new_conversation(), "hello ✨", params={"max_tokens": 40})
    reading = front.read(sent["generation_id"])
    assert reading.kinds.count("delta") > 3
    assert reading.end["finish_reason"] == "length"
    assert len(reading.text.split()) == reading.end["output_tokens"] == 40
    (model,) = front.http.get("/v1/models").json()["data"]
    assert (model["id"], model["model"], model["status"], model["context_tokens"]) == ("far", "small", "ready", 4096)


def test_the_conversation_goes_along(front: Person) -> None:
    conversation = front.new_conversation()
    texts = []
    for _ in range(2):
        sent = front.send(conversation, "the same words", params={"max_tokens": 12})
        texts.append(front.read(sent["generation_id"]).text)
    assert texts[0] != texts[1], "the second question was asked without the first"


def test_stop_closes_the_stream_at_the_far_end(front: Person, upstream: Server) -> None:
    there = upstream.person()
    eventually(lambda: there.gauge("antiphon_requests_running") == 0, within_s=10, what="earlier answers have ended")
    sent = front.send(front.new_conversation(), "hello", params={"max_tokens": 1000})
    front.read_until(sent["generation_id"], lambda reading: len(reading.text) > 20)
    assert there.gauge("antiphon_requests_running") == 1
    stopped = front.cancel(sent["generation_id"]).json()
    assert stopped["status"] == "cancelled"
    eventually(lambda: there.gauge("antiphon_requests_running") == 0, within_s=5, what="the far server stops too")


def test_a_server_that_is_not_there_keeps_nobody_from_starting(
    make_server: Callable[[str], Server], tmp_path: Path, free_port: int
) -> None:
    far = Server(tmp_path / "far", reference_config(output_tokens_per_s=40), port=free_port)
    near = make_server(front_config(f"http://127.0.0.1:{free_port}").replace(f'api_key_env = "{KEY}"', ""))
    person = near.person()
    assert person.http.get("/v1/models").json()["data"][0]["status"] in {"loading", "down"}
    assert person.http.get("/readyz").status_code == 503
    try:
        far.start()
        eventually(lambda: "refuses the key" in near.log(), within_s=20, what="the reason is in the log")
    finally:
        far.end()


def test_a_server_that_dies_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    far = Server(tmp_path / "far", reference_config(output_tokens_per_s=40))
    far.start()
    monkeypatch.setenv(KEY, far.key())
    near = Server(tmp_path / "near", front_config(far.url))
    near.start()
    try:
        person = near.person()
        sent = person.send(person.new_conversation(), "hello", params={"max_tokens": 1000})
        shown = person.read_until(sent["generation_id"], lambda reading: len(reading.text) > 20).text
        far.kill_group()
        reading = person.read(sent["generation_id"])
        assert reading.text.startswith(shown)
        assert reading.end["code"] == "interrupted"
    finally:
        near.end()
        far.end()


def test_models_add_url_writes_a_pool_that_serves(upstream: Server, tmp_path: Path) -> None:
    config = tmp_path / "own.toml"
    config.write_text(f"# mine\n{TIMING}")
    environment = {**os.environ, KEY: upstream.key()}
    flags = ["--config", str(config), "--data", str(tmp_path / "own")]

    def add(*more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "antiphon", "models", "add", "--url", f"{upstream.url}/v1", *flags, *more]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert "refuses the key" in add().stderr
    assert "does not serve 'other'; it lists: small" in add("--key-env", KEY, "--model", "other").stderr
    assert config.read_text() == f"# mine\n{TIMING}"
    added = add("--key-env", KEY, "--name", "far")
    assert (added.returncode, added.stdout) == (0, "far\n"), added.stderr
    assert "another pool 'far'" in add("--key-env", KEY, "--name", "far").stderr
    assert config.read_text().startswith("# mine\n")
    assert environment[KEY] not in config.read_text()
