"""The minima of Q4_1 weights as the file has them.

A Q4_1 block of 32 weights is ``q·d + m``. OpenVINO GenAI's reader keeps ``m`` as a whole zero point, ``round(-m/d)``, and so serves a
model that is not the shipped one: greedy texts agree with the file's weights in 80 % of the tokens instead of all. Here the
converted model gets its true zero points back, as f32; a step costs the same.
"""

# OpenVINO's stubs are half-typed.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
from gguf import GGUFReader, ReaderTensor
from numpy.typing import NDArray

from antiphon.engines.quiet_openvino import opset13, ov

_BLOCK_BYTES = 20
_Halves = NDArray[np.float16]


def restore_minima(source: Path, folder: Path) -> int:
    """Give the model in ``folder``, converted from the GGUF file ``source``, its true zero points; returns how many matrices.

    Rewrites the folder's model when there is one to change. Blocking.
    """
    truth = _zero_points(source)
    if not truth:
        return 0
    path = folder / "openvino_model.xml"
    model = ov.Core().read_model(path)
    restored = sum(_restore(node, truth) for node in model.get_ordered_ops() if node.get_type_name() == "Multiply")
    if restored:
        model.validate_nodes_and_infer_types()
        staged = folder / "restored.xml"
        ov.save_model(model, staged, compress_to_fp16=False)
        del model
        staged.with_suffix(".bin").replace(path.with_suffix(".bin"))
        staged.replace(path)
    return restored


def _zero_points(source: Path) -> dict[bytes, NDArray[np.float32]]:
    """By the bytes of a matrix's scales ``d``, its ``-m/d`` [rows, blocks]; rotary matrices in both orders of their rows."""
    reader = GGUFReader(source)
    found: dict[bytes, NDArray[np.float32]] = {}
    for tensor in reader.tensors:
        if tensor.tensor_type.name == "Q4_1" and len(tensor.shape) == 2:
            scales, minima = _scales_and_minima(tensor)
            for d, m in ((scales, minima), *_unrotated(reader, tensor.name, scales, minima)):
                with np.errstate(divide="ignore", invalid="ignore"):
                    found[d.tobytes()] = np.where(d != 0, -m.astype(np.float32) / d.astype(np.float32), np.float32(0))
    return found


def _scales_and_minima(tensor: ReaderTensor) -> tuple[_Halves, _Halves]:
    raw = np.asarray(tensor.data, dtype=np.uint8).reshape(int(tensor.shape[1]), -1, _BLOCK_BYTES)
    halves = np.ascontiguousarray(raw[:, :, :4]).view(np.float16)
    return np.ascontiguousarray(halves[:, :, 0]), np.ascontiguousarray(halves[:, :, 1])


def _unrotated(reader: GGUFReader, name: str, scales: _Halves, minima: _Halves) -> tuple[tuple[_Halves, _Halves], ...]:
    """The rows of a llama query or key matrix in the order that OpenVINO's rotary embedding wants."""
    key = {"attn_q.weight": "attention.head_count", "attn_k.weight": "attention.head_count_kv"}.get(name.split(".", 2)[-1])
    field = reader.get_field(f"llama.{key}") if key else None
    if field is None:
        return ()
    heads = int(cast("int", field.contents()))

    def reorder(matrix: _Halves) -> _Halves:
        rows, blocks = matrix.shape
        return np.ascontiguousarray(matrix.reshape(heads, rows // heads // 2, 2, blocks).swapaxes(1, 2).reshape(rows, blocks))

    return ((reorder(scales), reorder(minima)),)


def _restore(multiply: ov.Node, truth: dict[bytes, NDArray[np.float32]]) -> bool:
    """Replace ``(q - z)·d`` where ``d`` is one of the file's; other products stay."""
    subtract, scale = multiply.input_value(0).get_node(), multiply.input_value(1).get_node()
    if subtract.get_type_name() != "Subtract" or scale.get_type_name() != "Constant":
        return False
    scales = np.array(scale.data)
    zero_points = truth.get(scales.tobytes())
    if zero_points is None or scales.size != zero_points.size:
        return False
    shape = (*zero_points.shape, 1)
    quantised = subtract.input_value(0).get_node().input_value(0)
    shifted = opset13.subtract(opset13.convert(quantised, "f32"), opset13.constant(zero_points.reshape(shape)))
    exact = opset13.multiply(shifted, opset13.constant(scales.astype(np.float32).reshape(shape)))
    for consumer in multiply.output(0).get_target_inputs():
        consumer.replace_source_output(exact.output(0))
    return True
