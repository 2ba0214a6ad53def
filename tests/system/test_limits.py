"""Limits and accounts on a real server: refused with a true time, kept over restarts and kills, used once."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.system.served import TIMING, Server, eventually

POOL = """
[[pools]]
name = "small"
model = "reference"
engine = "reference"
output_tokens_per_s = 400
prefill_tokens_per_s = 20000
context_tokens = 4096
blocks = 2048
"""
PLAN = """
[[plans]]
name = "free"
tokens_per_minute = 3000
requests_per_minute = 1000
concurrency = 4
max_output_tokens = 1024
caps = [{ model = "small", messages = 5, window_seconds = 7200 }]
"""
MONEY = """
[[prices]]
model = "small"
input = "1"
output = "1000"
"""


def config(plan: str = PLAN, money: str = MONEY) -> str:
    """Titles are first words: a model's would be records too."""
    return f'{TIMING}\n[background]\ntitles = "words"\n{plan}\n{POOL}\n{money}'


def asked(http: httpx.Client, tokens: int = 8, **headers: str) -> httpx.Response:
    """One message in a conversation of its own; waits for its end."""
    conversation = http.post("/v1/conversations", json={}).json()["id"]
    body = {"content": "hello", "params": {"max_tokens": tokens}}
    return http.post(f"/v1/conversations/{conversation}/messages", json=body, headers=headers, timeout=30)


def limits(http: httpx.Client) -> dict[str, dict[str, object]]:
    return {one["name"]: one for one in http.get("/v1/usage").json()["limits"]}


def settled(http: httpx.Client, messages: int) -> dict[str, object]:
    """The usage once so many messages are in the ledger."""
    found: dict[str, object] = {}

    def there() -> bool:
        usage = http.get("/v1/usage").json()
        found.update(usage)
        return usage["today"]["messages"] >= messages and all(one["used"] == 0 for one in usage["limits"] if one["name"] == "concurrency")

    eventually(there, within_s=30, what=f"{messages} messages are in the ledger")
    return found


@pytest.mark.system
def test_a_cap_survives_restarts_and_kills_and_the_ledger_counts_each_once(make_server: Callable[[str], Server]) -> None:
    server = make_server(config())
    with server.person().http as http:
        first = asked(http)
        assert first.status_code == 200
        assert int(first.headers["x-ratelimit-remaining-tokens"]) < 3000
        assert '"cost":"0.00' in first.text
        for _ in range(2):
            asked(http)
        before = settled(http, 3)
    assert limits_of(before)["messages"]["used"] == 3
    server.kill_group()
    server.start()
    with server.person().http as http:
        assert settled(http, 3)["today"] == before["today"]
        assert limits(http)["messages"]["used"] == 3
        assert asked(http).status_code == 200
    server.stop()
    server.start()
    with server.person().http as http:
        assert asked(http).status_code == 200
        refused = asked(http)
        assert (refused.status_code, refused.json()["code"]) == (429, "quota_exhausted")
        assert "5 messages with small in 2 h" in refused.json()["detail"]
        assert 7_100_000 < refused.json()["retry_after_ms"] <= 7_200_000
        assert int(refused.headers["retry-after"]) * 1000 >= refused.json()["retry_after_ms"]
        usage = settled(http, 5)
        assert usage["today"]["messages"] == 5
        total = http.get("/v1/admin/usage", params={"group_by": "model,day"}).json()
        assert sum(group["usage"]["messages"] for group in total["data"]) == 5
    server.stop()
    with sqlite3.connect(server.data / "antiphon.db") as database:
        records = [json.loads(row[0]) for row in database.execute("SELECT payload FROM outbox")]
        assert len(records) == len({record["generation_id"] for record in records}) == 5
        assert database.execute("SELECT count(*), sum(output_tokens) FROM ledger").fetchone() == (5, 40)
        assert database.execute("SELECT sum(generations), sum(output_tokens) FROM usage_days").fetchone() == (5, 40)


