"""A key with a band of its own: what is asked with it waits there."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from antiphon.app.system import SystemClock
from antiphon.core.generation import TurnParams
from antiphon.core.messages import Role
from antiphon.core.tenancy import Band
from antiphon.engines.base import PromptMessage
from antiphon.inference.gateway import Gateway
from antiphon.orchestrator.completion import CompletionRequest
from tests.inference.requests import Recorder
from tests.orchestrator.conftest import reference_pool
from tests.orchestrator.stage import Stage


async def test_turns_and_completions_wait_in_their_keys_band_and_never_above_the_plans() -> None:
    recorder = Recorder()
    with tempfile.TemporaryDirectory(prefix="bands") as folder:
        gateway = Gateway([reference_pool("quick", 0.0)], SystemClock(), recorder, runtime_dir=Path(folder))
        await gateway.start()
        stage = Stage(gateway)
        await stage.runner.start()
        try:
            await gateway.wait_ready(30)
            for band in (Band.LOW, Band.HIGH):
                stage.principal = replace(stage.principal, band=band)
                turn = await stage.send(await stage.conversation())
                assert (await stage.ended(turn.generation_id)).band is band
                hello = CompletionRequest((PromptMessage(Role.USER, "hello"),), "quick", TurnParams(max_tokens=2))
                async with await stage.completions.open(stage.principal, hello) as stream:
                    assert [event async for event in stream]
        finally:
            await stage.close()
            await gateway.close()
    waited = {key[2]: count for key, count in recorder.values.items() if key[0] == "antiphon_queue_seconds"}
    assert waited == {"low": 2, "standard": 2}
