"""The gateway's load: a server before the reference engine, users of three plans, and what became of each of their attempts."""

from __future__ import annotations

import asyncio
import json
import random
import time
from dataclasses import dataclass, field

import aiohttp

from antiphon.app.admin import open_admin
from antiphon.app.config import Flags, load_config
from antiphon.core.tenancy import Scope, UserRole
from benchmarks.served import Served

RATE_TOK_S = 12.0
PLANS = {"top": ("high", 1.5), "middle": ("standard", 3.0), "basic": ("low", 10.0)}
"""Band, and the limit for the first token in seconds."""
SHARES = {"top": 0.2, "middle": 0.3, "basic": 0.5}
"""Of those who come."""
_PATIENCE_S = 120
_POOL = """
[[pools]]
name = "small"
engine = "reference"
output_tokens_per_s = {rate}
prefill_tokens_per_s = 50000
blocks = {blocks}
queue_limit = {limit}
[timing]
detached_grace_seconds = 1
"""
_PLAN = """
[[plans]]
name = "{name}"
models = ["small"]
priority = "{priority}"
tokens_per_minute = 1000000000
requests_per_minute = 10000000
concurrency = 100000
ttft_limit_ms = {limit_ms}
max_output_tokens = 256
"""


def config(*, blocks: int, limit: int = 200, rate: float = RATE_TOK_S) -> str:
    """One pool, and the three plans."""
    plans = "".join(
        _PLAN.format(name=name, priority=priority, limit_ms=round(1000 * limit_s)) for name, (priority, limit_s) in PLANS.items()
    )
    return _POOL.format(rate=rate, blocks=blocks, limit=limit) + plans + '[defaults]\nplan = "top"\n'


@dataclass(slots=True)
class Fate:
    """One attempt, in seconds since the load began, ``first_s`` and ``heard_s`` since it was sent. ``code`` is empty for an
    answer that came to its end.
    """

    plan: str
    sent_s: float
    first_s: float | None = None
    heard_s: float = 0.0
    """When the answer to the send began, whatever it was."""
    ended_s: float = 0.0
    tokens: int = 0
    code: str = ""
    retry_s: float = 0.0
    model: str = ""
    positions: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    eta_s: float | None = None


class People:
    """Users of several plans, each with a key, who talk to one server."""

    def __init__(self, server: Served, session: aiohttp.ClientSession, keys: dict[str, list[str]]) -> None:
        self._server, self._session, self._keys = server, session, keys
        self._unused: dict[str, list[str]] = {}
        self.late_s: list[float] = []
        self.began = time.perf_counter()

    async def open_conversations(self, each: int) -> None:
        """So many for each user, that they have before the load begins."""
        for keys in self._keys.values():
            for key in keys:
                headers = {"Authorization": f"Bearer {key}"}
                self._unused[key] = [await self._conversation(headers) for _ in range(each)]

    async def say(self, conversation: str, plan: str, user: int, *, tokens: int) -> Fate:
        """One message more in a conversation."""
        fate = Fate(plan, time.perf_counter() - self.began)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._send(fate, conversation, self._headers(plan, user), tokens)
        except (aiohttp.ClientError, TimeoutError) as fault:
            fate.code = type(fault).__name__
        fate.ended_s = time.perf_counter() - self.began
        return fate

    async def conversation(self, plan: str, user: int) -> str:
        """A new one."""
        return await self._conversation(self._headers(plan, user))

    def _headers(self, plan: str, user: int) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._keys[plan][user % len(self._keys[plan])]}"}

    async def ask(self, plan: str, user: int, *, tokens: int) -> Fate:
        """One message in a conversation of its own; who is refused asks there again."""
        key = self._keys[plan][user % len(self._keys[plan])]
        headers = {"Authorization": f"Bearer {key}"}
        fate = Fate(plan, time.perf_counter() - self.began)
        unused = self._unused.setdefault(key, [])
        try:
            async with asyncio.timeout(_PATIENCE_S):
                conversation = unused.pop() if unused else await self._conversation(headers)
                await self._send(fate, conversation, headers, tokens)
            if fate.retry_s:
                unused.append(conversation)
        except (aiohttp.ClientError, TimeoutError) as fault:
            fate.code = type(fault).__name__
        fate.ended_s = time.perf_counter() - self.began
        return fate

    async def _conversation(self, headers: dict[str, str]) -> str:
        async with self._session.post(f"{self._server.url}/v1/conversations", json={}, headers=headers) as response:
            return str((await response.json())["id"])

    async def _send(self, fate: Fate, conversation: str, headers: dict[str, str], tokens: int) -> None:
        body = {"content": f"tell me about {random.random()}", "params": {"max_tokens": tokens}}
        fate.sent_s = time.perf_counter() - self.began
        start, name = time.perf_counter(), ""
        async with self._session.post(f"{self._server.url}/v1/conversations/{conversation}/messages", json=body, headers=headers) as answer:
            fate.heard_s = time.perf_counter() - start
            if answer.status != 200:
                problem = await answer.json(content_type=None)
                fate.code, fate.retry_s = str(problem["code"]), problem.get("retry_after_ms", 1000) / 1000
                return
            fate.code = "no_end"
            async for line in answer.content:
                if line.startswith(b"event: "):
                    name = line[7:].strip().decode()
                elif line.startswith(b"data: "):
                    self._note(fate, name, json.loads(line[6:]), time.perf_counter() - start)

    def _note(self, fate: Fate, name: str, data: dict[str, object], elapsed_s: float) -> None:
        if name == "status" and data["state"] == "queued":
            fate.positions.append((time.perf_counter() - self.began, int(str(data["position"]))))
            if fate.eta_s is None and data["eta_ms"] is not None:
                fate.eta_s = elapsed_s + float(str(data["eta_ms"])) / 1000
        elif name == "meta":
            fate.model = str(data["model"])
        elif name == "delta" and fate.first_s is None:
            fate.first_s = elapsed_s
        elif name == "done":
            fate.code, fate.tokens = "", int(str(data["output_tokens"]))
        elif name == "error":
            fate.code = str(data["code"])


async def keys_of(server: Served, users: int) -> dict[str, list[str]]:
    """``users`` users of each plan, and a key for each."""
    keys: dict[str, list[str]] = {}
    settings = load_config(Flags(config=server.data / "antiphon.toml", data=server.data), {})
    async with open_admin(settings) as admin:
        for plan in PLANS:
            for number in range(users):
                name = f"{plan}-{number}"
                await admin.create_user(name, tenant=None, plan=plan, role=UserRole.MEMBER)
                keys.setdefault(plan, []).append(await admin.create_key(name, user=name, scopes=frozenset({Scope.CHAT})))
    return keys
