from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from antiphon.core.errors import DiskFull, Draining, NotFound, StoreUnavailable
from antiphon.core.events import Done, Failed, PrefillProgress, Queued
from antiphon.core.generation import GenerationStatus, TurnParams
from antiphon.core.ids import GenerationId, TenantId, UserId
from antiphon.core.messages import MessageStatus
from antiphon.inference.gateway import Gateway
from antiphon.stores.conversations.base import Owner
from antiphon.stores.generations.memory import MemoryGenerations
from tests.awake import awake_s, until
from tests.orchestrator.stage import Failing, Stage, check_log, shown_text

LONG = TurnParams(max_tokens=400)


def running_on(gateway: Gateway) -> int:
    return sum(replica.running + replica.waiting for pool in ("quick", "slow") for replica in gateway.replicas(pool))


@pytest.mark.parametrize("pause_s", [0.0, 0.001, 0.005, 0.02, 0.06, 0.3], ids=lambda pause: f"{pause * 1000:g}ms")
async def test_cancel_in_every_phase(stage: Stage, gateway: Gateway, pause_s: float) -> None:
    accepted = await stage.send(await stage.conversation(), model="slow", params=LONG)
    await asyncio.sleep(pause_s)
    started = awake_s()
    generation = await stage.runner.cancel(stage.owner, accepted.generation_id)
    assert awake_s() - started < 1.0
    entries = await stage.entries(accepted.generation_id)
    done, message = check_log(entries), await stage.message(accepted.message_id)
    assert isinstance(done, Done)
    assert done.finish_reason == "cancelled"
    assert generation.status is GenerationStatus.CANCELLED
    assert generation.usage.output_tokens == done.output_tokens >= sum(len(entry.token_ids) for entry in entries)
    assert (message.status, message.content) == (MessageStatus.CANCELLED, shown_text(entries))
    assert await stage.runner.cancel(stage.owner, accepted.generation_id) == generation
    await until(lambda: not running_on(gateway), within_s=2, what="the engine stops")


async def test_cancel_of_a_finished_answer_changes_nothing(stage: Stage) -> None:
    accepted = await stage.send(await stage.conversation())
    done = await stage.ended(accepted.generation_id)
    assert await stage.runner.cancel(stage.owner, accepted.generation_id) == done
    assert len(stage.state.outbox) == 1


class Refusing:
    """Generations that take no writes once ``refuses`` is set: a full disk."""

    def __init__(self, driver: MemoryGenerations) -> None:
        self._driver = driver
        self.refuses = False

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        method = getattr(self._driver, name)

        async def call(*args: object, **named: object) -> object:
            if self.refuses and name in {"request_cancel", "claim", "heartbeat", "checkpoint", "finalise"}:
                raise DiskFull
            return await method(*args, **named)

        return call


async def test_a_stop_stops_the_engine_though_the_store_takes_no_writes(gateway: Gateway) -> None:
    stage = Stage(gateway)
    refusing = Refusing(stage.generations)
    stage = Stage(gateway, state=stage.state, ports={"generations": refusing})
    await stage.runner.start()
    accepted = await stage.send(await stage.conversation(), model="slow", params=LONG)
    await stage.until_text(accepted.generation_id)
    refusing.refuses = True
    with pytest.raises(NotFound):
        await stage.runner.cancel(Owner(TenantId("tenant_2"), UserId("user_2")), accepted.generation_id)
    assert running_on(gateway)
    started = awake_s()
    generation = await stage.runner.cancel(stage.owner, accepted.generation_id)
    assert generation.id == accepted.generation_id
    assert awake_s() - started < 2
    await until(lambda: not running_on(gateway), within_s=2, what="the engine stops")
    refusing.refuses = False
    done = check_log(await stage.entries(accepted.generation_id))
    assert isinstance(done, Done)
    assert done.finish_reason == "cancelled"
    await stage.close()


async def test_an_outage_beside_an_answer_is_told_of_once(gateway: Gateway) -> None:
    stage = Stage(gateway)
    refusing = Refusing(stage.generations)
    stage = Stage(gateway, state=stage.state, ports={"generations": refusing})
    await stage.runner.start()
    accepted = await stage.send(await stage.conversation(), model="slow", params=TurnParams(max_tokens=400))
    await stage.until_text(accepted.generation_id)
    refusing.refuses = True
    with capture_logs() as told:
        await asyncio.sleep(0.5)
    refusing.refuses = False
    assert [event["event"] for event in told if event["log_level"] != "info"] == ["generation_not_kept"]
    assert (await stage.ended(accepted.generation_id)).status is GenerationStatus.COMPLETE
    await stage.close()


