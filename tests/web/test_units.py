"""The browser client's own unit tests, run by Vitest: the SSE reader, the resuming stream, the markdown blocks."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tools.web import node

WEB = Path(__file__).parents[2] / "web"


@pytest.mark.timeout(180)
def test_units_of_the_browser_client() -> None:
    program = node()
    if program is None or not (WEB / "node_modules").exists():
        pytest.skip("the browser client's packages are not installed")
    command = [program, "node_modules/vitest/vitest.mjs", "run", "--reporter=json", "--testTimeout=60000"]
    done = subprocess.run(command, cwd=WEB, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    report = json.loads(done.stdout)
    assert report["numFailedTests"] == 0
    assert report["numPassedTests"] > 50
