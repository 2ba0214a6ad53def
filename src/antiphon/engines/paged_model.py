"""An OpenVINO model compiled for paged attention: the only module that knows OpenVINO's graph.

The stateful model that OpenVINO's tools write becomes one whose KV cache is made of input tensors addressed by block tables.
The transformation lives in a module that OpenVINO does not document, so what it made is checked here, input by input,
before anything is served.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from antiphon.core.errors import ModelUnusable
from antiphon.core.pools import Precision
from antiphon.engines.base import BLOCK_TOKENS
from antiphon.engines.quiet_openvino import opset13, ov, paged_attention_transformation

_SAMPLED_ROWS = "sampled_tokens_indices"
_STEP_INPUTS: dict[str, int] = {
    "input_ids": 1,
    "position_ids": 1,
    "past_lens": 1,
    "subsequence_begins": 1,
    "block_indices": 1,
    "block_indices_begins": 1,
    "max_context_len": 0,
    _SAMPLED_ROWS: 1,
}
"""Every input besides the cache, with its number of dimensions."""


@dataclass(frozen=True, slots=True)
class StepInputs:
    """The arrays of one forward pass; see ``engines/base.py`` for a step's meaning.

    ``input_ids``, ``position_ids`` int64 [tokens]; ``past_lens`` int32 [rows]; ``subsequence_begins``,
    ``block_indices_begins`` int32 [rows + 1]; ``block_indices`` int32 [blocks named]; ``sampled_rows`` int64 [sampled],
    indices into ``input_ids``.
    """

    input_ids: NDArray[np.int64]
    position_ids: NDArray[np.int64]
    past_lens: NDArray[np.int32]
    subsequence_begins: NDArray[np.int32]
    block_indices: NDArray[np.int32]
    block_indices_begins: NDArray[np.int32]
    max_context_len: int
    sampled_rows: NDArray[np.int64]


class PagedModel:
    """A compiled model and its cache. ``allocate`` once, then ``infer`` from one thread.

    Raises ``ModelUnusable`` when the folder holds no model that can be run this way.
    """

    def __init__(self, folder: Path, precision: Precision, threads: int) -> None:
        core = ov.Core()
        model = _read(core, folder)
        _check_inputs(model, folder)
        try:
            compiled = core.compile_model(model, "CPU", _properties(core, precision, threads))
            self._request = compiled.create_infer_request()
        except RuntimeError as error:
            raise ModelUnusable(f"OpenVINO cannot compile the model in {folder.name}.") from error
        self._cache_layout = _cache_layout(compiled, folder)
        self._cache: list[ov.Tensor] = []
        self._cache_arrays: list[NDArray[np.generic]] = []
        self.vocabulary_tokens: int = compiled.outputs[0].partial_shape[-1].get_length()

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over all layers, keys and values."""
        return sum(int(np.prod(shape)) * element.size for _, element, shape in self._cache_layout)

    def allocate(self, blocks: int) -> None:
        """Make a cache of ``blocks`` blocks. The system gives the memory when a block is first written."""
        for name, element, shape in self._cache_layout:
            tensor = ov.Tensor(element, ov.Shape([blocks, *shape]))
            self._request.set_tensor(name, tensor)
            self._cache.append(tensor)
            self._cache_arrays.append(tensor.data)

    def copy_block(self, source: int, target: int) -> None:
        """Copy one block in every layer, bit by bit."""
        for array in self._cache_arrays:
            array[target] = array[source]

    def infer(self, step: StepInputs) -> NDArray[np.float32]:
        """Logits [sampled, vocabulary], valid until the next call. Raises ``RuntimeError`` when OpenVINO fails."""
        request = self._request
        request.set_tensor("input_ids", ov.Tensor(step.input_ids))
        request.set_tensor("position_ids", ov.Tensor(step.position_ids))
        request.set_tensor("past_lens", ov.Tensor(step.past_lens))
        request.set_tensor("subsequence_begins", ov.Tensor(step.subsequence_begins))
        request.set_tensor("block_indices", ov.Tensor(step.block_indices))
        request.set_tensor("block_indices_begins", ov.Tensor(step.block_indices_begins))
        request.set_tensor("max_context_len", ov.Tensor(np.asarray(step.max_context_len, np.int32)))
        request.set_tensor(_SAMPLED_ROWS, ov.Tensor(step.sampled_rows))
        request.infer()
        logits = request.get_output_tensor(0).data
        return logits.reshape(-1, logits.shape[-1])

    def release(self) -> None:
        """Drop the cache; the model cannot be used after that."""
        self._cache_arrays.clear()
        self._cache.clear()
        del self._request


