"""Long and wide conversations over HTTP: opened, paged, continued, edited, shown as a tree, exported.

Each was written in bulk below the server: a chain of user and assistant messages, or one question with a thousand answers.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from antiphon.app.system import SystemClock, SystemIds
from antiphon.core.ids import ConversationId, IdKind, TenantId, UserId
from antiphon.core.messages import Conversation
from antiphon.stores.conversations.sql import SqlConversations
from antiphon.stores.sql.sqlite import SqliteDatabase
from benchmarks.report import Report, percentile, progress
from benchmarks.served import Served

TEXT = "What is the difference between a list and a tuple, and when would I want to use the one and not the other? " * 10
_INSERT = (
    "INSERT INTO messages (tenant_id, conversation_id, id, parent_id, role, status, created_at, content) "
    "VALUES (?, ?, ?, ?, ?, 'complete', ?, ?)"
)
_DEEP, _WIDE = 10_000, 1_000


@dataclass(slots=True)
class Client:
    """One connection; every call takes the milliseconds until the last byte."""

    server: Served
    connection: http.client.HTTPConnection

    @staticmethod
    def of(server: Served) -> Client:
        return Client(server, http.client.HTTPConnection(*server.address, timeout=60))

    def get(self, path: str) -> tuple[float, dict[str, object]]:
        taken, body = self.fetch("GET", path)
        return taken, json.loads(body)

    def fetch(self, method: str, path: str, content: object = None) -> tuple[float, bytes]:
        body = None if content is None else json.dumps(content)
        headers = {"Authorization": f"Bearer {self.server.key}", "Content-Type": "application/json", "Accept": "application/json"}
        began = time.perf_counter()
        self.connection.request(method, path, body, headers)
        response = self.connection.getresponse()
        answer = response.read()
        taken = (time.perf_counter() - began) * 1e3
        if response.status not in {200, 202}:
            raise RuntimeError(f"{path}: {response.status} {answer[:300]!r}")
        return taken, answer

    def turn(self, place: str, fields: dict[str, object]) -> float:
        """Send, and wait for the end of the answer; the milliseconds until the turn was accepted."""
        taken, answer = self.fetch("POST", f"{place}/messages", {"params": {"max_tokens": 1}, **fields})
        generation = json.loads(answer)["generation_id"]
        while self.get(f"/v1/generations/{generation}")[1]["status"] in {"queued", "running"}:
            time.sleep(0.005)
        return taken


def p95_of(rounds: int, get: Callable[[], float]) -> float:
    return round(percentile([get() for _ in range(rounds)], 0.95), 2)


@dataclass(frozen=True, slots=True)
class Written:
    conversation: ConversationId
    messages: tuple[str, ...]
    """In order: root first."""


def long_conversations(report: Report, server: Served, *, quick: bool) -> None:
    """``open_1000`` on the store as it is; then what a very long and a very wide conversation costs."""
    rounds = 40 if quick else 150
    usual, deep, wide = asyncio.run(_write(server.data / "antiphon.db"))
    client = Client.of(server)
    opened = f"/v1/conversations/{usual.conversation}/messages"
    client.get(opened)
    results = report.results
    results["open_1000_ms_p95"] = p95_of(rounds, lambda: client.get(opened)[0])
    for name, written, size in (("deep", deep, _DEEP), ("wide", wide, _WIDE)):
        place = f"/v1/conversations/{written.conversation}"
        half = len(written.messages) // 2
        middle, last = written.messages[half], written.messages[-1]
        question, parent = (middle, written.messages[half + 1]) if name == "deep" else (written.messages[0], middle)
        sends: dict[str, dict[str, object]] = {
            "accept": {"content": "And then?", "parent_message_id": last},
            "edit": {"content": "Rather this.", "parent_message_id": parent},
            "regenerate": {"content": None, "parent_message_id": question},
        }
        key = f"{name}_{size}"
        results[f"{key}_open_ms_p95"] = p95_of(rounds, lambda place=place: client.get(f"{place}/messages")[0])
        results[f"{key}_page_ms_p95"] = p95_of(
            rounds, lambda place=place, middle=middle: client.get(f"{place}/messages?before={middle}")[0]
        )
        for act, fields in sends.items():
            results[f"{key}_{act}_ms_p95"] = p95_of(rounds, lambda place=place, fields=fields: client.turn(place, fields))
        results[f"{key}_tree_ms_p95"] = p95_of(20, lambda place=place: client.fetch("GET", f"{place}/tree")[0])
        exported = f"/v1/export?format=antiphon&conversation_id={written.conversation}"
        results[f"{key}_export_ms_p95"] = p95_of(10, lambda exported=exported: client.fetch("GET", exported)[0])
        progress(f"{key}: {results}")
    report.n += rounds * 11


async def _write(path: Path) -> tuple[Written, Written, Written]:
    with sqlite3.connect(path) as look:
        tenant_id, user_id = look.execute("SELECT tenant_id, id FROM users WHERE role = 'owner'").fetchone()
    db = SqliteDatabase(path)
    await db.open()
    made = [await _write_one(db, tenant_id, user_id, size, wide=wide) for size, wide in ((1000, False), (_DEEP, False), (_WIDE, True))]
    await db.close()
    return made[0], made[1], made[2]


async def _write_one(db: SqliteDatabase, tenant_id: TenantId, user_id: UserId, size: int, *, wide: bool) -> Written:
    clock, ids = SystemClock(), SystemIds()
    now, name = clock.now(), ConversationId(ids.new(IdKind.CONVERSATION))
    await SqlConversations(db).create(Conversation(name, tenant_id, user_id, "", None, None, 1, False, False, False, now, now))
    messages = tuple(ids.new(IdKind.MESSAGE) for _ in range(size))
    rows: list[tuple[str | int | None, ...]] = []
    for place, message in enumerate(messages):
        parent = None if place == 0 else messages[0] if wide else messages[place - 1]
        role = ("assistant" if place else "user") if wide else ("assistant" if place % 2 else "user")
        rows.append((tenant_id, name, message, parent, role, 1_790_000_000_000 + place, TEXT))
    leaf = f"UPDATE conversations SET current_leaf_id = '{messages[-1]}' WHERE tenant_id = '{tenant_id}' AND id = '{name}'"
    await db.write(lambda tx: (tx.exec_driver_sql(_INSERT, rows), tx.exec_driver_sql(leaf)))
    return Written(name, messages)