async def test_turns_that_wait_for_a_full_disk_are_told_of_once(gateway: Gateway) -> None:
    stage = Stage(gateway)
    refusing = Refusing(stage.generations)
    stage = Stage(gateway, state=stage.state, ports={"generations": refusing})
    refusing.refuses = True
    with capture_logs() as told:
        await stage.runner.start()
        conversation_ids = [await stage.conversation() for _ in range(5)]
        turns = [await stage.send(conversation_id) for conversation_id in conversation_ids]
        await asyncio.sleep(3)
        refusing.refuses = False
        for turn in turns:
            assert (await stage.ended(turn.generation_id)).status is GenerationStatus.COMPLETE
    events = [event["event"] for event in told]
    assert events.count("claims_refused") == events.count("claims_taken_again") == 1
    assert events.count("write_failed") <= len(turns)
    assert not [event for event in told if event["log_level"] == "error"]
    await stage.close()


async def test_cancel_by_many_at_once(stage: Stage) -> None:
    accepted = await stage.send(await stage.conversation(), model="slow", params=LONG)
    await stage.until_text(accepted.generation_id)
    answers = await asyncio.gather(*(stage.runner.cancel(stage.owner, accepted.generation_id) for _ in range(10)))
    assert len(set(answers)) == 1
    check_log(await stage.entries(accepted.generation_id))


async def test_cancel_of_a_generation_nobody_runs(gateway: Gateway) -> None:
    stage = Stage(gateway, concurrency=0)
    accepted = await stage.send(await stage.conversation())
    generation = await stage.runner.cancel(stage.owner, accepted.generation_id)
    assert generation.status is GenerationStatus.CANCELLED
    assert generation.usage.prompt_tokens == generation.usage.output_tokens == 0
    check_log(await stage.entries(accepted.generation_id))
    await stage.close()


async def test_cancel_of_a_dead_servers_generation_need_not_wait_for_its_lease(gateway: Gateway) -> None:
    stage = Stage(gateway, concurrency=0)
    accepted = await stage.send(await stage.conversation())
    now = stage.clock.now()
    assert await stage.generations.claim(accepted.generation_id, now=now, lease_until=now + timedelta(hours=1))
    assert (await stage.runner.cancel(stage.owner, accepted.generation_id)).status is GenerationStatus.CANCELLED
    await stage.close()


async def test_foreign_and_unknown_generations_are_not_found(stage: Stage) -> None:
    accepted = await stage.send(await stage.conversation(), model="slow", params=LONG)
    with pytest.raises(NotFound):
        await stage.runner.cancel(Owner(TenantId("tenant_2"), UserId("user_2")), accepted.generation_id)
    with pytest.raises(NotFound):
        await stage.runner.cancel(stage.owner, GenerationId("gen_none"))
    assert not (await stage.generation(accepted.generation_id)).cancel_requested


async def test_stop_then_send_fifty_times(stage: Stage) -> None:
    conversation_id = await stage.conversation()
    accepted = await stage.send(conversation_id, model="slow", params=LONG)
    for number in range(50):
        if number % 3 == 0:
            await stage.until_text(accepted.generation_id)
        stopping = asyncio.create_task(stage.runner.cancel(stage.owner, accepted.generation_id))
        if number % 2:
            await asyncio.sleep(0)
        following = await stage.send(conversation_id, model="slow", params=LONG, parent=accepted.message_id)
        await stopping
        assert following.user_message_id is not None
        question = await stage.message(following.user_message_id)
        stopped = await stage.message(accepted.message_id)
        assert question.parent_id == accepted.message_id
        assert stopped.status is MessageStatus.CANCELLED
        assert stopped.content == shown_text(await stage.entries(accepted.generation_id))
        accepted = following


