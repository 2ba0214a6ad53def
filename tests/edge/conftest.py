"""A real edge for each module of tests, before one gateway with two reference pools: one at full speed, one slow."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.app.system import SystemClock
from antiphon.core.pools import PoolSpec, Vocabulary
from antiphon.core.telemetry import NullTelemetry
from antiphon.core.tenancy import UserRole
from antiphon.engines.base import ReplicaSpec
from antiphon.engines.reference_tokenizer import ReferenceTokenizer
from antiphon.inference.gateway import Gateway, PoolRuntime
from tests.edge.site import Person, Site

PREFILL = {"quick": 0.0, "slow": 3000.0}


def reference_pool(name: str, tokens_per_s: float = 0.0, vocabulary: Vocabulary = "nasty") -> PoolRuntime:
    spec = PoolSpec(
        name, f"reference-{name}", "reference", output_tokens_per_s=tokens_per_s, prefill_tokens_per_s=PREFILL[name], vocabulary=vocabulary
    )
    replica = ReplicaSpec(
        pool=name,
        engine="reference",
        model=spec.model,
        model_path="",
        context_tokens=4096,
        output_tokens_per_s=tokens_per_s,
        prefill_tokens_per_s=PREFILL[name],
        vocabulary=vocabulary,
    )
    return PoolRuntime(spec, replica, lambda: ReferenceTokenizer(vocabulary))


@pytest.fixture(scope="session")
async def gateway() -> AsyncIterator[Gateway]:
    with tempfile.TemporaryDirectory(prefix="edge") as folder:
        gateway = Gateway([reference_pool("quick"), reference_pool("slow", 60.0)], SystemClock(), NullTelemetry(), runtime_dir=Path(folder))
        await gateway.start()
        try:
            await gateway.wait_ready(30)
            yield gateway
        finally:
            await gateway.close()


@pytest.fixture(scope="module")
async def site(gateway: Gateway) -> AsyncIterator[Site]:
    site = Site(gateway)
    await site.open()
    try:
        yield site
    finally:
        await site.close()


@pytest.fixture(scope="module")
async def ada(site: Site) -> Person:
    return await site.person("ada", role=UserRole.OWNER)


@pytest.fixture(scope="module")
async def bob(site: Site) -> Person:
    return await site.person("bob")
