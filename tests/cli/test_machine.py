"""doctor and models: what they say about this machine."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import pytest

from tests.cli.conftest import Antiphon


def test_doctor_prints_state_name_detail(antiphon: Antiphon) -> None:
    outcome = antiphon("doctor")
    lines = outcome.out.splitlines()
    assert all(re.match(r"(ok|warn|fail) +\S.*", line) for line in lines)
    assert "fail models" in outcome.out
    assert outcome.code == 1


def test_doctor_sees_what_is_wrong(antiphon: Antiphon, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        config = tmp_path / "antiphon.toml"
        config.write_text(f"[server]\nport = {taken.getsockname()[1]}\n[[pools]]\nname = 'r'\nengine = 'reference'\n", encoding="utf-8")
        outcome = antiphon("doctor", "--json", "--config", str(config), "--data", str(tmp_path / "file"))
    states = {check["name"]: check["state"] for check in json.loads(outcome.out)}
    assert (states["python"], states["models"], states["data"], states["port"]) == ("ok", "ok", "fail", "fail")
    assert outcome.code == 1


def test_no_models_yet(antiphon: Antiphon) -> None:
    assert json.loads(antiphon("models", "list", "--json").out) == []
    assert antiphon("models", "list").out == ""


@pytest.mark.parametrize("arguments", [["models", "add", "absent.gguf"], ["models", "remove", "absent"]])
def test_a_model_that_is_not_there_is_one_sentence(arguments: list[str], antiphon: Antiphon) -> None:
    outcome = antiphon(*arguments)
    assert (outcome.code, outcome.out) == (1, "")
    assert len(outcome.err.splitlines()) == 1
