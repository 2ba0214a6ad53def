from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace

import pytest

from antiphon.core.errors import EngineFailed, StaleEpoch, StoreUnavailable
from antiphon.core.events import Delta, Done, Failed, Meta, Queued, Snapshot
from antiphon.core.generation import GenerationStatus, TurnParams
from antiphon.core.messages import MessageStatus
from antiphon.engines.base import EngineEvent, EngineRequest
from antiphon.inference.ask import Ask
from antiphon.inference.fleet import ServedPool
from antiphon.inference.gateway import Gateway
from antiphon.orchestrator import turn
from antiphon.orchestrator.acceptance import ContinueRequest
from antiphon.stores.log.memory import MemoryLog
from tests.orchestrator.stage import PLAN, Failing, Stage, check_log, shown_text

LONG = TurnParams(max_tokens=240)
CUT = TurnParams(max_tokens=400)  # never read to its end


async def test_an_answer_is_introduced_written_and_ended(stage: Stage) -> None:
    accepted = await stage.send(await stage.conversation(), "how are you?")
    entries = await stage.entries(accepted.generation_id)
    done = check_log(entries)
    generation, message = await stage.generation(accepted.generation_id), await stage.message(accepted.message_id)

    meta = entries[0].event
    assert isinstance(meta, Meta)
    assert (meta.message_id, meta.user_message_id) == (accepted.message_id, accepted.user_message_id)
    assert meta.model == meta.requested_model == "reference-quick"
    assert isinstance(done, Done)
    assert (done.finish_reason, done.output_tokens) == ("length", 12)
    assert done.ttft_ms is not None
    assert sum(len(entry.token_ids) for entry in entries) <= 12
    assert message.content == shown_text(entries) != ""
    assert (message.status, message.finish_reason) == (MessageStatus.COMPLETE, "length")
    assert message.content_tokens == len(stage.ports.gateway.tokenizer("quick").encode(message.content))
    assert (generation.status, generation.epoch, generation.pool) == (GenerationStatus.COMPLETE, 1, "quick")
    record = json.loads(stage.state.outbox[0].payload)
    assert (record["generation_id"], record["output_tokens"], record["estimated"]) == (generation.id, 12, False)
    assert stage.telemetry.counts["antiphon_generations_total", "quick", "free", "complete"] == 1
    assert len(stage.telemetry.observed["antiphon_time_to_first_token_seconds", "quick", "free"]) == 1


async def test_the_default_length_is_the_pools(stage: Stage) -> None:
    accepted = await stage.send(await stage.conversation(), params=TurnParams())
    assert (await stage.ended(accepted.generation_id)).usage.output_tokens == 64


async def test_the_text_is_stored_before_the_log_ends(stage: Stage) -> None:
    accepted = await stage.send(await stage.conversation())
    await stage.entries(accepted.generation_id)
    assert (await stage.message(accepted.message_id)).status is MessageStatus.COMPLETE


async def test_deltas_share_a_grid_and_the_first_comes_at_once(stage: Stage) -> None:
    accepted = await stage.send(await stage.conversation(), model="slow", params=TurnParams(max_tokens=50))
    entries = await stage.entries(accepted.generation_id)
    deltas = [entry for entry in entries if isinstance(entry.event, Delta)]
    assert len(deltas[0].token_ids) < 25
    assert len(deltas) < 45


async def test_two_answers_to_one_question_are_siblings(stage: Stage) -> None:
    conversation_id = await stage.conversation()
    first = await stage.send(conversation_id)
    await stage.ended(first.generation_id)
    again = await stage.send(conversation_id, None, parent=first.user_message_id)
    await stage.ended(again.generation_id)
    assert again.user_message_id == first.user_message_id
    assert (await stage.message(again.message_id)).content == (await stage.message(first.message_id)).content


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize("error", [StoreUnavailable(), OSError("disk"), RuntimeError("bug")], ids=["outage", "os", "bug"])
@pytest.mark.parametrize("port", ["generations", "log", "conversations"])
async def test_one_terminal_event_whichever_call_fails(gateway: Gateway, port: str, error: Exception, after: bool) -> None:
    nth = 0
    while True:
        nth += 1
        probe = Stage(gateway, concurrency=0)
        accepted = await probe.send(await probe.conversation(), params=TurnParams(max_tokens=5))
        failing = Failing(getattr(probe, port), nth, error, after=after)
        stage = Stage(gateway, state=probe.state, log=probe.log, ports={port: failing})
        await stage.runner.start()
        try:
            entries = await stage.entries(accepted.generation_id)
            message = await stage.message(accepted.message_id)
        finally:
            await stage.close()
        check_log(entries)
        assert message.content == shown_text(entries)
        assert message.status is MessageStatus.COMPLETE
        assert len(stage.state.outbox) == 1
        if not failing.reached:
            break
    assert nth > 1


