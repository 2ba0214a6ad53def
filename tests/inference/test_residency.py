"""Models that do not all fit: who waits is served, what runs is never broken off, memory is never overdrawn."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from antiphon.inference.residency import Leave, Load, Move, Need, Presence, Residency, Stay, Unload

SIZES = {"a": 5, "b": 4, "c": 3, "d": 1}
BUDGET = 6
TENURE_S = 10.0
LOAD_S = 2.0


@dataclass
class World:
    """Pools that load in ``LOAD_S`` and unload in a second, and serve whom they may, in turn; each answer takes three seconds."""

    residency: Residency
    now: float = 0.0
    waiting: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in SIZES})
    background: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SIZES, 0))
    running: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in SIZES})
    begins: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(SIZES, False))
    due: list[tuple[float, str, str]] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    loads: list[tuple[float, str]] = field(default_factory=list)
    longest_s: float = 0.0

    def act(self, moves: tuple[Move, ...]) -> None:
        for move in moves:
            match move:
                case Load(name):
                    self.loads.append((self.now, name))
                    self.due.append((self.now + LOAD_S, "loaded", name))
                case Leave(name):
                    assert self.running[name], "one that does nothing is unloaded at once"
                    self.begins[name] = False
                case Stay(name):
                    self.begins[name] = True
                case Unload(name):
                    assert not self.running[name], "what runs is never broken off"
                    self.begins[name] = False
                    self.due.append((self.now + 1.0, "unloaded", name))
        self.residency.check()

    def need(self, name: str) -> Need:
        loading = self.residency.presence(name) is Presence.LOADING
        return Need(len(self.running[name]), len(self.waiting[name]), self.background[name], name in self.broken and loading)

    def step(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 0.5
            for at, what, name in [one for one in self.due if one[0] <= self.now]:
                self.due.remove((at, what, name))
                if what == "loaded" and name not in self.broken and self.residency.presence(name) is Presence.LOADING:
                    self.residency.loaded(name, self.now, LOAD_S)
                    self.begins[name] = True
                elif what == "unloaded":
                    self.residency.unloaded(name)
            for name in SIZES:
                self.running[name] = [at for at in self.running[name] if at > self.now]
                while self.begins[name] and self.waiting[name] and len(self.running[name]) < 2:
                    self.longest_s = max(self.longest_s, self.now - self.waiting[name].pop(0))
                    self.running[name].append(self.now + 3.0)
            self.act(self.residency.decide({name: self.need(name) for name in SIZES}, self.now))


def world(*, sizes: dict[str, int] = SIZES, budget: int = BUDGET) -> World:
    started = World(Residency(budget, sizes, tenure_s=TENURE_S))
    started.act(started.residency.begin(0.0))
    started.step(LOAD_S)
    return started


def there(one: World) -> set[str]:
    return {name for name in SIZES if one.residency.presence(name) is not Presence.ABSENT}


def test_at_the_start_as_many_are_loaded_as_fit() -> None:
    assert there(world()) == {"a", "d"}


def test_an_idle_model_makes_room_at_once_the_least_recently_used_first() -> None:
    one = world(sizes={"a": 3, "b": 2, "c": 1, "d": 4}, budget=6)
    assert there(one) == {"a", "b", "c"}
    one.waiting["a"].append(one.now)
    one.step(5.0)
    one.waiting["c"].append(one.now)
    one.step(5.0)
    one.waiting["d"].append(one.now)
    one.step(0.5)
    assert {name for name in SIZES if one.residency.presence(name) is Presence.UNLOADING} == {"a", "b"}
    one.step(5.0)
    assert there(one) == {"c", "d"}
    assert one.waiting["d"] == []


def test_what_runs_ends_first_and_who_comes_back_stays() -> None:
    one = world()
    one.waiting["a"] += [one.now] * 2
    one.step(1.0)
    one.waiting["b"].append(one.now)
    one.step(TENURE_S)
    assert one.residency.presence("b") in {Presence.LOADING, Presence.RESIDENT}
    again = world()
    again.step(TENURE_S)
    again.waiting["a"].append(again.now)
    again.step(0.5)
    again.waiting["b"].append(again.now)
    again.step(0.5)
    assert again.residency.presence("a") is Presence.LEAVING
    again.waiting["b"].clear()
    again.step(0.5)
    assert again.residency.presence("a") is Presence.RESIDENT
    assert again.begins["a"]


def test_two_that_are_always_wanted_take_turns_and_each_is_served_for_its_tenure() -> None:
    one = world()
    for _ in range(400):
        for name in ("a", "b"):
            if len(one.waiting[name]) < 4:
                one.waiting[name].append(one.now)
        one.step(0.5)
    swaps = [at for at, name in one.loads if name in {"a", "b"}]
    assert len(swaps) >= 10
    assert min(later - earlier for earlier, later in pairwise(swaps[1:])) >= TENURE_S
    assert one.longest_s <= 3 * (TENURE_S + LOAD_S + 1.0 + 3.0)


def test_a_large_model_is_not_kept_out_by_small_ones_whose_tenures_overlap() -> None:
    one = world(sizes={"b": 3, "c": 3, "d": 3, "a": 6}, budget=6)
    one.step(5.0)
    one.waiting["d"].append(one.now)
    one.step(6.0)
    for _ in range(300):
        for name in SIZES:
            if len(one.waiting[name]) < 3:
                one.waiting[name].append(one.now)
        one.step(0.5)
    assert [name for _, name in one.loads].count("a") >= 2
    assert one.longest_s <= 5 * (TENURE_S + LOAD_S + 1.0 + 3.0)


def test_work_in_the_background_takes_nobodys_place() -> None:
    one = world()
    one.waiting["a"].append(one.now)
    one.step(1.0)
    one.background["b"] = 1
    one.step(8.0)
    assert there(one) == {"a", "d"}
    one.step(TENURE_S)
    assert "b" in there(one)


def test_one_that_cannot_be_loaded_gives_its_room_back_and_is_not_tried_at_once() -> None:
    one = world()
    one.broken.add("b")
    one.waiting["b"].append(one.now)
    one.step(8.0)
    assert there(one) & {"a", "b"} == set()
    assert not one.residency.loadable("b", one.now)
    one.waiting["a"].append(one.now)
    one.step(5.0)
    assert one.waiting["a"] == []
    assert [name for _, name in one.loads].count("b") == 1


def test_a_time_is_told_by_the_answers_under_way_and_by_those_that_are_wanted_before() -> None:
    one = world(sizes=dict.fromkeys(SIZES, 5))
    residency = one.residency
    assert residency.opening_s("b", one.now) == LOAD_S, "as another of its size took"
    one.now += TENURE_S
    residency.decide({"a": Need(running=1, emptied_s=7.0), "b": Need(waiting=1)}, one.now)
    assert residency.presence("a") is Presence.LEAVING
    assert residency.opening_s("b", one.now) == 7.0 + LOAD_S
    assert residency.opening_s("c", one.now) == 7.0 + LOAD_S + TENURE_S + LOAD_S
    assert residency.opening_s("a", one.now) == residency.opening_s("c", one.now)


def test_a_load_that_is_late_is_expected_to_be_late_for_as_long_again() -> None:
    residency = Residency(5, {"a": 5})
    residency.begin(0.0)
    told = [residency.opening_s("a", now) for now in (0.0, 4.0, 5.0, 15.0)]
    assert told == [5.0, 1.0, 0.5, 10.0]


class Residents(RuleBasedStateMachine):
    """Anybody wants anything and goes away again: memory is not overdrawn, and who stays is served in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.world = world()

    @rule(name=st.sampled_from(list(SIZES)), count=st.integers(1, 3))
    def ask(self, name: str, count: int) -> None:
        self.world.waiting[name] += [self.world.now] * count

    @rule(name=st.sampled_from(list(SIZES)))
    def go_away(self, name: str) -> None:
        self.world.waiting[name].clear()
        self.world.background[name] = 0

    @rule(name=st.sampled_from(list(SIZES)))
    def cancel_what_runs(self, name: str) -> None:
        self.world.running[name].clear()

    @rule(name=st.sampled_from(list(SIZES)))
    def ask_in_the_background(self, name: str) -> None:
        self.world.background[name] = 1

    @rule(name=st.sampled_from(list(SIZES)), broken=st.booleans())
    def break_or_mend(self, name: str, broken: bool) -> None:
        (self.world.broken.add if broken else self.world.broken.discard)(name)

    @rule(seconds=st.sampled_from([0.5, 1.0, 4.0, 15.0]))
    def wait(self, seconds: float) -> None:
        self.world.step(seconds)

    @invariant()
    def fits(self) -> None:
        self.world.residency.check()

    def teardown(self) -> None:
        """In peace, everybody is served."""
        self.world.broken.clear()
        for name in SIZES:
            self.world.background[name] = 0
        self.world.step(400.0)
        assert all(not waiting for waiting in self.world.waiting.values())


TestResidents = Residents.TestCase
TestResidents.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
