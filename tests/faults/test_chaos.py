"""Twenty minutes of cancels, kills and failovers, and usage is what the engines did, by model and tenant, exactly."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.chaos import TENANTS, Attempt, Chaos, account_of, attempts_of, told

pytestmark = pytest.mark.system

SECONDS = float(os.environ.get("ANTIPHON_CHAOS_SECONDS", "1200"))


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 900)
def test_usage_is_what_the_engines_did_through_chaos(tmp_path: Path) -> None:
    chaos = Chaos(tmp_path, seed=1)
    try:
        chaos.run(SECONDS)
        account = account_of(chaos)
    finally:
        chaos.server.end()
    print(told(chaos, account))
    assert not account.faults, told(chaos, account)
    assert account.billed == account.computed
    assert len(account.billed) == 2 * len(TENANTS)
    assert account.exact > SECONDS / 2
    assert account.read_again > 0, "nothing was computed twice: nothing failed over"
    assert account.estimated > 0, "no engine died under an answer"


def test_an_engines_word_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "counted.jsonl"
    said = '"pid": 1, "handle": 4, "generation": "gen_1", "tenant": "t"'
    file.write_text(
        f'{{"kind": "began", {said}, "prompt": 9}}\n{{"kind": "read", {said}, "tokens": 9}}\n{{"kind": "sampled", {said}}}\n'
        '{"kind": "began", "pid": 2, "handle": 1, "generation": "gen_1", "tenant": "t", "prompt": 9}\n'
    )
    assert attempts_of(file) == {"gen_1": [Attempt("t", 9, read=9, sampled=1), Attempt("t", 9)]}
