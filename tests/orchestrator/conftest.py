"""A whole orchestrator on memory drivers, before a real gateway with two reference replicas: one at full speed, one slow."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from antiphon.app.system import SystemClock
from antiphon.core.pools import PoolSpec, Vocabulary
from antiphon.core.telemetry import NullTelemetry
from antiphon.engines.base import ReplicaSpec
from antiphon.engines.reference_tokenizer import ReferenceTokenizer
from antiphon.inference.gateway import Gateway, PoolRuntime
from tests.orchestrator.stage import Stage

CONTEXT_TOKENS = 1024


def reference_pool(name: str, tokens_per_s: float, vocabulary: Vocabulary = "nasty") -> PoolRuntime:
    """``tokens_per_s`` 0: as fast as the loop goes."""
    spec = PoolSpec(name, f"reference-{name}", "reference", output_tokens_per_s=tokens_per_s, prefill_tokens_per_s=0, vocabulary=vocabulary)
    replica = ReplicaSpec(
        pool=name,
        engine="reference",
        model=spec.model,
        model_path="",
        context_tokens=CONTEXT_TOKENS,
        output_tokens_per_s=tokens_per_s,
        vocabulary=vocabulary,
    )
    return PoolRuntime(spec, replica, lambda: ReferenceTokenizer(vocabulary))


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    """Failures are wanted here; rendering their tracebacks reads source files inside the event loop."""
    with capture_logs():
        yield


@pytest.fixture(scope="session")
async def gateway() -> AsyncIterator[Gateway]:
    with tempfile.TemporaryDirectory(prefix="orch") as folder:
        pools = [reference_pool("quick", 0.0), reference_pool("slow", 200.0)]
        gateway = Gateway(pools, SystemClock(), NullTelemetry(), runtime_dir=Path(folder))
        await gateway.start()
        try:
            await gateway.wait_ready(30)
            yield gateway
        finally:
            await gateway.close()


@pytest.fixture(autouse=True)
def places_given_back(request: pytest.FixtureRequest) -> Iterator[None]:
    """Turns that a test accepted and never ran leave no place in the line to the next test."""
    yield
    given = request.node.funcargs
    gateway = given["stage"].ports.gateway if "stage" in given else given.get("gateway")
    if isinstance(gateway, Gateway):
        for request_id in list(gateway._reserved):
            gateway.withdraw(request_id)


@pytest.fixture
async def stage(gateway: Gateway) -> AsyncIterator[Stage]:
    stage = Stage(gateway)
    await stage.runner.start()
    try:
        yield stage
    finally:
        await stage.close()
