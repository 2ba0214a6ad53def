"""GGUF to an OpenVINO model folder, in a process of its own: native code that fails here harms nobody else.

``python -m antiphon.engines.convert SOURCE.gguf FOLDER`` fills the existing empty FOLDER. Lines on stdout are JSON:
``{"label", "done", "total"}`` for progress, at most one ``{"fault"}``, a sentence, with exit status 3.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from antiphon.core.errors import ModelUnusable
from antiphon.engines.gguf_file import read_gguf
from antiphon.engines.tokenizer import ModelTokenizer
from antiphon.engines.tokenizer_file import TOKENIZER_FILE

FAULT_STATUS = 3
_STEPS = 3


def convert(source: Path, folder: Path, report: Callable[[str, int], None]) -> None:
    """Write the IR and the tokenizer of ``source`` into ``folder``. Raises ``ModelUnusable``."""
    report("reading", 0)
    model = read_gguf(source)
    ModelTokenizer(model.tokenizer)
    (folder / TOKENIZER_FILE).write_text(model.tokenizer.to_json(), encoding="utf-8")
    report("converting", 1)
    _write_ir(source, folder)
    report("converted", _STEPS)


def _write_ir(source: Path, folder: Path) -> None:
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
