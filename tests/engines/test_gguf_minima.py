"""A converted matrix computes what the file's own weights compute, and did not before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter, dequantize, quantize
from numpy.typing import NDArray

from antiphon.engines.gguf_minima import restore_minima
from antiphon.engines.quiet_openvino import opset13, ov

ROWS, WIDTH, BLOCK, HEADS = 64, 96, 32, 4


def quantised(rng: np.random.Generator) -> NDArray[np.uint8]:
    weights = rng.normal(0.3, 1.0, (ROWS, WIDTH)).astype(np.float32)
    return quantize(weights, GGMLQuantizationType.Q4_1)


def write_gguf(path: Path, name: str, raw: NDArray[np.uint8]) -> None:
    writer = GGUFWriter(path, "llama")
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_tensor(name, raw, raw_dtype=GGMLQuantizationType.Q4_1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_converted(folder: Path, raw: NDArray[np.uint8], order: NDArray[np.intp]) -> None:
    """A model ``x @ W.T`` in the form OpenVINO GenAI's reader writes: whole zero points, scales in half precision."""
    blocks = raw.reshape(ROWS, -1, 20)[order]
    halves = np.ascontiguousarray(blocks[:, :, :4]).view(np.float16)
    scales, minima = np.array(halves[:, :, :1]), np.array(halves[:, :, 1:2])
    nibbles = blocks[:, :, 4:]
    weights = np.concatenate([nibbles & 15, nibbles >> 4], axis=2)
    whole = np.clip(np.rint(-minima.astype(np.float32) / scales.astype(np.float32)), 0, 15).astype(np.float16)
    shifted = opset13.subtract(opset13.convert(opset13.constant(weights), "f16"), opset13.constant(whole))
    matrix = opset13.reshape(opset13.multiply(shifted, opset13.constant(scales)), np.array([ROWS, WIDTH]), special_zero=False)
    given = opset13.parameter([1, WIDTH], np.float32)
    product = opset13.matmul(given, opset13.convert(matrix, "f32"), transpose_a=False, transpose_b=True)
    ov.save_model(ov.Model([product], [given]), folder / "openvino_model.xml", compress_to_fp16=False)


def answer(folder: Path, given: NDArray[np.float32]) -> NDArray[np.float32]:
    compiled = ov.Core().compile_model(folder / "openvino_model.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return np.array(compiled(given)[0])


@pytest.mark.parametrize("name", ["blk.0.ffn_up.weight", "blk.0.attn_q.weight"])
def test_the_restored_matrix_is_the_files_own(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(7)
    raw = quantised(rng)
    order = np.arange(ROWS)
    if "attn_q" in name:
        order = order.reshape(HEADS, ROWS // HEADS // 2, 2).swapaxes(1, 2).reshape(ROWS)
    write_gguf(tmp_path / "model.gguf", name, raw)
    write_converted(tmp_path, raw, order)
    given = rng.normal(size=(1, WIDTH)).astype(np.float32)
    truth = given @ dequantize(raw, GGMLQuantizationType.Q4_1)[order].T

    before = answer(tmp_path, given)
    assert restore_minima(tmp_path / "model.gguf", tmp_path) == 1

    assert np.abs(answer(tmp_path, given) - truth).max() < 1e-4
    assert np.abs(before - truth).max() > 0.1


def test_other_weights_are_left_alone(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    write_gguf(tmp_path / "model.gguf", "blk.0.ffn_up.weight", quantised(rng))
    write_converted(tmp_path, quantised(rng), np.arange(ROWS))
    kept = (tmp_path / "openvino_model.bin").read_bytes()
    assert restore_minima(tmp_path / "model.gguf", tmp_path) == 0
    assert (tmp_path / "openvino_model.bin").read_bytes() == kept
