"""Several runners on one store and one log, as separate servers on PostgreSQL and Redis will be: none of them is alone."""

from __future__ import annotations

import asyncio

from antiphon.core.events import Done
from antiphon.core.generation import GenerationStatus, TurnParams
from antiphon.inference.gateway import Gateway
from antiphon.orchestrator.runner import Runner
from tests.orchestrator.stage import Stage, check_log, shown_text


class Pair:
    """Two servers; what one accepts, either may run."""

    def __init__(self, gateway: Gateway) -> None:
        self.first = Stage(gateway)
        self.second = Stage(gateway, state=self.first.state, log=self.first.log)
        for stage in (self.first, self.second):
            stage.runner = Runner(stage.ports, sole_owner=False)
            stage.desk._runner = stage.runner

    async def start(self) -> None:
        for stage in (self.first, self.second):
            await stage.runner.start()

    async def close(self) -> None:
        for stage in (self.first, self.second):
            await stage.close()


async def test_two_sweepers_share_the_work_and_no_turn_is_run_twice(gateway: Gateway) -> None:
    pair = Pair(gateway)
    probe = Stage(gateway, state=pair.first.state, log=pair.first.log, concurrency=0)
    turns = [await probe.send(await probe.conversation()) for _ in range(30)]
    await pair.start()
    for turn in turns:
        entries = await pair.first.entries(turn.generation_id)
        assert isinstance(check_log(entries), Done)
        row = await pair.first.generation(turn.generation_id)
        assert (row.status, row.epoch) == (GenerationStatus.COMPLETE, 1)
    assert len(pair.first.state.outbox) == 30
    await pair.close()


async def test_ten_sweepers_at_once_leave_live_work_alone(gateway: Gateway) -> None:
    pair = Pair(gateway)
    await pair.first.runner.start()
    turn = await pair.first.send(await pair.first.conversation(), model="slow", params=TurnParams(max_tokens=150))
    await pair.first.until_text(turn.generation_id)
    others = [Runner(pair.second.ports, sole_owner=False) for _ in range(10)]
    for other in others:
        await other.start()
    assert isinstance(check_log(await pair.first.entries(turn.generation_id)), Done)
    assert (await pair.first.generation(turn.generation_id)).epoch == 1
    for other in others:
        await other.drain(0)
    await pair.close()


async def test_a_dead_runners_work_is_taken_over_by_exactly_one(gateway: Gateway) -> None:
    pair = Pair(gateway)
    await pair.first.runner.start()
    turn = await pair.first.send(await pair.first.conversation(), model="slow", params=TurnParams(max_tokens=150))
    await pair.first.until_text(turn.generation_id, 20)
    for run in pair.first.runner._runs.values():
        assert run.task is not None
        run.task.cancel()
    await pair.second.runner.start()
    entries = await pair.second.entries(turn.generation_id)
    assert isinstance(check_log(entries), Done)
    row = await pair.second.generation(turn.generation_id)
    assert (row.status, row.epoch) == (GenerationStatus.COMPLETE, 2)
    assert (await pair.second.message(turn.message_id)).content == shown_text(entries)
    assert len(pair.first.state.outbox) == 1
    await pair.close()


async def test_a_stop_reaches_the_runner_of_another_process(gateway: Gateway) -> None:
    pair = Pair(gateway)
    await pair.first.runner.start()
    turn = await pair.first.send(await pair.first.conversation(), model="slow", params=TurnParams(max_tokens=400))
    await pair.first.until_text(turn.generation_id)
    stopped = await pair.second.runner.cancel(pair.second.owner, turn.generation_id)
    assert stopped.status is GenerationStatus.CANCELLED
    entries = await pair.first.entries(turn.generation_id)
    assert (await pair.first.message(turn.message_id)).content == shown_text(entries) != ""
    await asyncio.sleep(0)
    await pair.close()
