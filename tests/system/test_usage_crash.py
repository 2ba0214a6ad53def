"""kill -9 under answers that no row keeps: completions and temporary chats. What they had cost is billed once, and nothing stays held."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from random import Random

import httpx
import pytest

from tests.system.served import Server, eventually, reference_config

pytestmark = pytest.mark.system
RATE = 100
CHECKPOINT_TOKENS = RATE // 2
MORE = 40
"""Tokens on their way from the engine to a reader when the server dies, at most."""


class Listener(threading.Thread):
    """Asks, and reads until the connection ends; ``told`` counts the pieces of text."""

    def __init__(self, server: Server, path: str, body: dict[str, object]) -> None:
        super().__init__(daemon=True)
        self._server, self._path, self._body = server, path, body
        self.told = 0
        self.start()

    def run(self) -> None:
        headers = {"Authorization": f"Bearer {self._server.key()}"}
        try:
            with (
                httpx.Client(base_url=self._server.url, headers=headers, timeout=30, trust_env=False) as http,
                http.stream("POST", self._path, json=self._body) as answer,
            ):
                assert answer.status_code == 200
                for line in answer.iter_lines():
                    self.told += '"content":' in line and '"content":""' not in line
        except httpx.HTTPError:
            pass  # the server is gone


def rows(server: Server, conversation: str | None) -> list[tuple[str, int, int, int]]:
    """Completions' records, or a conversation's: generation, prompt, output, whether it was estimated."""
    question = "SELECT generation_id, prompt_tokens, output_tokens, estimated FROM ledger WHERE conversation_id IS ? ORDER BY generation_id"
    with sqlite3.connect(server.data / "antiphon.db", timeout=30) as database:
        return database.execute(question, [conversation]).fetchall()


def open_rows(server: Server) -> int:
    with sqlite3.connect(server.data / "antiphon.db", timeout=30) as database:
        return int(
            database.execute("SELECT (SELECT count(*) FROM open_usage) + (SELECT count(*) FROM outbox WHERE sent_at IS NULL)").fetchone()[0]
        )


def killed_under(server: Server, read_for_s: float, known: set[str]) -> tuple[int, list[tuple[str, int, int, int]]]:
    """How many tokens a completion's reader was told before the server died, and the new records that there are after its next start."""
    with server.person().http as http:
        chat = http.post("/v1/conversations", json={"temporary": True}).json()["id"]
    completion = Listener(
        server, "/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 900, "stream": True}
    )
    temporary = Listener(server, f"/v1/conversations/{chat}/messages", {"content": "hello", "params": {"max_tokens": 900}})
    time.sleep(read_for_s)
    server.kill_group()
    for listener in (completion, temporary):
        listener.join(10)
    server.start()
    eventually(lambda: open_rows(server) == 0, within_s=10, what="the ledger")
    fresh = [row for row in (*rows(server, None), *rows(server, chat)) if row[0] not in known]
    with server.person().http as http:
        limits = {one["name"]: one["used"] for one in http.get("/v1/usage").json()["limits"]}
    assert limits["concurrency"] == 0
    assert limits["tokens_per_minute"] == pytest.approx(0, abs=sum(row[1] + row[2] for row in fresh) + 1)
    return completion.told, fresh


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_fifty_kills_under_completions_and_temporary_chats(make_server: Callable[[str], Server]) -> None:
    server, noise, known, billed = make_server(reference_config(output_tokens_per_s=RATE)), Random(3), set[str](), 0
    for _ in range(50):
        seconds = noise.uniform(0.02, 3.0)
        told, fresh = killed_under(server, seconds, known)
        completions = [row for row in fresh if row in rows(server, None)]
        chats = [row for row in fresh if row not in completions]
        assert len(completions) == 1 or (told < 2 and not completions), "its reader was given more than a token, and nobody pays"
        assert len(chats) == 1 or (seconds < 2 and not chats), "a temporary chat is noted at checkpoints"
        for _, prompt, output, estimated in completions:
            assert (prompt > 0, estimated) == (True, 1)
            assert max(1, told - 2 * CHECKPOINT_TOKENS) <= output <= told + MORE, (told, output)
        assert all(row[1] > 0 and 0 < row[2] <= RATE * (seconds + 2) for row in chats)
        known |= {row[0] for row in fresh}
        billed += len(fresh)
    assert billed >= 60
    with sqlite3.connect(server.data / "antiphon.db") as database:
        assert database.execute("SELECT sum(generations) FROM usage_days").fetchone() == (len(known),)
