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


LOGS_AND_GOES_ON = """
import sys
import structlog
from antiphon.app.logging import configure_logging

configure_logging(sys.argv[1])
for number in range(1000):
    structlog.get_logger("test").info("a line that nobody can take", number=number)
print("still here")
"""


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_full_disk_under_the_log_stops_nobody(log_format: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", LOGS_AND_GOES_ON, log_format], stdout=subprocess.PIPE, stderr=full, text=True, check=False
        )
    assert done.stdout == "still here\n"


LOGS_WHAT_IT_IS_GIVEN = """
import structlog
from antiphon.app.logging import configure_logging

configure_logging("text")
structlog.get_logger("test").info("request", path="/v1/x\\n2026 [error] forged", named="a b=1", plain="/v1/keys", number=3, nothing=None)
"""


def test_no_value_makes_a_line_or_a_field_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", LOGS_WHAT_IT_IS_GIVEN], capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert " request " in line
    assert line.endswith(r" named='a b=1' nothing=None number=3 path='/v1/x\n2026 [error] forged' plain=/v1/keys")
