"""``antiphon import`` and ``antiphon export`` on a data folder."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Antiphon
from tests.orchestrator.transfer.uploads import FIXTURES


def test_in_and_out_and_in_again(antiphon: Antiphon, tmp_path: Path) -> None:
    data, other = str(tmp_path / "a"), str(tmp_path / "b")
    outcome = antiphon("import", str(FIXTURES / "chatgpt.json"), "--data", data)
    assert (outcome.code, outcome.out) == (0, "imported 2, skipped 0, failed 1\n")
    assert "6b0f0d9c-0000-4000-8000-00000000000c: It has no messages." in outcome.err
    again = antiphon("import", str(FIXTURES / "chatgpt.json"), "--data", data)
    assert (again.code, again.out) == (1, "imported 0, skipped 2, failed 1\n")
    out = tmp_path / "all.jsonl"
    assert antiphon("export", "--output", str(out), "--data", data).code == 0
    report = json.loads(antiphon("import", str(out), "--json", "--data", other).out)
    assert (report["imported"], report["conversations"][0]["status"]) == (2, "imported")
    assert antiphon("export", "--output", str(out), "--data", data).code == 1


def test_for_another_user_and_one_conversation(antiphon: Antiphon, tmp_path: Path) -> None:
    data = str(tmp_path / "a")
    user = antiphon("users", "create", "ada", "--data", data).out.strip()
    report = json.loads(antiphon("import", str(FIXTURES / "openwebui.json"), "--user", user, "--json", "--data", data).out)
    first = report["conversations"][0]["id"]
    assert antiphon("export", "--conversation", first, "--data", data).code == 1
    out = tmp_path / "one.md"
    assert (
        antiphon("export", "--conversation", first, "--user", "ada", "--format", "markdown", "--output", str(out), "--data", data).code == 0
    )
    assert out.read_text(encoding="utf-8").startswith("# Two versions\n")


def test_files_that_are_not_there(antiphon: Antiphon, tmp_path: Path) -> None:
    outcome = antiphon("import", str(tmp_path / "no"), "--data", str(tmp_path / "a"))
    assert outcome.code == 1
    assert "no" in outcome.err
    assert antiphon("import", "--data", str(tmp_path)).code == 2
