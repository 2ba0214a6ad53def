"""The import contracts catch what they promise. `make lint` holds them on the real code; here faults are planted in a copy."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.repository import ROOT, SOURCE

PLANTED = {
    "inference/scheduler.py": "import antiphon.edge.sse",
    "engines/text.py": "import antiphon.inference.gateway",
    "orchestrator/prompt.py": "import antiphon.governance",
    "orchestrator/turn.py": "import antiphon.stores.generations.sql",
    "edge/auth.py": "import antiphon.stores.accounts.memory",
    "inference/kv_blocks.py": "import asyncio",
    "core/clock.py": "import time",
    "sim/__init__.py": "import antiphon.engines.openvino",
    "client/sse.py": "import antiphon.stores.log.base",
    "utils.py": "",
}
COMPLAINTS = (
    "antiphon.inference.scheduler -> antiphon.edge.sse",
    "antiphon.engines.text -> antiphon.inference.gateway",
    "antiphon.orchestrator.prompt -> antiphon.governance",
    "antiphon.orchestrator.turn -> antiphon.stores.generations.sql",
    "antiphon.edge.auth -> antiphon.stores.accounts.memory",
    "antiphon.inference.kv_blocks -> asyncio",
    "antiphon.core.clock -> time",
    "antiphon.sim -> antiphon.engines.openvino",
    "antiphon.client.sse -> antiphon.stores.log.base",
    "antiphon.utils",
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What import-linter says about a copy of the source with every fault planted."""
    copy = tmp_path_factory.mktemp("planted")
    package = copy / "antiphon"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("static", "__pycache__"))
    for module, line in PLANTED.items():
        path = package / module
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        path.write_text(f"{text}\n{line}\n", encoding="utf-8")
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache", "--config", str(ROOT / "pyproject.toml")]
    result = subprocess.run(command, cwd=copy, env={"PYTHONPATH": str(copy)}, capture_output=True, text=True, check=False)
    assert result.returncode == 1, result.stdout + result.stderr
    return " ".join(result.stdout.split())


@pytest.mark.parametrize("complaint", COMPLAINTS)
def test_a_planted_import_is_reported(complaint: str, report: str) -> None:
    assert complaint in report


@pytest.mark.parametrize(
    "line",
    [
        "import random",
        "import time\ntime.time()",
        "from datetime import datetime\ndatetime.now()",
        "from uuid import uuid4",
        "import secrets",
    ],
)
def test_time_and_chance_are_arguments(line: str) -> None:
    command = [str(Path(sys.executable).parent / "ruff"), "check", "--select", "TID251", "--stdin-filename"]
    elsewhere = subprocess.run(
        [*command, "src/antiphon/inference/x.py", "-"], cwd=ROOT, input=line, capture_output=True, text=True, check=False
    )
    assert "TID251" in elsewhere.stdout
    system = subprocess.run(
        [*command, "src/antiphon/app/system.py", "-"], cwd=ROOT, input=line, capture_output=True, text=True, check=False
    )
    assert "TID251" not in system.stdout
