from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from antiphon.core.tenancy import Band
from antiphon.inference.ask import Ask
from antiphon.inference.wait_queue import MOST_PASSES, Waiter, WaitQueue


def ask(tenant: str = "t", user: str = "u", band: Band = Band.STANDARD, *, limit_s: float = 10.0, reserved: float = 0.0) -> Ask:
    return Ask(tenant, user, 10, 10, band=band, wait_limit_s=limit_s, reserved_tokens_per_s=reserved)


def always(waiter: Waiter[str], band: Band) -> bool:
    return True


def drain(queue: WaitQueue[str], now: float = 0.0) -> list[str]:
    started: list[str] = []
    while (waiter := queue.pick(now, always)) is not None:
        queue.start(waiter, now)
        queue.check()
        started.append(waiter.key)
    return started


def enter(queue: WaitQueue[str], key: str, asked: Ask, *, now: float = 0.0, cost: float = 100.0, ready: bool = True) -> None:
    queue.enter(key, asked, cost=cost, tokens=100, now=now, ready=ready)


def test_higher_bands_go_first() -> None:
    queue: WaitQueue[str] = WaitQueue()
    for band in Band:
        enter(queue, band.name, ask(band=band))
    assert [waiter.key for _, waiter in queue.order(0.0)] == ["HIGH", "STANDARD", "LOW", "BATCH"]
    assert drain(queue) == ["HIGH", "STANDARD", "LOW", "BATCH"]


def test_a_band_gets_its_part_beside_a_higher_one_that_never_ends() -> None:
    queue: WaitQueue[str] = WaitQueue()
    for number in range(100):
        enter(queue, f"high-{number}", ask(f"t{number}", band=Band.HIGH))
        enter(queue, f"low-{number}", ask(f"t{number}", band=Band.LOW))
    first = drain(queue)[:100]
    assert 10 <= sum(key.startswith("low") for key in first) <= 20


def test_tenants_take_turns_and_inside_them_their_users() -> None:
    queue: WaitQueue[str] = WaitQueue()
    for number in range(20):
        enter(queue, f"flood-{number}", ask("flooder"))
    for number in range(3):
        enter(queue, f"calm-{number}", ask("calm", "one"))
    enter(queue, "calm-other", ask("calm", "two"))
    started = drain(queue)
    assert sorted(started[:8]) == sorted(["flood-0", "flood-1", "flood-2", "flood-3", "calm-0", "calm-1", "calm-2", "calm-other"])
    assert started.index("calm-other") < started.index("calm-1")
    fcfs: WaitQueue[str] = WaitQueue(fair=False)
    for number in range(20):
        enter(fcfs, f"flood-{number}", ask("flooder"))
    enter(fcfs, "calm", ask("calm"))
    assert drain(fcfs)[-1] == "calm"


def test_who_floods_with_answers_that_get_longer_than_expected_pays_for_them_before_its_line_has_gone() -> None:
    """Two users of one organisation, one with a hundred requests that each cost four times what they were charged."""
    queue: WaitQueue[str] = WaitQueue()
    for number in range(100):
        enter(queue, f"flood-{number}", ask(user="flooder"))
    served = {"flood": 0.0, "calm": 0.0}
    for number in range(80):
        enter(queue, f"calm-{number}", ask(user="calm"))
        waiter = queue.pick(0.0, always)
        assert waiter is not None
        queue.start(waiter, 0.0)
        who = waiter.key.partition("-")[0]
        cost = 400.0 if who == "flood" else 100.0
        served[who] += cost
        queue.correct(waiter, cost)
        queue.check()
    assert 0.7 <= served["calm"] / served["flood"] <= 1.4


