"""Every benchmark finds what it imports: they are run too seldom to notice by themselves."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

import benchmarks

NAMES = sorted(path.stem for path in Path(benchmarks.__path__[0]).glob("[a-z]*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_can_be_started(name: str) -> None:
    import_module(f"benchmarks.{name}")
