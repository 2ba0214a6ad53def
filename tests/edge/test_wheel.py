"""The wheel: every rider is visited once per turn, none after it has left."""

from __future__ import annotations

import asyncio

from antiphon.edge.wheel import Wheel


class Rider:
    def __init__(self) -> None:
        self.visits = 0

    def tick(self) -> None:
        self.visits += 1


async def test_everybody_is_visited_every_turn() -> None:
    wheel = Wheel(0.08, spokes=8)
    riders = [Rider() for _ in range(30)]
    places = [wheel.add(rider) for rider in riders]
    assert len(set(places)) == 8
    while min(rider.visits for rider in riders) < 3:
        await asyncio.sleep(0.01)
    counts = [rider.visits for rider in riders]
    assert max(counts) - min(counts) <= 1

    for rider, place in zip(riders[:20], places[:20], strict=True):
        wheel.remove(rider, place)
    before = [rider.visits for rider in riders]
    while riders[-1].visits < before[-1] + 2:
        await asyncio.sleep(0.01)
    assert [rider.visits for rider in riders[:20]] == before[:20]


async def test_an_empty_wheel_stands_still_and_turns_again() -> None:
    wheel = Wheel(0.02, spokes=4)
    for _ in range(3):
        rider = Rider()
        place = wheel.add(rider)
        while not rider.visits:
            await asyncio.sleep(0.005)
        wheel.remove(rider, place)
        await asyncio.sleep(0.05)


async def test_a_rider_may_leave_while_it_is_visited() -> None:
    wheel = Wheel(0.02, spokes=2)

    class Leaver(Rider):
        place = 0

        def tick(self) -> None:
            super().tick()
            wheel.remove(self, self.place)

    leavers = [Leaver() for _ in range(6)]
    for leaver in leavers:
        leaver.place = wheel.add(leaver)
    while not all(leaver.visits for leaver in leavers):
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.1)
    assert [leaver.visits for leaver in leavers] == [1] * 6