class Crowd:
    """Eight who have something waiting all the while, one of them twenty times as much; twenty are served at once, in virtual time.

    What they send is not ready when it comes: at first for seconds, since all come at once. Prompts cost a third of what they are
    charged. They are users of one organisation.
    """

    def __init__(self, *, fair: bool = True) -> None:
        self.queue: WaitQueue[str] = WaitQueue(fair=fair)
        self.rng = random.Random(1)
        self.events: list[tuple[float, int, str, str]] = []
        self.numbers = itertools.count()
        self.running: dict[str, Waiter[str]] = {}
        self.served: Counter[str] = Counter()

    def least_share(self) -> float:
        """Of the tokens that are ended between 12 and 60 s."""
        for who in range(8):
            for _ in range(120 if who == 0 else 6):
                self.at(self.rng.random() * 0.3, "come", f"{who}")
        while self.events[0][0] < 60:
            now, _, what, name = heapq.heappop(self.events)
            getattr(self, what)(name, now)
            while len(self.running) < 20 and (waiter := self.queue.pick(now, always)) is not None:
                self.queue.start(waiter, now)
                self.running[waiter.key] = waiter
                self.at(now + waiter.ask.output_tokens / 12, "end", waiter.key)
        self.queue.check()
        return min(self.served[f"{who}"] for who in range(1, 8)) / (self.served.total() / 8)

    def at(self, when: float, what: str, name: str) -> None:
        heapq.heappush(self.events, (when, next(self.numbers), what, name))

    def come(self, who: str, now: float) -> None:
        key, length = f"{who}-{next(self.numbers)}", self.rng.randint(16, 48)
        asked = Ask("t", who, 72, length, wait_limit_s=600)
        self.queue.enter(key, asked, cost=72 + 2 * length, tokens=80, now=now, ready=False)
        self.at(now + self.rng.random() * (3.0 if now < 1 else 0.1), "be_ready", key)

    def be_ready(self, key: str, now: float) -> None:
        self.queue.come(key)

    def end(self, key: str, now: float) -> None:
        waiter = self.running.pop(key)
        self.queue.correct(waiter, 24 + 2 * waiter.ask.output_tokens)
        who = key.partition("-")[0]
        if now > 12:
            self.served[who] += waiter.ask.output_tokens
        self.at(now + 0.05, "come", who)


def test_beside_a_flooder_the_others_have_their_share_though_nothing_is_ready_at_once_nor_costs_what_it_is_charged() -> None:
    assert Crowd().least_share() >= 0.9
    assert Crowd(fair=False).least_share() < 0.5


def test_whoever_has_nothing_before_it_of_its_own_is_overtaken_by_no_later_arrival_of_its_band() -> None:
    queue: WaitQueue[str] = WaitQueue()
    for number in range(10):
        enter(queue, str(number), ask(f"t{number}"))
    waiter = queue.pick(0.0, always)
    assert waiter is not None
    queue.start(waiter, 0.0)
    enter(queue, "late", ask("newcomer"))
    assert [waiter.key for _, waiter in queue.order(0.0)] == [*map(str, range(1, 10)), "late"]


def test_waiting_lifts_and_the_background_rises_to_low_at_most() -> None:
    queue: WaitQueue[str] = WaitQueue()
    enter(queue, "old", ask("a", band=Band.LOW, limit_s=1.0))
    enter(queue, "batch", ask("b", band=Band.BATCH, limit_s=1.0))
    enter(queue, "new", ask("c", band=Band.STANDARD, limit_s=100.0), now=5.0)
    order = [waiter.key for _, waiter in queue.order(5.0)]
    assert order == ["old", "new", "batch"]
    assert queue.waiting(Band.LOW) == 1


def test_reserved_tokens_go_first_until_they_are_used_up() -> None:
    queue: WaitQueue[str] = WaitQueue()
    for number in range(4):
        enter(queue, f"other-{number}", ask(f"o{number}", band=Band.HIGH))
        enter(queue, f"mine-{number}", ask("mine", band=Band.LOW, reserved=40.0))
    assert drain(queue)[:2] == ["mine-0", "mine-1"]
    idle: WaitQueue[str] = WaitQueue()
    enter(idle, "other", ask("o"))
    assert drain(idle) == ["other"], "a reserve that nobody uses is nobody's loss"


