"""The replica process by itself; what it does for its supervisor is in ``tests/inference/test_supervisor.py``."""

from __future__ import annotations

import subprocess
import sys

from antiphon.inference.supervisor import WORKER_COMMAND

IMPORT_OPENVINO = """
import sys
from antiphon.app.worker import forbid_telemetry
forbid_telemetry()
started = []
sys.addaudithook(lambda event, _: started.append(event) if event in {"os.fork", "subprocess.Popen", "socket.connect"} else None)
import openvino
import openvino.tools.ovc
print([name for name in sys.modules if name.startswith("openvino_telemetry.")], started)
"""

LIGHT = "import antiphon.app.worker, sys; print([name for name in ('fastapi', 'sqlalchemy', 'openvino', 'numpy') if name in sys.modules])"


def test_openvino_reports_to_nobody() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT_OPENVINO], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] []"


def test_its_own_imports_are_light() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_a_handshake_it_ends() -> None:
    assert subprocess.run(WORKER_COMMAND, stdin=subprocess.DEVNULL, check=False).returncode == 1
