"""The real runner, log, store and reader in a simulated world: no seed may break a promise, and every planted bug is found."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog

from tests.faults.bugs import BUGS
from tests.faults.promises import run
from tests.faults.world import Story

CLEAN_SEEDS = 500
MANY_SEEDS = 5000
BUG_SEEDS = 2000


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with structlog.testing.capture_logs():
        yield


def hold(seeds: range) -> None:
    for seed in seeds:
        try:
            run(seed)
        except Exception as broken:
            raise AssertionError(f"seed {seed}: {broken}; replay it: python -m tests.faults.replay {seed}") from broken


@pytest.mark.timeout(300)
def test_no_seed_breaks_a_promise() -> None:
    hold(range(CLEAN_SEEDS))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_seed_of_many_breaks_a_promise() -> None:
    hold(range(CLEAN_SEEDS, MANY_SEEDS))


def test_a_seed_is_replayed_step_by_step() -> None:
    def told(seed: int) -> list[str]:
        lines: list[str] = []
        run(seed, Story(lambda at, what: lines.append(f"{at} {what.partition(' screen ')[0]}")))
        return lines

    assert told(11) == told(11)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    with BUGS[bug]():
        for seed in range(BUG_SEEDS):
            try:
                run(seed)
            except Exception as broken:  # noqa: BLE001 - an error that no correct code raises is a find too
                print(f"{bug}: seed {seed}: {broken}; replay it: python -m tests.faults.replay {seed} {bug!r}")
                return
    raise AssertionError(f"no seed below {BUG_SEEDS} finds it")