async def test_an_outage_at_the_end_delays_the_last_event_and_nothing_else(gateway: Gateway) -> None:
    probe = Stage(gateway, concurrency=0)
    accepted = await probe.send(await probe.conversation())
    failing = Failing(probe.generations, 3, StoreUnavailable(), after=False, times=7)
    stage = Stage(gateway, state=probe.state, log=probe.log, ports={"generations": failing})
    await stage.runner.start()
    try:
        await stage.until_text(accepted.generation_id)
        entries = await stage.entries(accepted.generation_id)
        assert isinstance(check_log(entries), Done)
        assert (await stage.message(accepted.message_id)).content == shown_text(entries)
    finally:
        await stage.close()


async def test_a_dead_engine_leaves_an_interrupted_answer_that_continues(stage: Stage, gateway: Gateway) -> None:
    conversation_id = await stage.conversation()
    whole = await stage.send(conversation_id, "tell me", model="slow", params=LONG)
    undisturbed = (await stage.message((await stage.ended(whole.generation_id)).message_id)).content

    accepted = await stage.send(conversation_id, "tell me", parent=None, model="slow", params=CUT)
    await stage.until_text(accepted.generation_id, 40)
    pid = gateway.replicas("slow")[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    entries = await stage.entries(accepted.generation_id)
    failed = check_log(entries)
    message = await stage.message(accepted.message_id)
    assert isinstance(failed, Failed)
    assert (failed.code, failed.retryable) == ("interrupted", True)
    assert message.status is MessageStatus.INTERRUPTED
    assert message.content == shown_text(entries)
    assert undisturbed.startswith(message.content) or message.content.startswith(undisturbed)

    async with asyncio.timeout(30):
        while {pool.name: pool.status for pool in gateway.statuses()}["slow"] != "ready":
            await asyncio.sleep(0.05)
    continued = await stage.desk.continue_message(stage.principal, ContinueRequest(message.id, LONG, None, ""))
    entries = await stage.entries(continued.generation_id)
    assert isinstance(check_log(entries), Done)
    assert entries[0].event == Snapshot(message.content)
    assert isinstance(entries[1].event, Meta)
    text = (await stage.message(message.id)).content
    assert continued.message_id == message.id
    assert text == shown_text(entries)
    assert text.startswith(undisturbed)
    assert (await stage.generation(continued.generation_id)).usage.output_tokens == 240


async def test_a_taken_over_answer_equals_an_undisturbed_one(gateway: Gateway) -> None:
    first = Stage(gateway)
    conversation_id = await first.conversation()
    whole = await first.send(conversation_id, "tell me", model="slow", params=LONG)
    undisturbed = (await first.message((await first.ended(whole.generation_id)).message_id)).content

    accepted = await first.send(conversation_id, "tell me", parent=None, model="slow", params=LONG)
    server = first
    for shown in (10, 150, 300):
        await server.until_text(accepted.generation_id, shown)
        await server.runner.drain(0)
        row = await server.generation(accepted.generation_id)
        assert row.status is GenerationStatus.RUNNING
        state = await server.log.state(accepted.generation_id)
        assert state is not None
        assert state.terminal is None
        server = Stage(gateway, state=first.state, log=first.log)
        await server.runner.start()
    try:
        entries = await server.entries(accepted.generation_id)
        assert isinstance(check_log(entries), Done)
        assert {entry.epoch for entry in entries} == {1, 2, 3, 4}
        assert shown_text(entries) == undisturbed == (await server.message(accepted.message_id)).content
        assert (await server.generation(accepted.generation_id)).usage.output_tokens == 240
        assert sum(isinstance(entry.event, Meta) for entry in entries) == 1
    finally:
        await server.close()


async def test_a_lost_journal_leaves_the_checkpoint_interrupted(gateway: Gateway) -> None:
    first = Stage(gateway)
    accepted = await first.send(await first.conversation(), model="slow", params=CUT)
    await first.until_text(accepted.generation_id, 40)
    async with asyncio.timeout(30):
        while not (await first.generation(accepted.generation_id)).checkpoint_text:
            await asyncio.sleep(0.01)
    await first.runner.drain(0)
    checkpoint = (await first.generation(accepted.generation_id)).checkpoint_text
    assert checkpoint
    second = Stage(gateway, state=first.state)
    await second.runner.start()
    try:
        entries = await second.entries(accepted.generation_id)
        failed = check_log(entries)
        assert isinstance(failed, Failed)
        assert failed.code == "interrupted"
        message = await second.message(accepted.message_id)
        assert (message.status, message.content) == (MessageStatus.INTERRUPTED, checkpoint)
        assert shown_text(entries) == checkpoint
    finally:
        await second.close()


async def test_a_lost_journal_with_nothing_shown_starts_afresh(gateway: Gateway) -> None:
    first = Stage(gateway, concurrency=0)
    accepted = await first.send(await first.conversation())
    claimed = await first.generations.claim(accepted.generation_id, now=first.clock.now(), lease_until=first.clock.now())
    assert claimed is not None
    second = Stage(gateway, state=first.state)
    await second.runner.start()
    try:
        assert (await second.ended(accepted.generation_id)).status is GenerationStatus.COMPLETE
    finally:
        await second.close()


async def test_an_overtaken_writer_leaves_no_trace(gateway: Gateway) -> None:
    stage = Stage(gateway)
    accepted = await stage.send(await stage.conversation(), model="slow", params=CUT)
    await stage.until_text(accepted.generation_id, 40)
    before = await stage.log.open(accepted.generation_id, 99)
    async with asyncio.timeout(30):
        while stage.runner.running:
            await asyncio.sleep(0.01)
    after = await stage.log.state(accepted.generation_id)
    row = await stage.generation(accepted.generation_id)
    assert after is not None
    assert (after.seq, after.text, after.terminal) == (before.seq, before.text, None)
    assert row.status is GenerationStatus.RUNNING
    assert not stage.state.outbox
    await stage.close()


async def test_an_overtaken_finalise_leaves_no_trace(gateway: Gateway) -> None:
    stage = Stage(gateway)
    accepted = await stage.send(await stage.conversation(), model="slow", params=CUT)
    await stage.until_text(accepted.generation_id, 40)
    row = await stage.generation(accepted.generation_id)
    assert row.lease_until is not None
    taken = await stage.generations.claim(row.id, now=row.lease_until, lease_until=row.lease_until)
    assert taken is not None
    assert taken.epoch == row.epoch + 1
    async with asyncio.timeout(30):
        while stage.runner.running:
            await asyncio.sleep(0.01)
    state = await stage.log.state(row.id)
    assert state is not None
    assert state.terminal is None
    assert (await stage.generation(row.id)).status is GenerationStatus.RUNNING
    with pytest.raises(StaleEpoch):
        await stage.generations.heartbeat(row.id, row.epoch, lease_until=row.lease_until)
    await stage.close()


async def test_a_log_that_ended_without_its_row_is_believed(gateway: Gateway) -> None:
    first = Stage(gateway)
    accepted = await first.send(await first.conversation())
    done = await first.ended(accepted.generation_id)
    text = (await first.message(accepted.message_id)).content
    await first.close()
    first.state.generations[done.id] = replace(done, status=GenerationStatus.RUNNING, lease_until=None)
    second = Stage(gateway, state=first.state, log=first.log)
    await second.runner.start()
    try:
        async with asyncio.timeout(30):
            while not (await second.generation(done.id)).status.terminal:
                await asyncio.sleep(0.01)
        assert (await second.generation(done.id)).status is GenerationStatus.COMPLETE
        assert (await second.message(accepted.message_id)).content == text
        check_log(await second.entries(done.id))
    finally:
        await second.close()


async def test_a_row_that_ended_without_its_log_is_settled_once(gateway: Gateway) -> None:
    first = Stage(gateway)
    accepted = await first.send(await first.conversation())
    done = await first.ended(accepted.generation_id)
    entries = await first.entries(done.id)
    await first.close()
    log = MemoryLog(first.clock, 900)
    await log.open(done.id, 1)
    await log.append(done.id, entries[:-1])
    second = Stage(gateway, state=first.state, log=log)
    await asyncio.gather(*(second.runner.settle(done) for _ in range(5)))
    settled = await second.entries(done.id)
    assert check_log(settled) == entries[-1].event
    await second.close()


async def test_a_log_that_lost_its_last_entries_is_settled_with_the_stored_text(gateway: Gateway) -> None:
    first = Stage(gateway)
    accepted = await first.send(await first.conversation(), model="slow", params=TurnParams(max_tokens=40))
    done = await first.ended(accepted.generation_id)
    entries = await first.entries(done.id)
    await first.close()
    log = MemoryLog(first.clock, 900)
    await log.open(done.id, 1)
    await log.append(done.id, entries[:3])
    second = Stage(gateway, state=first.state, log=log)
    await asyncio.gather(*(second.runner.settle(done) for _ in range(5)))
    settled = await second.entries(done.id)
    assert isinstance(check_log(settled), Done)
    assert shown_text(settled) == (await second.message(accepted.message_id)).content == shown_text(entries)
    assert {entry.epoch for entry in settled[-2:]} == {2}, "no cursor of the lost entries names one of these"
    await second.close()


async def test_an_engine_that_cannot_start_is_asked_twice_then_it_fails(gateway: Gateway) -> None:
    asked = 0

    class Refusing:
        def __getattr__(self, name: str) -> object:
            return getattr(gateway, name)

        async def stream(self, *_: object, **__: object) -> object:
            nonlocal asked
            asked += 1
            raise EngineFailed("The engine is away.")
            yield

    stage = Stage(gateway, ports={"gateway": Refusing()})
    accepted = await stage.send(await stage.conversation())
    entries = await stage.entries(accepted.generation_id)
    failed = check_log(entries)
    assert isinstance(failed, Failed)
    assert (failed.code, failed.message, asked) == ("engine_failed", "The engine is away.", 2)
    assert (await stage.message(accepted.message_id)).status is MessageStatus.FAILED
    await stage.close()


class Slow:
    """A gateway whose pool needs ``loading`` looks to become ready and whose streams take ``ending_s`` to be cancelled."""

    def __init__(self, gateway: Gateway, *, loading: int = 0, ending_s: float = 0.0) -> None:
        self._gateway = gateway
        self._loading = loading
        self._ending_s = ending_s
        self.deadlines_s: list[float] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._gateway, name)

    def resolve(self, name: str | None, allowed: Sequence[str]) -> ServedPool:
        pool = self._gateway.resolve(name, allowed)
        self._loading -= 1
        return replace(pool, context_tokens=0) if self._loading >= 0 else pool

    async def stream(
        self, pool: str, request: EngineRequest, *, deadline_s: float, ask: Ask | None = None
    ) -> AsyncGenerator[EngineEvent | Queued]:
        self.deadlines_s.append(deadline_s)
        try:
            async with aclosing(self._gateway.stream(pool, request, deadline_s=deadline_s, ask=ask)) as events:
                async for event in events:
                    yield event
        finally:
            ending = asyncio.create_task(asyncio.sleep(self._ending_s))
            while not ending.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.shield(ending)


async def test_an_engine_slow_to_stop_does_not_keep_the_answer_from_its_end(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "_RELEASE_S", 0.05)
    monkeypatch.setattr(turn, "_LAST_WORD_S", 0.05)
    stage = Stage(gateway, ports={"gateway": Slow(gateway, ending_s=1.0)})
    await stage.runner.start()
    accepted = await stage.send(await stage.conversation(), model="slow", params=TurnParams(max_tokens=300))
    await stage.until_text(accepted.generation_id)
    generation = await stage.runner.cancel(stage.owner, accepted.generation_id)
    assert generation.status is GenerationStatus.CANCELLED
    check_log(await stage.entries(accepted.generation_id))
    await asyncio.sleep(1.1)
    await stage.close()


async def test_loading_and_waiting_share_one_deadline(gateway: Gateway) -> None:
    slow = Slow(gateway, loading=5)
    stage = Stage(gateway, ports={"gateway": slow})
    await stage.runner.start()
    accepted = await stage.send(await stage.conversation())
    assert (await stage.ended(accepted.generation_id)).status is GenerationStatus.COMPLETE
    whole_s = turn.queue_deadline_s(PLAN)
    assert whole_s - 10 < slow.deadlines_s[0] < whole_s - 0.2
    await stage.close()
