"""What people wrote and what lets them in is in no log and no metric, whatever they do with it; and no request forges a line."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.system.served import Server

pytestmark = pytest.mark.system

CANARY = "canary-7e1f0c"


def test_logs_and_metrics_hold_no_text_and_no_credential(server: Server) -> None:
    person = server.person()
    key, token = server.key(), server.link.partition("token=")[2]
    conversation = person.http.post("/v1/conversations", json={"title": f"{CANARY} title"}).json()["id"]
    sent = person.send(conversation, f"{CANARY} question", params={"max_tokens": 3, "stop": [f"{CANARY} stop"]})
    person.read(sent["generation_id"])
    person.http.put("/v1/me/instructions", json={"text": f"{CANARY} instruction"})
    person.http.get("/v1/search", params={"q": f"{CANARY} search"})
    person.http.post("/v1/chat/completions", json={"model": "small", "max_tokens": 2, "messages": [{"role": "user", "content": CANARY}]})
    for path, body in (
        (f"/v1/conversations/{conversation}/messages", f'{{"content": "{CANARY} broken'),
        (f"/v1/conversations/{conversation}/messages", f'{{"content": "x", "{CANARY} field": 1}}'),
        ("/v1/import", f"{CANARY} file"),
        ("/v1/admin/pools", json.dumps({"url": f"http://127.0.0.1:9/{CANARY}", "model": CANARY, "key": CANARY})),
    ):
        person.http.post(path, content=body, headers={"Content-Type": "application/json"})
    for headers in ({"Authorization": f"Bearer {key[:-1]}x"}, {"Authorization": f"Bearer ' OR '1'='1 {CANARY}"}, {"X-Api-Key": key}):
        assert httpx.get(f"{server.url}/v1/me", headers=headers).status_code == 401
    httpx.post(f"{server.url}/v1/session", json={"name": CANARY, "password": f"{CANARY} password"})
    httpx.get(f"{server.url}/?token={token}")

    log = (server.data / "server.log").read_text()
    assert f"/v1/conversations/{conversation}/messages" in log, "this is the log of these requests"
    metrics = person.http.get("/metrics").text
    for secret in (CANARY, key, key.removeprefix("ak_")[32:], token):
        assert secret not in log
        assert secret not in metrics


def test_a_path_cannot_forge_a_line(server: Server) -> None:
    forged = '%0a{"event":"forged","level":"info"}%1b[31m'
    assert httpx.get(f"{server.url}/{forged}").status_code == 404
    lines = [json.loads(line) for line in (server.data / "server.log").read_text().splitlines()]
    assert not [line for line in lines if line["event"] == "forged"]
    assert "\x1b" not in (server.data / "server.log").read_text()
