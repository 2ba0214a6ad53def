"""Peers that are HTTP servers: one connection per request, token ids in, token ids out, as their streams bring them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.chats import Chat, Played, Player, Prompt


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a server wants a prompt and where its stream has new ids."""

    path: str
    body: Callable[[Prompt], dict[str, object]]
    ids: Callable[[dict[str, Any]], list[int]]


LLAMA = Dialect(
    "/completion",
    lambda prompt: {
        "prompt": list(prompt.ids),
        "n_predict": prompt.chat.max_tokens,
        "ignore_eos": True,
        "cache_prompt": True,
        "stream": True,
        "return_tokens": True,
        "seed": prompt.seed,
        "temperature": prompt.chat.temperature,
        "top_p": prompt.chat.top_p,
        "top_k": 40,
        "min_p": 0.0,
    },
    lambda event: event.get("tokens") or [],
)
VLLM = Dialect(
    "/v1/completions",
    lambda prompt: {
        "model": "model",
        "prompt": list(prompt.ids),
        "max_tokens": prompt.chat.max_tokens,
        "ignore_eos": True,
        "stream": True,
        "return_token_ids": True,
        "seed": prompt.seed,
        "temperature": prompt.chat.temperature,
        "top_p": prompt.chat.top_p,
    },
    lambda event: (event["choices"][0].get("token_ids") or []) if event.get("choices") else [],
)


class HttpPeer:
    """A server at ``address`` (with its scheme), spoken to in its dialect."""

    def __init__(self, address: str, dialect: Dialect, version: str) -> None:
        self._address = address
        self._dialect = dialect
        self.version = version

    async def play(self, chats: Sequence[Chat]) -> Played:
        player = Player(chats)
        start = time.perf_counter()
        tasks: set[asyncio.Task[None]] = set()
        timeout = aiohttp.ClientTimeout(total=300)
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            while not player.done:
                for prompt in player.due(time.perf_counter() - start):
                    tasks.add(asyncio.create_task(self._answer(session, player, prompt, start)))
                arrival = player.next_arrival_s
                wait = None if arrival is None else max(arrival - (time.perf_counter() - start), 0.0)
                if not tasks:
                    await asyncio.sleep(wait or 0.0)
                    continue
                done, tasks = await asyncio.wait(tasks, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        return Played(player.turns, max((turn.token_s[-1] for turn in player.turns if turn.token_s), default=0.0))

    async def _answer(self, session: aiohttp.ClientSession, player: Player, prompt: Prompt, start: float) -> None:
        error, left = "", prompt.chat.max_tokens
        async with session.post(self._address + self._dialect.path, json=self._dialect.body(prompt)) as response:
            if response.status != 200:
                error = (await response.text())[:300]
            else:
                async for line in response.content:
                    if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                        continue
                    ids = self._dialect.ids(json.loads(line[6:]))[:left]
                    left -= len(ids)
                    player.tokens(prompt.key, ids, time.perf_counter() - start)
        player.ended(prompt.key, error=error or (f"{left} tokens missing" if left else ""))


@asynccontextmanager
async def llama_server(python: Path, model: Path, slots: int, log: Path) -> AsyncIterator[HttpPeer]:
    """llama.cpp's server with ``slots`` slots of 1,024 tokens each; gone at the end."""
    script = Path(__file__).with_name("llama_server.py")
    arguments = (str(python), str(script), str(model), str(slots), str(slots * 1024))
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *arguments, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors
        )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        async with asyncio.timeout(60):
            line = await process.stdout.readline()
        if not line:
            raise RuntimeError(f"llama.cpp's server did not start: {log.read_text()[-2000:]}")
        ready = json.loads(line)
        yield HttpPeer(ready["address"], LLAMA, ready["version"])
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(10):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
