"""A GGUF file or a foreign OpenVINO folder to a model folder, in a process of its own: native code that fails harms nobody.

``python -m antiphon.engines.convert SOURCE FOLDER`` fills the existing empty FOLDER. Lines on stdout are JSON:
``{"label", "done", "total"}`` for progress, at most one ``{"fault"}``, a sentence, with exit status 3.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from antiphon.core.errors import ModelUnusable
from antiphon.engines.gguf_file import read_gguf
from antiphon.engines.tokenizer import load_tokenizer
from antiphon.engines.tokenizer_file import TOKENIZER_FILE

FAULT_STATUS = 3
_STEPS = 3
_TOKENIZER_FILES = (
    TOKENIZER_FILE,
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
)


def convert(source: Path, folder: Path, report: Callable[[str, int], None]) -> None:
    """Write a servable model made from ``source`` into ``folder``. Raises ``ModelUnusable``."""
    report("converting", 0)
    if source.is_dir():
        _copy_ir(source, folder)
    else:
        model = read_gguf(source)
        (folder / TOKENIZER_FILE).write_text(model.tokenizer.to_json(), encoding="utf-8")
        report("converting", 1)
        _write_ir(source, folder)
        _restore_minima(source, folder)
    report("converting", 2)
    from antiphon.engines.paged_model import check_model

    load_tokenizer(folder)
    check_model(folder)
    report("converting", _STEPS)


def _copy_ir(source: Path, folder: Path) -> None:
    for name in ("openvino_model.xml", "openvino_model.bin"):
        if not (source / name).is_file():
            raise ModelUnusable(f"The folder {source.name} has no {name}.")
        shutil.copyfile(source / name, folder / name)
    for name in _TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


def _write_ir(source: Path, folder: Path) -> None:
    importlib.import_module("antiphon.engines.quiet_openvino")
    import openvino_genai

    link = folder / "source.gguf"
    link.symlink_to(source.resolve())
    try:
        openvino_genai.LLMPipeline(str(link), "CPU", enable_save_ov_model=True)
    except RuntimeError as error:
        raise ModelUnusable(f"{source.name} cannot be converted: OpenVINO does not support its tensors.") from error
    finally:
        link.unlink()
        for leftover in folder.glob("openvino_*tokenizer.*"):
            leftover.unlink()
    if not (folder / "openvino_model.xml").is_file() or not (folder / "openvino_model.bin").is_file():
        raise ModelUnusable(f"{source.name} cannot be converted: OpenVINO wrote no model.")


def _restore_minima(source: Path, folder: Path) -> None:
    from antiphon.engines.gguf_minima import restore_minima

    restore_minima(source, folder)


def main(arguments: list[str]) -> int:
    """Convert and return the exit status. What native libraries print goes to stderr, so that stdout stays JSON."""
    stdout = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    with stdout:
        try:
            convert(
                Path(arguments[0]),
                Path(arguments[1]),
                lambda label, done: print(json.dumps({"label": label, "done": done, "total": _STEPS}), file=stdout),
            )
        except ModelUnusable as error:
            print(json.dumps({"fault": str(error)}), file=stdout)
            return FAULT_STATUS
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
