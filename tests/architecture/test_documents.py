"""The documents agree with the code: what they name exists, the reference misses nothing, and the site builds."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import reference

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PATH = re.compile(r"`((?:src|tests|docs|deploy|tools|scripts|benchmarks)/[\w./-]*\w)`")


@pytest.mark.parametrize("name", sorted(reference.pages()))
def test_the_reference_is_as_the_code_has_it(name: str) -> None:
    assert (DOCS / "reference" / name).read_text(encoding="utf-8") == reference.pages()[name], "make docs"


def test_every_setting_is_explained() -> None:
    words, settings = reference.words_of_settings(), reference.settings()
    assert len(settings) > 70
    assert [name for name in settings if name not in words] == [], "docs/configuration.md shows every setting"
    assert [name for name in words if name not in settings] == [], "and none that is not there"


def test_every_error_metric_and_command_has_its_entry() -> None:
    text = {name: (DOCS / "reference" / name).read_text(encoding="utf-8") for name in reference.pages()}
    codes = {kind.code for kind in reference.error_classes()}
    assert len(codes) > 20
    assert [code for code in sorted(codes) if f"`{code}`" not in text["errors.md"]] == []
    assert [name for name in reference.metrics() if f"`{name}`" not in text["metrics.md"]] == []
    commands = [parser.prog for parser in reference.commands()]
    assert len(commands) > 25
    assert [name for name in commands if f"## {name}\n" not in text["commands.md"]] == []


def test_a_missing_entry_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a setting more in the code than in the documents."""
    real = reference.EVERY_TABLE
    assert "server.host" in reference.words_of_settings()
    monkeypatch.setattr(reference, "words_of_settings", dict)
    with pytest.raises(AssertionError):
        test_every_setting_is_explained()
    assert real == reference.EVERY_TABLE


@pytest.mark.parametrize(
    "document", sorted([*DOCS.glob("*.md"), *DOCS.glob("planes/*.md"), *ROOT.glob("*.md")]), ids=lambda path: path.name
)
def test_what_documents_name_exists(document: Path) -> None:
    if document.name == "CHANGELOG.md":
        return
    named = set(PATH.findall(document.read_text(encoding="utf-8")))
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_the_tour_is_an_afternoon() -> None:
    files = PATH.findall((DOCS / "tour.md").read_text(encoding="utf-8"))
    lines = sum(len((ROOT / file).read_text(encoding="utf-8").splitlines()) for file in files if file.startswith("src/"))
    assert 10 <= len(files) <= 18
    assert lines < 4500


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    told = [line for line in done.stderr.splitlines() if line.startswith(("WARNING", "ERROR"))]
    assert (done.returncode, told) == (0, []), done.stderr
    assert (tmp_path / "site" / "tour.html").is_file()
    remote = re.findall(r'(?:src|href)="(https?://[^"]+)"', (tmp_path / "site" / "index.html").read_text())
    assert [url for url in remote if not url.startswith("https://squidfunk")] == [], "the site loads nothing remote"
