"""What must hold when the dust has settled."""

from __future__ import annotations

import asyncio
from random import Random

from antiphon.core.generation import GenerationStatus
from antiphon.core.ids import GenerationId
from tests.faults.loop import SimulatedLoop, Stuck, simulate
from tests.faults.machinery import TOKENIZER
from tests.faults.people import User
from tests.faults.world import UNTOLD, Broken, Story, World

_SETTLE_S = 90.0
_CANCEL_WITHIN_S = 2.5


def run(seed: int, story: Story = UNTOLD) -> None:
    """One seed. Raises ``Broken`` with the first promise that was not kept."""
    random = Random(seed)
    simulate(random, lambda loop: _run(loop, random, story))


async def _run(loop: SimulatedLoop, random: Random, story: Story) -> None:
    world = World(loop, random, story)
    loop.set_exception_handler(lambda _, context: None)
    for _ in range(2 if world.shared else 1):
        await world.start()
    users = [asyncio.ensure_future(User(world, number).run()) for number in range(random.choice((1, 2)))]
    faults = asyncio.ensure_future(world.go_wrong())
    try:
        try:
            async with asyncio.timeout(_SETTLE_S):
                await asyncio.gather(faults, *users)
                await _all_over(world)
        except TimeoutError:
            raise Broken("somebody still waits") from None
        except Stuck as stuck:
            raise Broken(str(stuck)) from None
        if world.failures:
            raise Broken(world.failures[0])
        for generation_id in world.accepted:
            await _check(world, generation_id)
        _check_counters(world)
    finally:
        for task in (faults, *users):
            task.cancel()


async def _all_over(world: World) -> None:
    while any(not row.status.terminal for row in world.state.generations.values()) or any(
        server.runner.running for server in world.servers
    ):
        await asyncio.sleep(0.5)
    await asyncio.sleep(1.0 + max((0.0, *(server.process.paused_until - world.loop.time() for server in world.servers))))


async def _check(world: World, generation_id: GenerationId) -> None:
    row = world.state.generations[generation_id]
    message = world.state.messages[row.message_id]
    records = [record for record in world.state.outbox if record.dedup_key == generation_id]
    if len(records) != 1:
        raise Broken(f"{generation_id}: {len(records)} usage records")
    if message.content == "" and row.status is GenerationStatus.COMPLETE:
        raise Broken(f"{generation_id}: complete and empty")
    ended_early = row.status in {GenerationStatus.INTERRUPTED, GenerationStatus.FAILED}
    # A journal that could not be written loses with its process what it holds in memory.
    if ended_early and generation_id not in world.engine_deaths | world.lost:
        raise Broken(f"{generation_id}: {row.status} although its engine lived: {row.error}")
    _check_text(world, generation_id, row.status, message.content)
    asked_at = world.cancel_asked.get(generation_id)
    if asked_at is not None and row.status is GenerationStatus.COMPLETE and row.finished_at is not None:
        late = (row.finished_at - world.clock.now()).total_seconds() + world.loop.time() - max(asked_at, world.trouble_until)
        if late > _CANCEL_WITHIN_S:
            raise Broken(f"{generation_id}: went on {late:.1f} s after its stop")
    for server in world.servers:
        if generation_id not in world.lost:
            await _check_log(server.log, generation_id, message.content)


def _check_text(world: World, generation_id: GenerationId, status: GenerationStatus, content: str) -> None:
    expected = world.expected.get(generation_id)
    if expected is not None:
        whole = expected[1]
        if status is GenerationStatus.COMPLETE and content != whole:
            raise Broken(f"{generation_id}: {content!r} instead of {whole!r}")
        if not whole.startswith(content):
            raise Broken(f"{generation_id}: {content!r} is no beginning of {whole!r}")


async def _check_log(log: object, generation_id: GenerationId, content: str) -> None:
    page = await log.read(generation_id, 0, limit=10_000)  # type: ignore[attr-defined]
    if page is None:
        return
    seq, epoch, ends = 0, 0, 0
    for entry in page.entries:
        if entry.seq != seq + 1 and type(entry.event).__name__ != "Snapshot":
            raise Broken(f"{generation_id}: seq {entry.seq} after {seq}")
        if entry.epoch < epoch:
            raise Broken(f"{generation_id}: epoch {entry.epoch} after {epoch}")
        seq, epoch, ends = entry.seq, entry.epoch, ends + entry.terminal
    if ends != 1 or not page.entries[-1].terminal:
        raise Broken(f"{generation_id}: {ends} terminal entries")
    state = await log.state(generation_id)  # type: ignore[attr-defined]
    if state.text != content:
        raise Broken(f"{generation_id}: the log has {state.text!r}, the store {content!r}")
    stream = TOKENIZER.text_stream()
    rendered = "".join(stream.push(token_id) for token_id in state.token_ids) + stream.finish()
    if not rendered.startswith(state.text):
        raise Broken(f"{generation_id}: the log's ids say {rendered!r}, its text {state.text!r}")


def _check_counters(world: World) -> None:
    for server in world.servers:
        left = (len(server.runner.readers), server.runner.running, len(server.gateway.speaking), server.streams.tails.running)
        if server.alive and any(left):
            raise Broken(f"left over: {left[0]} readerships, {left[1]} runs, {left[2]} requests, {left[3]} tails")
