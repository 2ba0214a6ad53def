"""A GGUF file's tensors in another form: Q4_1 as Q4_0, which llama.cpp multiplies faster, or everything quantised as 16-bit floats.

``python -m benchmarks.peers.requantise SOURCE TARGET`` does the first.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np

_PLAIN = {gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16}


def requantise(source: Path, target: Path) -> None:
    """Everything but the Q4_1 tensors is copied as it is. ``target`` appears whole or not at all."""
    quantised = gguf.GGMLQuantizationType.Q4_1, gguf.GGMLQuantizationType.Q4_0
    _rewrite(source, target, {quantised[0]: quantised[1]}, gguf.LlamaFileType.MOSTLY_Q4_0)


def unquantise(source: Path, target: Path) -> None:
    """Every quantised tensor as 16-bit floats. ``target`` appears whole or not at all."""
    forms = {kind: gguf.GGMLQuantizationType.F16 for kind in gguf.GGMLQuantizationType if kind not in _PLAIN}
    _rewrite(source, target, forms, gguf.LlamaFileType.MOSTLY_F16)


def _rewrite(
    source: Path,
    target: Path,
    forms: Mapping[gguf.GGMLQuantizationType, gguf.GGMLQuantizationType],
    file_type: gguf.LlamaFileType,
) -> None:
    reader = gguf.GGUFReader(source)
    architecture = str(reader.fields["general.architecture"].contents())
    made = target.with_suffix(".part")
    writer = gguf.GGUFWriter(made, architecture)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in {"general.architecture", "general.file_type"}:
            continue
        sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], sub_type)
    writer.add_file_type(file_type)
    for tensor in reader.tensors:
        form = forms.get(tensor.tensor_type)
        if form is not None:
            floats = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            writer.add_tensor(tensor.name, gguf.quants.quantize(floats, form), raw_dtype=form)
        else:
            writer.add_tensor(tensor.name, np.ascontiguousarray(tensor.data), raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    made.rename(target)


if __name__ == "__main__":
    requantise(Path(sys.argv[1]), Path(sys.argv[2]))
