"""Importing OpenVINO starts no process and opens no connection."""

from __future__ import annotations

import subprocess
import sys

import pytest

WATCHED_IMPORT = """
import sys
started = []
sys.addaudithook(lambda event, _: started.append(event) if event in {"os.fork", "subprocess.Popen", "socket.connect"} else None)
import antiphon.engines.quiet_openvino
import openvino_genai
print([name for name in sys.modules if name.startswith("openvino_telemetry.")], started)
"""


def test_importing_openvino_reports_to_nobody() -> None:
    done = subprocess.run([sys.executable, "-c", WATCHED_IMPORT], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] []"


@pytest.mark.parametrize("module", ["antiphon.engines.paged_model", "antiphon.engines.convert"])
def test_no_module_of_ours_imports_it_otherwise(module: str) -> None:
    line = f"import sys, {module}; print([name for name in sys.modules if name.startswith('openvino_telemetry.')])"
    assert subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True).stdout.strip() == "[]"
