"""Organisations that all have something waiting, with answers of very different lengths: each is given its share of the cost."""

from __future__ import annotations

import heapq
import random
from collections import Counter

import pytest

from antiphon.inference.ask import Ask
from antiphon.inference.fair_share import INPUT_COST, OUTPUT_COST
from tests.inference.virtual_pool import Machine, Turn, VirtualPool

TENANTS = (
    ((4, 20), (20, 60)),
    ((150, 250), (20, 60)),
    ((10, 250), (20, 60)),
    ((4, 20), (300, 600)),
    ((60, 120), (100, 200)),
    ((200, 256), (20, 40)),
    ((1, 2), (20, 60)),
    ((30, 90), (20, 60)),
)
"""Shortest and longest answer, and prompt, in tokens. All ask alike, and are charged alike until it is known what they cost."""
_BEGINS_S, _ENDS_S = 12.0, 72.0


class Backlog(VirtualPool):
    """Each tenant has ``waiting`` turns in line all the while. They are ready later than they come, and not in that order."""

    def __init__(self, machine: Machine, waiting: tuple[int, ...], *, fair: bool = True) -> None:
        super().__init__(machine, queue_limit=10**9, fair=fair, refuses=False)
        self._waiting = waiting
        self._rng = random.Random(0)
        self._tenant_of: dict[int, int] = {}
        self._coming: list[tuple[float, int, Turn]] = []
        self._cost: Counter[int] = Counter()

    def least_share(self) -> float:
        """Of the cost of all that was computed in a minute, against an eighth of it."""
        before: Counter[int] | None = None
        while self.now < _ENDS_S:
            if before is None and self.now >= _BEGINS_S:
                before = Counter(self._cost)
            self._advance()
        assert before is not None
        given = self._cost - before
        assert self.faults == []
        self.policy.check()
        return min(given[tenant] for tenant in range(len(TENANTS))) / (given.total() / len(TENANTS))

    def _advance(self) -> None:
        self._fill()
        step_ends = self._step_ends if self._step is not None else float("inf")
        self.now = max(min(self._coming[0][0] if self._coming else float("inf"), step_ends, self._tell_at), self.now)
        if self._step is not None and self._step_ends <= self.now:
            self._charge()
            self._finish_step()
        while self._coming and self._coming[0][0] <= self.now:
            turn = heapq.heappop(self._coming)[2]
            self.policy.attach(turn.number, turn.ask)
        self._go_on()

    def _fill(self) -> None:
        here = Counter(self._tenant_of[number] for number in self.open if self.policy.waits(number))
        for tenant, (lengths, prompts) in enumerate(TENANTS):
            for _ in range(self._waiting[tenant] - here[tenant]):
                number = len(self._tenant_of)
                ask = Ask(f"tenant-{tenant}", "", self._rng.randint(*prompts), 256, wait_limit_s=600)
                turn = self.open[number] = Turn(number, ask, self._rng.randint(*lengths), None, self.now)
                self._tenant_of[number] = tenant
                self.policy.enter(number, ask, self.now, ready=False, look=self.policy.look(ask, self.now))
                late_s = self._rng.random() * (3.0 if self.now < 1.0 else 0.5)
                heapq.heappush(self._coming, (self.now + late_s, number, turn))

    def _charge(self) -> None:
        assert self._step is not None
        firsts, ended = self._step
        for turn in firsts:
            self._cost[self._tenant_of[turn.number]] += round(INPUT_COST * turn.ask.prompt_tokens)
        for turn in (*self.engine.running.values(), *(turn for _, turn in ended)):
            self._cost[self._tenant_of[turn.number]] += round(OUTPUT_COST)


def test_whose_answers_are_shorter_than_is_expected_has_its_share() -> None:
    assert Backlog(Machine(blocks=96), (30,) * 8).least_share() >= 0.9
    assert Backlog(Machine(blocks=96), (30,) * 8, fair=False).least_share() < 0.5


@pytest.mark.slow
def test_so_has_everybody_beside_one_whose_line_is_long() -> None:
    assert Backlog(Machine(), (200, *(30,) * 7)).least_share() >= 0.9
