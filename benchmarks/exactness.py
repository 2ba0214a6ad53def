"""Whether ``exact`` keeps its word over the wire: a greedy answer is the same however the replica came to compute it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from antiphon.engines.base import EngineRequest
from antiphon.engines.model_source import DEFAULT_MODEL
from benchmarks.chats import QUESTIONS, Chat, ChatMaker
from benchmarks.replica_client import Generated, ReplicaClient, bench_spec, engine_request, generate
from benchmarks.replica_client import replica as start_replica
from benchmarks.report import progress

_POOL_BYTES = 200 * 2**20


async def exact_mismatches(folder: Path, maker: ChatMaker, *, prompts: int, tokens: int, seed: int) -> dict[str, float]:
    """Answers that differ from the one computed alone: cached, batched with all others in a small pool (hence chunked beside
    decode rows, and swapped where the pool is too small), and resumed from their middle.
    """
    requests: list[EngineRequest] = []
    for index in range(prompts):
        question = f"{QUESTIONS[index % len(QUESTIONS)]} ({index})"
        ids = maker.first(question, system=f"You answer in style {index}. " + "Be brief and plain. " * (index % 25))
        chat = Chat(index, (ids,), tokens, seed, tenant=f"tenant-{index % 3}", temperature=0.0)
        requests.append(engine_request(chat, ids, seed, f"exact-{index}"))
    spec = bench_spec(folder, DEFAULT_MODEL, kv_bytes=_POOL_BYTES, precision="exact")
    found: dict[str, float] = {}
    async with start_replica(spec) as client:
        alone = [await generate(client, request) for request in requests]
        cached = [await generate(client, request) for request in requests[: prompts // 2]]
        found["exact_cached"] = _differing(alone, cached)
        others = [replace(request, tenant_id=type(request.tenant_id)(f"{request.tenant_id}-again")) for request in requests]
        found["exact_batched"] = _differing(alone, await asyncio.gather(*(generate(client, request) for request in others)))
        found["exact_resumed"] = await _resumed(client, requests[prompts // 2 :], alone[prompts // 2 :])
    progress(f"  exact: {prompts} prompts, {found}")
    return {"exact_mismatches": sum(found.values())}


async def _resumed(client: ReplicaClient, requests: list[EngineRequest], alone: list[Generated]) -> float:
    wrong = 0
    for request, whole in zip(requests, alone, strict=True):
        half = len(whole.token_ids) // 2
        tenant = type(request.tenant_id)(f"{request.tenant_id}-resumed")
        rest = await generate(client, replace(request, tenant_id=tenant, already_ids=whole.token_ids[:half]))
        wrong += rest.token_ids != whole.token_ids[half:]
    return float(wrong)


def _differing(expected: list[Generated], found: list[Generated]) -> float:
    return float(sum(one.token_ids != other.token_ids for one, other in zip(expected, found, strict=False)))
