"""A GGUF file's Q4_1 tensors as Q4_0, which llama.cpp multiplies faster. ``python -m benchmarks.peers.requantise SOURCE TARGET``."""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np


def requantise(source: Path, target: Path) -> None:
    """Everything but the Q4_1 tensors is copied as it is. ``target`` appears whole or not at all."""
    reader = gguf.GGUFReader(source)
    architecture = str(reader.fields["general.architecture"].contents())
    made = target.with_suffix(".part")
    writer = gguf.GGUFWriter(made, architecture)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in {"general.architecture", "general.file_type"}:
            continue
        sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], sub_type)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    for tensor in reader.tensors:
        if tensor.tensor_type == gguf.GGMLQuantizationType.Q4_1:
            floats = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            data = gguf.quants.quantize(floats, gguf.GGMLQuantizationType.Q4_0)
            writer.add_tensor(tensor.name, data, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
        else:
            writer.add_tensor(tensor.name, np.ascontiguousarray(tensor.data), raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    made.rename(target)


if __name__ == "__main__":
    requantise(Path(sys.argv[1]), Path(sys.argv[2]))
