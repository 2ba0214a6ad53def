"""Log lines say what happened, never what people wrote."""

from __future__ import annotations

import subprocess
import sys

import pytest

FAILS_WITH_A_SECRET = """
import sys
import structlog
from antiphon.app.logging import configure_logging

configure_logging(sys.argv[1])


def fails(text: str) -> None:
    raise ValueError("no")


try:
    fails("the user's own words")
except ValueError:
    structlog.get_logger("test").exception("it_failed", number=7)
"""


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_traceback_shows_no_values(log_format: str) -> None:
    done = subprocess.run([sys.executable, "-c", FAILS_WITH_A_SECRET, log_format], capture_output=True, text=True, check=True)
    assert "it_failed" in done.stderr
    assert "ValueError: no" in done.stderr
    assert "own words" not in done.stderr
    assert done.stdout == ""