def check_model(folder: Path) -> None:
    """Raise ``ModelUnusable`` unless the folder's model can be paged. Reads it, compiles nothing."""
    _check_inputs(_read(ov.Core(), folder), folder)


def _read(core: ov.Core, folder: Path) -> ov.Model:
    try:
        model = core.read_model(str(folder / "openvino_model.xml"))  # pyright: ignore[reportUnknownMemberType] - half-typed stubs
    except RuntimeError as error:
        raise ModelUnusable(f"The model in {folder.name} cannot be read by OpenVINO.") from error
    try:
        paged_attention_transformation(model)
        _select_sampled_rows(model)
    except RuntimeError as error:
        raise ModelUnusable(f"The model in {folder.name} has no attention that can be paged.") from error
    return model


def _select_sampled_rows(model: ov.Model) -> None:
    """Put a Gather before the last matrix product, so that the language-model head runs only for rows that are sampled."""
    node = model.get_results()[0].input_value(0).get_node()
    while node.get_type_name() != "MatMul":
        if node.get_input_size() == 0:
            raise RuntimeError("the output does not come from a matrix product")
        node = node.input_value(0).get_node()
    rows = opset13.parameter([-1], np.int64, name=_SAMPLED_ROWS)  # pyright: ignore[reportUnknownMemberType] - half-typed stubs
    rows.output(0).get_tensor().set_names({_SAMPLED_ROWS})
    axis = opset13.constant(np.array(0, np.int64))
    node.input(0).replace_source_output(opset13.gather(node.input_value(0), rows, axis).output(0))  # pyright: ignore[reportUnknownMemberType] - half-typed stubs
    model.add_parameters([rows])
    model.validate_nodes_and_infer_types()


def _check_inputs(model: ov.Model, folder: Path) -> None:
    found = {_name(port): port.partial_shape.rank.get_length() for port in model.inputs}
    steps = {name: dimensions for name, dimensions in found.items() if not _is_cache(name)}
    caches = len(found) - len(steps)
    if steps != _STEP_INPUTS:
        strange = sorted(steps.items() ^ _STEP_INPUTS.items())
        names = ", ".join(sorted({name for name, _ in strange}))
        raise ModelUnusable(f"The model in {folder.name} cannot be served: its inputs differ from a chat model's in {names}.")
    if caches == 0 or caches % 2 or len(model.outputs) != 1:
        raise ModelUnusable(f"The model in {folder.name} cannot be served: it has {caches} caches and {len(model.outputs)} outputs.")


def _cache_layout(compiled: ov.CompiledModel, folder: Path) -> list[tuple[str, ov.Type, list[int]]]:
    layout: list[tuple[str, ov.Type, list[int]]] = []
    for port in compiled.inputs:
        if not _is_cache(_name(port)):
            continue
        shape = list(port.partial_shape)
        if len(shape) != 4 or any(dimension.is_dynamic for dimension in shape[1:]) or shape[2].get_length() != BLOCK_TOKENS:
            raise ModelUnusable(f"The model in {folder.name} cannot be served: its cache has no blocks of {BLOCK_TOKENS} tokens.")
        layout.append((_name(port), port.element_type, [dimension.get_length() for dimension in shape[1:]]))
    return layout


def _properties(core: ov.Core, precision: Precision, threads: int) -> dict[str, str | int]:
    properties: dict[str, str | int] = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1}
    if threads > 0:
        properties["INFERENCE_NUM_THREADS"] = threads
    if precision == "exact":
        return properties | {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
    has_bf16 = "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return properties | {"KV_CACHE_PRECISION": "bf16" if has_bf16 else "f16"}


def _is_cache(name: str) -> bool:
    return name.startswith(("key_cache.", "value_cache."))


def _name(port: ov.Output | ov.ConstOutput) -> str:
    return min(port.get_names(), default="")
