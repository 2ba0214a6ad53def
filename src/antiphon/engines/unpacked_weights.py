"""A model's weights in the form the processor multiplies, in place of the few bits they are stored in.

OpenVINO unpacks a stored weight again in every step that multiplies by it. With one row that is hidden behind the memory,
which has a quarter as many bytes to bring; with several rows unpacking is what the step waits for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import cast

import numpy as np
from numpy.typing import NDArray

from antiphon.engines.quiet_openvino import opset13, ov

BYTES_PER_WEIGHT = 8
"""OpenVINO keeps what it is given, in 32 bits, beside what it makes of it, in 16; compiled twice."""

_PACKED = {ov.Type.u4, ov.Type.i4, ov.Type.u8, ov.Type.i8}


def unpacked_bytes(model: ov.Model) -> int:
    """What ``unpack_weights`` and then compiling would take. 0 where nothing is packed."""
    return sum(BYTES_PER_WEIGHT * math.prod(source.get_shape()) for _, source in _packed_weights(model))


def unpack_weights(model: ov.Model, go_on: Callable[[], bool]) -> None:
    """Replace the packed weights of all matrix products. Stops between two of them once ``go_on`` says ``False``."""
    constants = {node.get_friendly_name(): node for node in model.get_ops() if node.get_type_name() == "Constant"}
    for port, source in list(_packed_weights(model)):
        if not go_on():
            return
        values = _values(source.get_node(), constants)
        port.replace_source_output(opset13.constant(values).output(0))
    model.validate_nodes_and_infer_types()


def _packed_weights(model: ov.Model) -> Iterator[tuple[ov.Input, ov.Output]]:
    for node in model.get_ordered_ops():
        if node.get_type_name() == "MatMul":
            port = node.input(1)
            source = port.get_source_output()
            if _leaf(source.get_node()) in _PACKED:
                yield port, source


def _leaf(node: ov.Node) -> ov.Type | None:
    """The type of what is unpacked by ``node``; ``None`` where it is made of something else than constants."""
    match node.get_type_name():
        case "Constant":
            return node.get_element_type()
        case "Convert" | "Reshape":
            return _leaf(_source(node, 0))
        case "Subtract" | "Multiply":
            return _leaf(_source(node, 0)) if _leaf(_source(node, 1)) is not None else None
        case _:
            return None


def _values(node: ov.Node, constants: dict[str, ov.Node]) -> NDArray[np.float32]:
    match node.get_type_name():
        case "Constant":
            return _stored(constants[node.get_friendly_name()])
        case "Reshape":
            return _values(_source(node, 0), constants).reshape(tuple(node.output(0).get_shape()))
        case "Subtract":
            return _values(_source(node, 0), constants) - _values(_source(node, 1), constants)
        case "Multiply":
            return _values(_source(node, 0), constants) * _values(_source(node, 1), constants)
        case _:
            return _values(_source(node, 0), constants)


def _stored(constant: ov.Node) -> NDArray[np.float32]:
    """A constant's values. Of four bits two share a byte, the first in the lower half."""
    element = constant.get_element_type()
    data = cast("NDArray[np.generic]", cast("object", constant.data))
    if element not in {ov.Type.u4, ov.Type.i4}:
        return data.astype(np.float32)
    pairs = np.frombuffer(data.tobytes(), np.uint8)
    halves = np.stack((pairs & 15, pairs >> 4), axis=-1).reshape(-1)
    values = halves.astype(np.float32)
    if element == ov.Type.i4:
        values[halves > 7] -= 16
    shape = tuple(constant.output(0).get_shape())
    return values[: math.prod(shape)].reshape(shape)


def _source(node: ov.Node, port: int) -> ov.Node:
    return node.input(port).get_source_output().get_node()