@pytest.mark.system
def test_of_twenty_parallel_sends_over_http_one_runs_and_the_others_are_told_when(make_server: Callable[[str], Server]) -> None:
    server = make_server(
        config(PLAN.replace("tokens_per_minute = 3000", "tokens_per_minute = 1000").replace("concurrency = 4", "concurrency = 40"))
    )
    with server.person().http as http:
        conversations = [http.post("/v1/conversations", json={}).json()["id"] for _ in range(20)]

        def send(conversation: str) -> httpx.Response:
            body = {"content": "hello", "params": {"max_tokens": 860}}
            return http.post(f"/v1/conversations/{conversation}/messages", json=body, headers={"Accept": "application/json"})

        began = time.monotonic()
        with ThreadPoolExecutor(20) as threads:
            answers = list(threads.map(send, conversations))
        took_ms = 1000 * (time.monotonic() - began)
        refused = [answer for answer in answers if answer.status_code == 429]
        assert (sum(answer.status_code == 202 for answer in answers), len(refused)) == (1, 19)
        (granted,) = (answer for answer in answers if answer.status_code == 202)
        held = 1000 - int(granted.headers["x-ratelimit-remaining-tokens"])
        assert 880 <= held <= 1000
        for answer in refused:
            wait_ms = answer.json()["retry_after_ms"]
            assert answer.json()["code"] == "rate_limited"
            whole_ms = (2 * held - 1000) * 60
            assert whole_ms - took_ms - 3000 < wait_ms < whole_ms + 3000, "until so much has come back that it fits"
            assert int(answer.headers["retry-after"]) == -(-wait_ms // 1000)
    server.stop()


def limits_of(usage: dict[str, object]) -> dict[str, dict[str, object]]:
    listed = usage["limits"]
    assert isinstance(listed, list)
    return {one["name"]: one for one in listed}


@pytest.mark.system
def test_a_budget_stops_hard_and_is_told(make_server: Callable[[str], Server]) -> None:
    budget = '[[budgets]]\ntenant = "home"\nmonthly = "0.05"\nalerts = ["0.1", "0.5"]\n'
    server = make_server(config(PLAN.replace("messages = 5", "messages = 500"), MONEY + budget))
    with server.person().http as http:
        eventually(lambda: "tenant_budget" in limits(http), within_s=30, what="the budget of the new tenant")
        tenant = limits(http)["tenant_budget"]
        assert (tenant["limit"], tenant["used"]) == ("0.05", "0")
        answers = [asked(http, tokens=16).status_code for _ in range(5)]
        assert answers[:2] == [200, 200]
        assert answers[-1] == 429
        refused = asked(http, tokens=16).json()
        assert refused["code"] == "quota_exhausted"
        assert "0.05" in refused["detail"]
    server.stop()
    server.start()
    with server.person().http as http:
        assert asked(http, tokens=16).status_code == 429
        told = [entry for entry in http.get("/v1/admin/audit").json()["data"] if entry["action"] == "budget.alert"]
        assert [entry["subject"].partition(" ")[2] for entry in told] == ["0.5", "0.1"]
        assert told[0]["user_id"] is None
    server.stop()


RESTARTS = 16


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
def test_a_loop_of_restarts_is_no_fresh_allowance(make_server: Callable[[str], Server]) -> None:
    """Killed and stopped by turns, in the middle of answers too: all that was ever granted fits one server's life without restarts."""
    plan = PLAN.replace("tokens_per_minute = 3000", "tokens_per_minute = 900").replace("messages = 5", "messages = 9")
    server = make_server(config(plan, MONEY + '[[budgets]]\ntenant = "home"\nmonthly = "1000"\n'))
    start, granted, refused = time.monotonic(), 0, set[str]()
    for number in range(RESTARTS):
        with server.person().http as http:
            for _ in range(4):
                answer = asked(http, tokens=60)
                granted += answer.status_code == 200
                if answer.status_code != 200:
                    refused.add(answer.json()["code"])
            conversation = http.post("/v1/conversations", json={}).json()["id"]
            body = {"content": "hello", "params": {"max_tokens": 200}}
            left = http.post(f"/v1/conversations/{conversation}/messages", json=body, headers={"Accept": "application/json"})
            granted += left.status_code == 202
            assert granted <= 9, "more messages than the cap"
            used = limits(http)
            assert used["messages"]["used"] == granted
            money = float(str(used["tenant_budget"]["used"]))
        if number % 2:
            server.kill_group()
        else:
            server.stop()
        server.start()
        with server.person().http as http:
            assert limits(http)["messages"]["used"] == granted
            assert float(str(limits(http)["tenant_budget"]["used"])) >= 0.9 * money
    assert granted == 9
    assert "quota_exhausted" in refused
    server.stop()
    with sqlite3.connect(server.data / "antiphon.db") as database:
        (tokens,) = database.execute("SELECT sum(prompt_tokens + output_tokens) FROM ledger").fetchone()
        assert database.execute("SELECT count(*) FROM ledger").fetchone() == (9,)
    assert tokens <= 900 + 15 * (time.monotonic() - start) + 260, "a minute's tokens, what came back, and one answer"
