from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from antiphon.core.clock import ManualClock
from antiphon.core.events import Cursor
from antiphon.core.generation import GenerationStatus, TurnParams
from antiphon.core.ids import ConversationId, GenerationId
from antiphon.core.messages import MessageStatus
from antiphon.core.tenancy import Band
from antiphon.inference.gateway import Gateway
from antiphon.orchestrator.acceptance import ContinueRequest
from antiphon.orchestrator.attendance import AbandonPolicy, Absence, Stance, stance
from antiphon.orchestrator.readers import Readers
from tests.awake import awake_s
from tests.orchestrator.stage import PLAN, TIMING, Stage, check_log, shown_text

LONG = TurnParams(max_tokens=400)
FINISH = AbandonPolicy(60, cancel=False)


@pytest.mark.parametrize(
    ("absence", "policy", "now", "expected"),
    [
        (Absence(None, came=True), FINISH, 1000, (Stance.ATTENDED, None)),
        (Absence(100, came=True), FINISH, 159, (Stance.ATTENDED, 160)),
        (Absence(100, came=True), FINISH, 160, (Stance.BACKGROUND, None)),
        (Absence(100, came=False), FINISH, 160, (Stance.BACKGROUND, None)),
        (Absence(100, came=True), AbandonPolicy(60, cancel=True), 160, (Stance.GIVEN_UP, None)),
        (Absence(100, came=True), AbandonPolicy(60, cancel=False, temporary=True), 100.4, (Stance.ATTENDED, 100.5)),
        (Absence(100, came=True), AbandonPolicy(60, cancel=False, temporary=True), 100.6, (Stance.GIVEN_UP, None)),
        (Absence(100, came=False), AbandonPolicy(60, cancel=False, temporary=True), 101, (Stance.ATTENDED, 160)),
    ],
)
def test_what_absence_means(absence: Absence, policy: AbandonPolicy, now: float, expected: tuple[Stance, float | None]) -> None:
    assert stance(absence, policy, now) == expected


async def test_a_reader_counts_before_anybody_runs_its_generation(clock: ManualClock) -> None:
    readers, generation_id = Readers(clock), GenerationId("gen_1")
    async with readers.reading(generation_id):
        with readers.holding(generation_id) as readership:
            assert readership.readers == 1
            clock.advance(5)
    assert len(readers) == 0
    with readers.holding(generation_id) as readership:
        assert (readership.readers, readership.absent_since) == (0, 5)


async def test_nobody_comes_in_while_a_text_is_cut(clock: ManualClock) -> None:
    readers, generation_id = Readers(clock), GenerationId("gen_1")
    with readers.holding(generation_id) as readership:
        readership.delivered(3)
        reading = readers.reading(generation_id)
        with readership.cutting() as delivered:
            assert delivered == 3
            entering = asyncio.create_task(reading.__aenter__())
            await asyncio.sleep(0.01)
            assert not entering.done()
        await entering
        with readership.cutting() as delivered:
            assert delivered is None
        readership.newest_seq = lambda: 9
        await reading.__aexit__(None, None, None)
        assert readership.delivered_seq == 9


def abandoned(gateway: Gateway, **changes: object) -> Stage:
    plan = replace(PLAN, **changes)  # type: ignore[arg-type]
    return Stage(gateway, ports={"timing": replace(TIMING, detached_grace_seconds=0.2), "plans": {"free": plan}})


