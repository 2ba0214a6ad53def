"""The replica process by itself; what it does for its supervisor is in ``tests/inference/test_supervisor.py``."""

from __future__ import annotations

import subprocess
import sys

from antiphon.inference.supervisor import WORKER_COMMAND

LIGHT = "import antiphon.app.worker, sys; print([name for name in ('fastapi', 'sqlalchemy', 'openvino', 'numpy') if name in sys.modules])"


def test_its_own_imports_are_light() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_a_handshake_it_ends() -> None:
    assert subprocess.run(WORKER_COMMAND, stdin=subprocess.DEVNULL, check=False).returncode == 1
