"""Models of a hub, through the hub's own client, from a small hub on this machine; and what the catalogue says of a machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from antiphon.cli.main import main
from antiphon.core.errors import ModelUnusable
from antiphon.engines.catalogue import CATALOGUE, DEFAULT, Machine, recommend
from antiphon.engines.hub import HubSource, hub_source
from antiphon.engines.model_source import ModelStore
from tests.engines.small_hub import SmallHub, small_hub
from tests.engines.test_model_source import gguf, left_in

GIB = 1024**3
Pull = Callable[..., tuple[int, str, str]]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[SmallHub]:
    for name in ("one", "many", "none", "gated"):
        (tmp_path / name).mkdir()
    gguf(tmp_path / "one" / "Tiny-Q4_1.gguf")
    gguf(tmp_path / "many" / "a.gguf")
    gguf(tmp_path / "many" / "b.gguf")
    (tmp_path / "none" / "README.md").write_text("nothing here")
    with small_hub({f"acme/{name}": tmp_path / name for name in ("one", "many", "none", "gated")}) as hub:
        hub.gated.add("acme/gated")
        yield hub


@pytest.fixture
def pull(hub: SmallHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Pull]:
    """``antiphon models pull``: its exit code, stdout and stderr."""
    for variable, value in (("HF_ENDPOINT", hub.url), ("HF_HOME", str(tmp_path / "hf")), ("ANTIPHON_MODELS", str(tmp_path / "models"))):
        monkeypatch.setenv(variable, value)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["models", "pull", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    logging = structlog.get_config()
    yield run
    structlog.configure(**logging)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("hf:acme/one", "Tiny-Q4_1.gguf cannot be converted"),  # it was fetched whole and is no model
        ("hf:acme/many", "several GGUF files; add one of them to the address: a.gguf, b.gguf."),
        ("hf:acme/many/c.gguf", "has no file c.gguf"),
        ("hf:acme/none", "has neither a GGUF file in one piece nor an OpenVINO model"),
        ("hf:acme/gated", "wants its terms accepted"),
        ("hf:acme/absent", "There is no hf:acme/absent"),
        ("hf:acme", "is no address of a model"),
        ("hf:acme/one/../two.gguf", "is no address of a model"),
        ("llama-900b", "There is no model 'llama-900b' in the catalogue"),
    ],
)
def test_what_cannot_be_pulled_is_one_sentence_and_leaves_nothing(address: str, reason: str, pull: Pull, tmp_path: Path) -> None:
    code, out, err = pull(address)
    assert (code, out) == (1, "")
    told = [line for line in err.splitlines() if line.startswith("antiphon: ")]
    assert len(told) == 1 and reason in told[0], err
    if (tmp_path / "models").exists():
        assert left_in(tmp_path / "models") == []


def test_a_file_that_is_not_what_the_hub_says_is_refused(hub: SmallHub, pull: Pull, tmp_path: Path) -> None:
    hub.lies["Tiny-Q4_1.gguf"] = "0" * 64
    code, _, err = pull("hf:acme/one")
    assert code == 1 and "is not the expected file: its SHA-256 is" in err
    assert left_in(tmp_path / "models") == []


@pytest.mark.slow
@pytest.mark.model
def test_an_openvino_repository_becomes_a_model(model_folder: Path, hub: SmallHub, pull: Pull, tmp_path: Path) -> None:
    hub.repositories["acme/real-ov"] = model_folder
    code, out, err = pull("hf:acme/real-ov", "--name", "real")
    assert code == 0, err
    assert Path(out.strip()) == ModelStore(tmp_path / "models").find("real")
    asked = len(hub.asked)
    assert pull("hf:acme/real-ov", "--name", "real")[1] == out
    assert len(hub.asked) == asked, "what is here already is not fetched again"


def test_addresses() -> None:
    assert hub_source("hf:Qwen/Qwen3-8B-GGUF") == HubSource("Qwen/Qwen3-8B-GGUF", None)
    assert hub_source("hf:a/b/sub/c.gguf") == HubSource("a/b", "sub/c.gguf")
    assert hub_source("qwen3-8b") is None
    for text in ("hf:", "hf:a", "hf:a/b/c.safetensors", "hf:a/b/../../c.gguf", "hf:a b/c"):
        with pytest.raises(ModelUnusable):
            hub_source(text)


def test_every_entry_of_the_catalogue_is_whole() -> None:
    assert len({model.name for model in CATALOGUE}) == len(CATALOGUE)
    for model in CATALOGUE:
        assert len(bytes.fromhex(model.sha256)) == 32
        assert model.licence == "Apache-2.0"
        source = hub_source(model.source)
        assert source is None or (source.file is not None and model.source.startswith("hf:Qwen/"))
        assert 0.4 < model.bytes / model.parameters < 1.1, "the size belongs to that many parameters"


def test_the_largest_that_fits_and_is_quick_enough_is_recommended() -> None:
    def chosen(gib: float, gigabytes_per_s: float) -> str | None:
        found = recommend(CATALOGUE, Machine(int(gib * GIB), gigabytes_per_s * 1e9), context_tokens=4096)
        assert [one.model.parameters for one in found] == sorted(model.parameters for model in CATALOGUE)
        assert sum(one.chosen for one in found) <= 1
        assert all(one.fits for one in found if one.chosen)
        return next((one.model.name for one in found if one.chosen), None)

    assert chosen(0.5, 22) is None
    assert chosen(1.0, 22) == "smollm2-135m-instruct"
    assert chosen(16, 22) == "qwen3-1.7b"
    assert chosen(16, 60) == "qwen3-8b"
    assert chosen(16, 1) == "smollm2-135m-instruct", "on a slow machine the quickest"
    assert 110 < DEFAULT.tokens_per_s(22e9) < 130


def test_the_table_for_people_and_for_programs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "antiphon", "models", "recommend"]
    listed = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True, timeout=60).stdout)
    assert [one["name"] for one in listed] == [model.name for model in sorted(CATALOGUE, key=lambda one: one.parameters)]
    assert listed[0]["sha256"] == DEFAULT.sha256
    assert all(one["tokens_per_s"] >= 0 and one["memory_mb"] > one["size_mb"] for one in listed)
