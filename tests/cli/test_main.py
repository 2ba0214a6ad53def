"""The parser and its exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from antiphon import __version__
from tests.cli.conftest import Antiphon


def test_version_alone_on_stdout(antiphon: Antiphon) -> None:
    outcome = antiphon("version")
    assert (outcome.code, outcome.out) == (0, f"{__version__}\n")


@pytest.mark.parametrize(
    "arguments", [[], ["nonsense"], ["keys"], ["keys", "create"], ["serve", "--port", "x"], ["serve", "--port", "70000"]]
)
def test_usage_is_exit_code_2(arguments: list[str], antiphon: Antiphon) -> None:
    outcome = antiphon(*arguments)
    assert outcome.code == 2
    assert "usage: antiphon" in outcome.err


@pytest.mark.parametrize("port", ["x", "70000", "-1", "1_0", "9" * 5000])
def test_a_port_that_is_none_is_named_with_what_it_may_be(port: str, antiphon: Antiphon) -> None:
    outcome = antiphon("serve", f"--port={port}")
    assert outcome.code == 2
    assert outcome.err.endswith("error: argument --port: must be between 0 and 65535\n")


def test_every_fault_of_the_configuration_and_exit_code_2(antiphon: Antiphon, tmp_path: Path) -> None:
    file = tmp_path / "antiphon.toml"
    file.write_text("[server]\nport = -1\nprot = 1\n", encoding="utf-8")
    outcome = antiphon("keys", "list", "--config", str(file))
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.splitlines() == ["config: server.port: must be between 0 and 65535", "config: server.prot: unknown key"]


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    heavy = ["numpy", "openvino", "pydantic", "sqlalchemy", "starlette", "zmq", "msgspec", "http.client"]
    program = f"import sys, antiphon.cli.main; print([name for name in {heavy!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_a_reader_that_leaves_is_no_traceback() -> None:
    command = f"{sys.executable} -m antiphon --help | head -c 0"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert "Traceback" not in result.stderr
