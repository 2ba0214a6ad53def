"""The contract of the generation log."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.core.clock import ManualClock
from antiphon.core.errors import StaleEpoch
from antiphon.core.events import (
    Delta,
    Done,
    Failed,
    LogEntry,
    LogEvent,
    Meta,
    Reasoning,
    Retract,
    Snapshot,
    Source,
    Sources,
)
from antiphon.core.ids import ConversationId, GenerationId, MessageId
from antiphon.stores.log.base import GenerationLog

GEN = GenerationId("gen_1")
META = Meta(GEN, ConversationId("conv_1"), MessageId("msg_2"), MessageId("msg_1"), "smol", "small")
DONE = Done("stop", 5, 2, 3, 4, 12, 50, "0.0001", "smol", "small")


def entries(*events: LogEvent, start: int = 1, epoch: int = 1) -> list[LogEntry]:
    return [LogEntry(epoch, start + at, event, (start + at,)) for at, event in enumerate(events)]


async def test_what_was_appended_is_read_in_order(log: GenerationLog) -> None:
    state = await log.open(GEN, 1)
    assert (state.epoch, state.seq, state.text, state.token_ids, state.terminal) == (1, 0, "", (), None)
    written = entries(META, Reasoning("hm"), Delta("a\r\n"), Sources((Source("t", "u"),)), Delta("data: 😀 "), DONE)
    await log.append(GEN, written[:3])
    await log.append(GEN, written[3:])
    everything = await log.read(GEN, 0)
    assert everything is not None
    assert everything.entries == tuple(written)
    assert everything.closed
    state = await log.state(GEN)
    assert state is not None
    assert (state.epoch, state.seq, state.text, state.token_ids) == (1, 6, "a\r\ndata: 😀 ", (1, 2, 3, 4, 5, 6))
    assert state.terminal == written[-1]


@pytest.mark.parametrize(("after", "limit"), [(0, 2), (1, 1), (2, 9), (3, 1), (4, 9), (5, 1), (10**9, 9), (-5, 9)])
async def test_any_cursor_gets_everything_after_it(log: GenerationLog, after: int, limit: int) -> None:
    written = entries(META, Delta("a"), Delta("b"), Failed("engine_failed", "no", True, 500))
    await log.open(GEN, 1)
    await log.append(GEN, written)
    part = await log.read(GEN, after, limit=limit)
    assert part is not None
    wanted = [entry for entry in written if entry.seq > after][:limit]
    assert part.entries == tuple(wanted)
    assert part.closed == (after >= 4 or wanted[-1].seq == 4)


async def test_a_later_snapshot_takes_the_place_of_all_text_before_it(log: GenerationLog) -> None:
    await log.open(GEN, 1)
    await log.append(GEN, entries(META, Delta("kept"), Delta(" nobody saw this")))
    await log.append(GEN, entries(Snapshot("kept"), start=4))
    for after, seqs in ((0, [1, 4]), (1, [4]), (2, [4]), (3, [4]), (4, [])):
        page = await log.read(GEN, after)
        assert page is not None
        assert [entry.seq for entry in page.entries] == seqs
    state = await log.state(GEN)
    assert state is not None
    assert (state.seq, state.text, state.token_ids) == (4, "kept", (1, 2, 3, 4))
    await log.append(GEN, entries(DONE, start=5))
    page = await log.read(GEN, 0)
    assert page is not None
    assert [type(entry.event) for entry in page.entries] == [Meta, Snapshot, Done]
    assert page.closed


async def test_a_snapshot_or_a_retraction_replaces_the_text(log: GenerationLog) -> None:
    await log.open(GEN, 1)
    await log.append(GEN, entries(META, Snapshot("kept "), Delta("text")))
    state = await log.state(GEN)
    assert state is not None
    assert state.text == "kept text"
    await log.append(GEN, entries(Retract("moderated", "removed"), start=4))
    state = await log.state(GEN)
    assert state is not None
    assert (state.text, state.seq) == ("removed", 4)


async def test_seq_is_dense_and_ends_at_the_terminal_entry(log: GenerationLog) -> None:
    await log.open(GEN, 1)
    await log.append(GEN, entries(META))
    for wrong in (entries(Delta("x")), entries(Delta("x"), start=3), entries(DONE, Delta("x"), start=2)):
        with pytest.raises(ValueError, match=r"follow"):
            await log.append(GEN, wrong)
    await log.append(GEN, entries(DONE, start=2))
    with pytest.raises(ValueError, match="terminal"):
        await log.append(GEN, entries(Delta("x"), start=3))
    await log.append(GEN, [])
    part = await log.read(GEN, 0)
    assert part is not None
    assert [entry.seq for entry in part.entries] == [1, 2]


async def test_a_higher_epoch_goes_on_and_shuts_the_lower_one_out(log: GenerationLog) -> None:
    await log.open(GEN, 1)
    await log.append(GEN, entries(META, Delta("a")))
    state = await log.open(GEN, 3)
    assert (state.epoch, state.seq, state.text, state.token_ids) == (3, 2, "a", (1, 2))
    with pytest.raises(StaleEpoch):
        await log.append(GEN, entries(Delta("late"), start=3))
    with pytest.raises(StaleEpoch):
        await log.open(GEN, 2)
    with pytest.raises(ValueError, match="has not opened"):
        await log.append(GEN, entries(Delta("early"), start=3, epoch=4))
    await log.append(GEN, entries(Delta("b"), start=3, epoch=3))
    part = await log.read(GEN, 0)
    assert part is not None
    assert [(entry.epoch, entry.seq) for entry in part.entries] == [(1, 1), (1, 2), (3, 3)]


async def test_unknown_logs(log: GenerationLog) -> None:
    assert await log.read(GEN, 0) is None
    assert await log.state(GEN) is None
    await asyncio.wait_for(log.wait(GEN, 0), 30)
    await log.discard(GEN)
    with pytest.raises(StaleEpoch):
        await log.append(GEN, entries(META))


async def test_every_waiting_reader_wakes_and_none_polls(log: GenerationLog) -> None:
    await log.open(GEN, 1)
    await log.append(GEN, entries(META))
    await asyncio.wait_for(log.wait(GEN, 0), 30)
    waiters = [asyncio.create_task(log.wait(GEN, 1)) for _ in range(2000)]
    late = asyncio.create_task(log.wait(GEN, 2))
    await asyncio.sleep(0)
    for waiter in waiters[::2]:
        waiter.cancel()
    await log.append(GEN, entries(Delta("a"), start=2))
    outcomes = await asyncio.wait_for(asyncio.gather(*waiters, return_exceptions=True), 30)
    assert all(outcome is None for outcome in outcomes[1::2])
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes[::2])
    assert not late.done()
    await log.append(GEN, entries(DONE, start=3))
    await asyncio.wait_for(late, 30)
    await asyncio.wait_for(log.wait(GEN, 99), 30)


async def test_no_wake_up_is_lost_between_reading_and_waiting(log: GenerationLog) -> None:
    await log.open(GEN, 1)
    total = 200

    async def read_all() -> list[int]:
        seen: list[int] = []
        while True:
            part = await log.read(GEN, len(seen), limit=3)
            assert part is not None
            seen += [entry.seq for entry in part.entries]
            if part.closed:
                return seen
            if not part.entries:
                await log.wait(GEN, len(seen))

    readers = [asyncio.create_task(read_all()) for _ in range(20)]
    for seq in range(1, total):
        await log.append(GEN, entries(Delta("x"), start=seq))
        if seq % 3 == 0:
            await asyncio.sleep(0)
    await log.append(GEN, entries(DONE, start=total))
    for seen in await asyncio.wait_for(asyncio.gather(*readers), 30):
        assert seen == list(range(1, total + 1))


async def test_appends_made_at_once_keep_their_order(log: GenerationLog) -> None:
    names = [GenerationId(f"gen_{number}") for number in range(20)]
    for name in names:
        await log.open(name, 1)
    await asyncio.gather(*(log.append(name, entries(Delta(str(seq)), start=seq)) for seq in range(1, 11) for name in names))
    for name in names:
        part = await log.read(name, 0)
        assert part is not None
        assert [entry.seq for entry in part.entries] == list(range(1, 11))


async def test_an_append_whose_caller_is_cancelled_still_counts(log: GenerationLog) -> None:
    await log.open(GEN, 1)
    caller = asyncio.create_task(log.append(GEN, entries(META)))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    await log.append(GEN, entries(Delta("a"), start=2))
    part = await log.read(GEN, 0)
    assert part is not None
    assert [entry.seq for entry in part.entries] == [1, 2]


async def test_logs_expire_some_time_after_their_end(log: GenerationLog, clock: ManualClock) -> None:
    running = GenerationId("gen_running")
    for name in (GEN, running):
        await log.open(name, 1)
        await log.append(name, entries(META))
    clock.advance(10_000)
    assert await log.expire(now=clock.now()) == 0
    await log.append(GEN, entries(DONE, start=2))
    clock.advance(900)
    assert await log.expire(now=clock.now()) == 0
    clock.advance(0.001)
    assert await log.expire(now=clock.now()) == 1
    assert await log.read(GEN, 0) is None
    assert await log.state(running) is not None


async def test_discarding_wakes_readers_and_stops_the_writer(log: GenerationLog) -> None:
    await log.open(GEN, 1)
    await log.append(GEN, entries(META))
    waiter = asyncio.create_task(log.wait(GEN, 1))
    await asyncio.sleep(0)
    await log.discard(GEN)
    await asyncio.wait_for(waiter, 30)
    assert await log.state(GEN) is None
    with pytest.raises(StaleEpoch):
        await log.append(GEN, entries(Delta("a"), start=2))
