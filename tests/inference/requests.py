"""Engine requests and reference pools, as the tests of this plane need them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from antiphon.app.system import SystemClock
from antiphon.core.generation import Sampling
from antiphon.core.ids import TenantId
from antiphon.core.messages import Role
from antiphon.core.pools import PoolSpec
from antiphon.core.telemetry import Metric, NullTelemetry, Telemetry
from antiphon.core.tenancy import Band
from antiphon.engines.base import EngineEvent, EngineRequest, Finished, PromptMessage, ReplicaSpec, Tokens
from antiphon.engines.reference_tokenizer import ReferenceTokenizer
from antiphon.inference.gateway import Gateway, PoolRuntime
from antiphon.inference.residency import Residency


def engine_request(
    prompt_ids: Sequence[int],
    *,
    request_id: str = "r",
    tenant: str = "tenant_a",
    max_tokens: int = 8,
    already_ids: Sequence[int] = (),
    stop: tuple[str, ...] = (),
    weight: float = 1.0,
    public_prefix_tokens: int = 0,
) -> EngineRequest:
    return EngineRequest(
        request_id=request_id,
        tenant_id=TenantId(tenant),
        prompt_ids=tuple(prompt_ids),
        sampling=Sampling(max_tokens=max_tokens, temperature=0.0, stop=stop),
        already_ids=tuple(already_ids),
        weight=weight,
        public_prefix_tokens=public_prefix_tokens,
    )


def unlike(name: str, tokens: int) -> tuple[int, ...]:
    """Ids that share no block with those of another name."""
    return (*name.encode()[:8], *range(tokens - len(name.encode()[:8])))


def in_band(request: EngineRequest, band: Band) -> EngineRequest:
    return replace(request, band=band)


def prompt_ids(text: str) -> tuple[int, ...]:
    return tuple(ReferenceTokenizer().prompt([PromptMessage(Role.USER, text)]))


def reference_pool(
    name: str = "small",
    *,
    replicas: int = 1,
    output_tokens_per_s: float = 0.0,
    blocks: int = 256,
    queue_limit: int = 200,
    model: str = "reference",
) -> PoolRuntime:
    return PoolRuntime(
        spec=PoolSpec(name, model, engine="reference", replicas=replicas, queue_limit=queue_limit),
        replica=ReplicaSpec(name, "reference", model, "", output_tokens_per_s=output_tokens_per_s, blocks=blocks),
        tokenizer=ReferenceTokenizer,
    )


@asynccontextmanager
async def open_gateway(
    folder: Path, *pools: PoolRuntime, telemetry: Telemetry | None = None, residency: Residency | None = None
) -> AsyncIterator[Gateway]:
    """A gateway whose replicas are all ready, as far as they fit."""
    gateway = Gateway(pools, SystemClock(), telemetry or NullTelemetry(), runtime_dir=folder, residency=residency)
    await gateway.start()
    try:
        await gateway.wait_ready(20)
        while any(replica.state != "ready" for pool in pools for replica in gateway.replicas(pool.spec.name)):
            await asyncio.sleep(0.01)
        yield gateway
    finally:
        await gateway.close()


class Recorder:
    """Telemetry that remembers the last gauge and the sum of everything else."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, ...], float] = {}

    def count(self, metric: Metric, amount: float = 1.0, *labels: str) -> None:
        assert len(labels) == len(metric.labels)
        key = (metric.name, *labels)
        self.values[key] = self.values.get(key, 0.0) + amount

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        self.count(metric, 1.0, *labels)

    def gauge(self, metric: Metric, value: float, *labels: str) -> None:
        assert len(labels) == len(metric.labels)
        self.values[metric.name, *labels] = value


def text_of(events: Sequence[object]) -> str:
    return "".join(event.text for event in events if isinstance(event, Tokens | Finished))


def ids_of(events: Sequence[object]) -> tuple[int, ...]:
    return tuple(token for event in events if isinstance(event, Tokens) for token in event.token_ids)


def end_of(events: Sequence[object]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


async def collect(gateway: Gateway, request: EngineRequest, *, pool: str = "small", deadline_s: float = 10.0) -> list[EngineEvent | object]:
    return [event async for event in gateway.stream(pool, request, deadline_s=deadline_s)]
