"""The command as its user runs it: arguments in, exit code, stdout and stderr out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import structlog

from antiphon.cli.main import main


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    out: str
    err: str


Antiphon = Callable[..., Outcome]


@pytest.fixture
def antiphon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Antiphon]:
    """Runs one command in this process, with an empty home."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "ANTIPHON_DATA", "ANTIPHON_CONFIG", "ANTIPHON_MODELS"):
        monkeypatch.delenv(variable, raising=False)

    def run(*arguments: str) -> Outcome:
        try:
            code = main(arguments)
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    logging = structlog.get_config()
    yield run
    structlog.configure(**logging)
