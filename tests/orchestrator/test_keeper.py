"""Keeping a generation through an outage of the store."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

from structlog.testing import capture_logs

from antiphon.core.errors import DiskFull
from antiphon.core.events import Delta
from antiphon.core.generation import Usage
from antiphon.inference.gateway import Gateway
from antiphon.orchestrator.keeper import Keeper
from antiphon.orchestrator.writer import LogWriter
from antiphon.stores.generations.memory import MemoryGenerations
from tests.awake import until
from tests.orchestrator.stage import TIMING, Stage


class Full(MemoryGenerations):
    """Takes none of the first ``refusals`` writes."""

    def __init__(self, stage: Stage, refusals: int) -> None:
        super().__init__(stage.state, stage.clock)
        self.refusals = refusals

    def _refuse(self) -> None:
        if self.refusals:
            self.refusals -= 1
            raise DiskFull

    async def heartbeat(self, *args: Any, **named: Any) -> bool:
        self._refuse()
        return await super().heartbeat(*args, **named)

    async def checkpoint(self, *args: Any, **named: Any) -> None:
        self._refuse()
        await super().checkpoint(*args, **named)


async def kept(gateway: Gateway, refusals: int, *, heartbeat_s: float, checkpoint_s: float) -> tuple[Stage, Full, LogWriter, Keeper]:
    stage = Stage(gateway, concurrency=0)
    accepted = await stage.send(await stage.conversation())
    now = stage.clock.now()
    generation = await stage.generations.claim(accepted.generation_id, now=now, lease_until=now + timedelta(hours=1))
    assert generation is not None
    full, timing = Full(stage, refusals), replace(TIMING, heartbeat_seconds=heartbeat_s, checkpoint_seconds=checkpoint_s)
    writer = LogWriter(stage.log, generation.id, generation.epoch)
    await writer.open()
    ports = replace(stage.ports, generations=full, timing=timing)
    return stage, full, writer, Keeper(ports, generation, writer, on_cancel=lambda: None, usage=Usage)


async def test_an_outage_is_told_of_once_though_there_is_nothing_to_save_meanwhile(gateway: Gateway) -> None:
    stage, full, _, keeper = await kept(gateway, 5, heartbeat_s=0.03, checkpoint_s=0.005)
    with capture_logs() as told:
        keeping = asyncio.create_task(keeper.run())
        await until(lambda: not full.refusals)
        keeping.cancel()
    assert [event["event"] for event in told] == ["generation_not_kept"]
    await stage.close()


async def test_a_checkpoint_that_failed_is_made_again_though_nothing_was_added(gateway: Gateway) -> None:
    stage, _, writer, keeper = await kept(gateway, 1, heartbeat_s=60, checkpoint_s=0.005)
    await writer.append(Delta("all there is"))
    keeping = asyncio.create_task(keeper.run())
    (generation,) = stage.state.generations
    await until(lambda: stage.state.generations[generation].checkpoint_text == "all there is")
    keeping.cancel()
    await stage.close()
