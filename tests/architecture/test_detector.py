"""The detector of blocking calls works: a control that blocks is caught, in our code alone."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from blockbuster import BlockingError

from antiphon.core import clock as ours


async def test_a_blocking_call_of_ours_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    code = compile("def block(sleep):\n    sleep(0)\n", ours.__file__, "exec")
    planted: dict[str, object] = {}
    exec(code, planted)
    block = planted["block"]
    assert callable(block)
    with pytest.raises(BlockingError):
        block(time.sleep)


async def test_what_runs_in_a_thread_may_block() -> None:
    await asyncio.to_thread(time.sleep, 0)


async def test_the_tests_own_calls_may_block(tmp_path: Path) -> None:
    (tmp_path / "note").write_text("fine")
    assert (tmp_path / "note").read_text() == "fine"