def test_what_does_not_fit_is_passed_a_few_times_and_then_waited_for() -> None:
    queue: WaitQueue[str] = WaitQueue()
    enter(queue, "large", ask("a"))
    for number in range(10):
        enter(queue, f"small-{number}", ask(f"s{number}"))

    def only_small(waiter: Waiter[str], band: Band) -> bool:
        return waiter.key != "large"

    passed = 0
    while (waiter := queue.pick(0.0, only_small)) is not None:
        queue.start(waiter, 0.0)
        passed += 1
    assert passed == MOST_PASSES


def test_a_place_is_kept_for_one_that_is_not_ready_and_nobody_waits_for_it() -> None:
    queue: WaitQueue[str] = WaitQueue()
    enter(queue, "absent", ask("a"), ready=False)
    enter(queue, "there", ask("b"))
    assert drain(queue) == ["there"]
    absent = queue.get("absent")
    assert absent is not None
    absent.ready = True
    assert drain(queue) == ["absent"]


class QueueMachine(RuleBasedStateMachine):
    """Any order of arrivals, cancels, starts, corrections and waiting: nobody is lost, doubled or stranded."""

    @initialize(fair=st.booleans())
    def begin(self, fair: bool) -> None:
        self.queue: WaitQueue[int] = WaitQueue(fair=fair)
        self.now = 0.0
        self.there: set[int] = set()
        self.started: list[Waiter[int]] = []
        self.number = 0

    @rule(
        tenant=st.sampled_from("abc"),
        user=st.sampled_from("xy"),
        band=st.sampled_from(list(Band)),
        cost=st.floats(1.0, 500.0),
        limit_s=st.floats(0.5, 20.0),
        reserved=st.sampled_from([0.0, 0.0, 50.0]),
    )
    def arrive(self, tenant: str, user: str, band: Band, cost: float, limit_s: float, reserved: float) -> None:
        self.number += 1
        asked = ask(tenant, user, band, limit_s=limit_s, reserved=reserved)
        self.queue.enter(self.number, asked, cost=cost, tokens=round(cost), now=self.now)
        self.there.add(self.number)

    @precondition(lambda self: self.there)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.there)))
        before = [waiter.key for _, waiter in self.queue.order(self.now)]
        bands = {waiter.key: (waiter.band, waiter.passed_over) for _, waiter in self.queue.order(self.now)}
        assert self.queue.leave(key) is not None
        assert self.queue.leave(key) is None
        self.there.discard(key)
        after = [waiter.key for _, waiter in self.queue.order(self.now)]
        assert sorted(after) == sorted(other for other in before if other != key)
        assert all((waiter.band, waiter.passed_over) == bands[waiter.key] for _, waiter in self.queue.order(self.now))

    @precondition(lambda self: self.there)
    @rule(data=st.data(), band=st.sampled_from(list(Band)))
    def move(self, data: st.DataObject, band: Band) -> None:
        key = data.draw(st.sampled_from(sorted(self.there)))
        waiter = self.queue.get(key)
        assert waiter is not None
        self.queue.move(key, ask(waiter.ask.tenant, waiter.ask.user, band, limit_s=waiter.ask.wait_limit_s))

    @rule(seconds=st.floats(0.0, 5.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(fitting=st.floats(1.0, 600.0))
    def start(self, fitting: float) -> None:
        expected = [waiter.key for _, waiter in self.queue.order(self.now)]
        waiter = self.queue.pick(self.now, lambda candidate, band: candidate.tokens <= fitting)
        if waiter is None:
            return
        assert waiter.tokens <= fitting
        if fitting >= 600.0:
            assert waiter.key in expected
        self.queue.start(waiter, self.now)
        self.there.discard(waiter.key)
        self.started.append(waiter)

    @precondition(lambda self: self.started)
    @rule(data=st.data(), cost=st.floats(0.0, 900.0))
    def end(self, data: st.DataObject, cost: float) -> None:
        self.queue.correct(self.started.pop(data.draw(st.integers(0, len(self.started) - 1))), cost)

    @invariant()
    def holds(self) -> None:
        self.queue.check()
        assert {waiter.key for _, waiter in self.queue.order(self.now)} == self.there
        assert self.queue.pick(self.now, lambda candidate, band: True) is not None or not self.there


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
