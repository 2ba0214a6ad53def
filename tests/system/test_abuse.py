"""Suspicion on a real server: seen while it happens, slowed and cleared by a person with a command or a route."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx
import pytest

from tests.system.served import Server, eventually
from tests.system.test_limits import config, limits

PLAN = '[[plans]]\nname = "free"\ntokens_per_minute = 400000\nrequests_per_minute = 10000\nconcurrency = 100\n'


def complete(http: httpx.Client) -> httpx.Response:
    body = {"model": "small", "max_tokens": 2, "messages": [{"role": "user", "content": "the same again"}]}
    return http.post("/v1/chat/completions", json=body, timeout=30)


@pytest.mark.slow
@pytest.mark.system
def test_a_flood_is_flagged_slowed_by_a_command_and_cleared_by_a_route(make_server: Callable[[str], Server]) -> None:
    server = make_server(config(PLAN))
    with server.person("mallory").http as http, server.person().http as owner:
        for _ in range(36):
            assert complete(http).status_code == 200
            assert complete(owner).status_code == 200

        def cases() -> list[dict[str, object]]:
            return list(owner.get("/v1/admin/abuse").json()["data"])

        eventually(lambda: cases() != [], within_s=10, what="a flag")
        (case,) = cases()
        assert (case["state"], case["reviewed_by"]) == ("flagged", None), "the owner asked as much, and is in nobody's way"
        assert http.get("/v1/usage").json()["throttled"] is False
        server.command("users", "review", "mallory", "--throttle")
        eventually(lambda: http.get("/v1/usage").json()["throttled"], within_s=10, what="the throttle")
        assert limits(http)["tokens_per_minute"]["limit"] == 100_000
        (row,) = json.loads(server.command("users", "suspects", "--json"))
        assert (row["name"], row["state"]) == ("mallory", "throttled")
        assert owner.put(f"/v1/admin/abuse/{case['user_id']}", json={"state": "clear"}).status_code == 200
        eventually(lambda: not http.get("/v1/usage").json()["throttled"], within_s=10, what="the throttle's end")
        told = [entry["action"] for entry in owner.get("/v1/admin/audit").json()["data"] if entry["action"].startswith("abuse")]
        assert told == ["abuse.clear", "abuse.uphold", "abuse.flag"]
    server.stop()