class Bands:
    """The real gateway, which tells of each change of band."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.moves: list[Band] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._gateway, name)

    def set_band(self, request_id: str, band: Band) -> bool:
        self.moves.append(band)
        return self._gateway.set_band(request_id, band)


async def test_an_abandoned_answer_is_finished_in_the_background_and_comes_back_with_its_reader(gateway: Gateway) -> None:
    bands = Bands(gateway)
    stage = Stage(gateway, ports={"timing": replace(TIMING, detached_grace_seconds=0.15), "gateway": bands})
    accepted = await stage.send(await stage.conversation(), model="slow", params=TurnParams(max_tokens=200))
    async with asyncio.timeout(30):
        while bands.moves != [Band.BATCH]:
            await asyncio.sleep(0.01)
        async with stage.runner.reading(accepted.generation_id):
            while bands.moves != [Band.BATCH, Band.STANDARD]:
                await asyncio.sleep(0.01)
        assert (await stage.ended(accepted.generation_id)).status is GenerationStatus.COMPLETE
    await stage.close()


async def test_an_abandoned_answer_of_a_thrifty_plan_is_cancelled_and_keeps_its_text(gateway: Gateway) -> None:
    stage = abandoned(gateway, on_abandon="cancel")
    accepted = await stage.send(await stage.conversation(), model="slow", params=LONG)
    async with stage.runner.reading(accepted.generation_id):
        await asyncio.sleep(0.4)
        assert not (await stage.generation(accepted.generation_id)).status.terminal
    entries = await stage.entries(accepted.generation_id)
    check_log(entries)
    message = await stage.message(accepted.message_id)
    assert (message.status, message.content) == (MessageStatus.CANCELLED, shown_text(entries))
    assert len(message.content) > 20
    await stage.close()


async def test_a_temporary_chat_ends_with_its_connection(stage: Stage) -> None:
    conversation_id: ConversationId = await stage.conversation()
    stage.state.conversations[conversation_id] = replace(stage.state.conversations[conversation_id], temporary=True)
    accepted = await stage.send(conversation_id, model="slow", params=LONG)
    async with stage.runner.reading(accepted.generation_id):
        await stage.until_text(accepted.generation_id)
    left_at = awake_s()
    check_log(await stage.entries(accepted.generation_id))
    assert awake_s() - left_at < 2
    assert (await stage.generation(accepted.generation_id)).status is GenerationStatus.CANCELLED


async def test_a_stop_keeps_what_was_delivered_and_counts_what_was_computed(stage: Stage) -> None:
    accepted = await stage.send(await stage.conversation(), model="slow", params=LONG)
    async with stage.runner.reading(accepted.generation_id):
        await stage.until_text(accepted.generation_id, 30)
    seen = await stage.log.state(accepted.generation_id)
    assert seen is not None
    await stage.until_text(accepted.generation_id, len(seen.text) + 80)
    generation = await stage.runner.cancel(stage.owner, accepted.generation_id, Cursor(1))
    message = await stage.message(accepted.message_id)
    entries = await stage.entries(accepted.generation_id)
    check_log(entries)
    assert shown_text(entries) == message.content
    assert message.content.startswith(seen.text)
    assert len(message.content) < len(seen.text) + 60
    assert generation.usage.output_tokens > len(seen.token_ids) + 10


async def test_a_stop_keeps_what_the_stopper_has_seen(stage: Stage) -> None:
    accepted = await stage.send(await stage.conversation(), model="slow", params=LONG)
    await stage.until_text(accepted.generation_id, 30)
    seen = await stage.log.state(accepted.generation_id)
    assert seen is not None
    await stage.until_text(accepted.generation_id, len(seen.text) + 80)
    await stage.runner.cancel(stage.owner, accepted.generation_id, Cursor(seen.seq))
    assert (await stage.message(accepted.message_id)).content == seen.text


async def test_a_stop_keeps_everything_while_somebody_reads(stage: Stage) -> None:
    accepted = await stage.send(await stage.conversation(), model="slow", params=LONG)
    async with stage.runner.reading(accepted.generation_id):
        await stage.until_text(accepted.generation_id, 60)
        before = await stage.log.state(accepted.generation_id)
        assert before is not None
        await stage.runner.cancel(stage.owner, accepted.generation_id, Cursor(2))
    assert (await stage.message(accepted.message_id)).content.startswith(before.text)


async def test_a_stop_keeps_the_text_it_was_to_continue(stage: Stage) -> None:
    accepted = await stage.send(await stage.conversation(), model="quick", params=TurnParams(max_tokens=12))
    first = await stage.message((await stage.ended(accepted.generation_id)).message_id)
    continued = await stage.desk.continue_message(stage.principal, ContinueRequest(first.id, LONG, None, ""))
    await stage.runner.cancel(stage.owner, continued.generation_id)
    assert (await stage.message(first.id)).content.startswith(first.content)
