"""Unpacked weights multiply as the packed ones do, whatever format they are stored in."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from antiphon.engines.quiet_openvino import opset13, ov
from antiphon.engines.unpacked_weights import BYTES_PER_WEIGHT, unpack_weights, unpacked_bytes

ROWS, GROUPS, SIZE = 6, 3, 4


def packed_model(element: ov.Type, *, zero_points: bool = True) -> ov.Model:
    """One matrix product by weights of ``element``, in groups that have a scale and a zero point each."""
    chance = np.random.default_rng(1)
    shape = [ROWS, GROUPS, SIZE]
    stored = ov.Tensor(element, ov.Shape(shape))
    stored.data.view(np.uint8)[...] = chance.integers(0, 256, stored.data.view(np.uint8).shape, np.uint8)
    weights = opset13.convert(ov.op.Constant(stored), "f32")
    if zero_points:
        weights = opset13.subtract(weights, opset13.constant(chance.normal(7, 2, (ROWS, GROUPS, 1)).astype(np.float16).astype(np.float32)))
    weights = opset13.multiply(weights, opset13.convert(opset13.constant(chance.normal(0, 1, (ROWS, GROUPS, 1)).astype(np.float16)), "f32"))
    weights = opset13.convert(opset13.reshape(weights, np.array([ROWS, GROUPS * SIZE]), False), "f32")
    given = opset13.parameter([-1, GROUPS * SIZE], np.float32)
    return ov.Model([opset13.matmul(given, weights, False, True)], [given])


def product(model: ov.Model, given: NDArray[np.float32]) -> NDArray[np.float32]:
    compiled = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return np.array(compiled([given])[0])


@pytest.mark.parametrize("element", ["u4", "i4", "u8", "i8"])
@pytest.mark.parametrize("zero_points", [True, False])
def test_the_product_is_the_same(element: str, zero_points: bool) -> None:
    packed, unpacked = (packed_model(getattr(ov.Type, element), zero_points=zero_points) for _ in range(2))
    given = np.random.default_rng(2).normal(size=(5, GROUPS * SIZE)).astype(np.float32)

    assert unpacked_bytes(unpacked) == ROWS * GROUPS * SIZE * BYTES_PER_WEIGHT
    unpack_weights(unpacked, lambda: True)

    assert unpacked_bytes(unpacked) == 0
    np.testing.assert_allclose(product(unpacked, given), product(packed, given), rtol=1e-4, atol=1e-3)


def test_it_stops_when_told_to() -> None:
    model = packed_model(ov.Type.u4)
    unpack_weights(model, lambda: False)
    assert unpacked_bytes(model) > 0


def test_what_is_not_packed_is_left_alone() -> None:
    given = opset13.parameter([-1, 4], np.float32)
    model = ov.Model([opset13.matmul(given, opset13.constant(np.ones((4, 4), np.float32)), False, True)], [given])
    assert unpacked_bytes(model) == 0