async def test_deleted_conversations_stop_their_generations(stage: Stage) -> None:
    conversation_id = await stage.conversation()
    accepted = await stage.send(conversation_id, model="slow", params=LONG)
    await stage.until_text(accepted.generation_id)
    open_ids = await stage.conversations.delete(stage.owner, conversation_id, now=stage.clock.now())
    assert open_ids == (accepted.generation_id,)
    await stage.runner.stop_and_wait(open_ids)
    assert stage.runner.running == 0
    entries = await stage.entries(accepted.generation_id)
    check_log(entries)
    last = entries[-1].event
    assert isinstance(last, Failed)
    assert last.code == "deleted"


async def test_drain_lets_answers_finish(gateway: Gateway) -> None:
    stage = Stage(gateway)
    await stage.runner.start()
    accepted = await stage.send(await stage.conversation(), model="slow", params=TurnParams(max_tokens=30))
    await stage.until_text(accepted.generation_id)
    await stage.runner.drain(10)
    assert (await stage.generation(accepted.generation_id)).status is GenerationStatus.COMPLETE
    with pytest.raises(Draining):
        await stage.send(await stage.conversation())


async def test_drain_hands_over_what_does_not_finish(gateway: Gateway) -> None:
    stage = Stage(gateway)
    await stage.runner.start()
    accepted = await stage.send(await stage.conversation(), model="slow", params=LONG)
    await stage.until_text(accepted.generation_id)
    await stage.runner.drain(0.05)
    row, state = await stage.generation(accepted.generation_id), await stage.log.state(accepted.generation_id)
    assert row.status is GenerationStatus.RUNNING
    assert row.lease_until is not None
    assert row.lease_until <= stage.clock.now()
    assert state is not None
    assert state.terminal is None
    assert state.text
    assert stage.runner.running == 0


async def test_more_than_it_may_run_waits_in_the_store(gateway: Gateway) -> None:
    stage = Stage(gateway, concurrency=2)
    await stage.runner.start()
    turns = [await stage.send(await stage.conversation()) for _ in range(9)]
    assert stage.runner.running <= 2
    for turn in turns:
        assert (await stage.ended(turn.generation_id)).status is GenerationStatus.COMPLETE
    await stage.close()


async def test_the_sweeper_outlives_the_stores_outage(gateway: Gateway) -> None:
    probe = Stage(gateway, concurrency=0)
    accepted = await probe.send(await probe.conversation())
    failing = Failing(probe.generations, 1, StoreUnavailable(), after=False)
    stage = Stage(gateway, state=probe.state, log=probe.log, ports={"generations": failing})
    await stage.runner.start()
    assert (await stage.ended(accepted.generation_id)).status is GenerationStatus.COMPLETE
    await stage.close()


async def test_a_running_answer_whose_heartbeats_fail_is_not_taken_from_itself(gateway: Gateway) -> None:
    stage = Stage(gateway)
    failing = Failing(stage.generations, 4, StoreUnavailable(), after=False, times=8)
    stage = Stage(gateway, state=stage.state, ports={"generations": failing})
    await stage.runner.start()
    accepted = await stage.send(await stage.conversation(), model="slow", params=TurnParams(max_tokens=80))
    generation = await stage.ended(accepted.generation_id)
    assert (generation.status, generation.epoch) == (GenerationStatus.COMPLETE, 1)
    await stage.close()


async def test_live_states_come_before_the_first_text(stage: Stage) -> None:
    accepted = await stage.send(await stage.conversation(), model="slow", params=TurnParams(max_tokens=5))
    async with stage.runner.reading(accepted.generation_id) as live:
        states = [state async for state in live if state is not None]
    assert all(isinstance(state.event, Queued | PrefillProgress) for state in states)
    assert stage.runner.live(accepted.generation_id) is None
    async with stage.runner.reading(GenerationId("gen_none")) as live:
        assert [state async for state in live] == []


async def test_tokens_that_nobody_watches_are_counted(stage: Stage) -> None:
    name = ("antiphon_unwatched_tokens_total", "quick")
    accepted = await stage.send(await stage.conversation())
    async with stage.runner.reading(accepted.generation_id):
        await stage.entries(accepted.generation_id)
    await asyncio.sleep(0)
    assert name not in stage.telemetry.counts
    await stage.ended((await stage.send(await stage.conversation())).generation_id)
    await until(lambda: name in stage.telemetry.counts)
    assert stage.telemetry.counts[name] == 12
