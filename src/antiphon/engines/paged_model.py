"""An OpenVINO model compiled for paged attention: the only module that knows OpenVINO's graph.

The stateful model that OpenVINO's tools write becomes one whose KV cache is made of input tensors addressed by block tables.
The transformation lives in a module that OpenVINO does not document, so what it made is checked here, input by input,
before anything is served.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from antiphon.core.errors import ModelUnusable
from antiphon.core.pools import Precision
from antiphon.engines.base import BLOCK_TOKENS, KvPrecision
from antiphon.engines.cache_tensors import CachePart, CacheTensors
from antiphon.engines.form_choice import FormChoice
from antiphon.engines.quiet_openvino import opset13, ov, paged_attention_transformation
from antiphon.engines.unpacked_weights import unpack_weights, unpacked_bytes

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
class Formats:
    """What a model computes and caches in; ``exact`` allows only an f32 cache."""

    precision: Precision = "fast"
    kv_precision: KvPrecision = "auto"


@dataclass(frozen=True, slots=True)
class StepInputs:
    """The arrays of one forward pass; see ``engines/base.py`` for a step's meaning.

    ``input_ids``, ``position_ids`` int64 [tokens]; ``past_lens`` int32 [rows]; ``subsequence_begins``,
    ``block_indices_begins`` int32 [rows + 1]; ``block_indices`` int32 [blocks named]; ``max_context_len`` int32 [];
    ``sampled_tokens_indices`` int64 [sampled], indices into ``input_ids``. The names are the model's.
    """

    input_ids: NDArray[np.int64]
    position_ids: NDArray[np.int64]
    past_lens: NDArray[np.int32]
    subsequence_begins: NDArray[np.int32]
    block_indices: NDArray[np.int32]
    block_indices_begins: NDArray[np.int32]
    max_context_len: NDArray[np.int32]
    sampled_tokens_indices: NDArray[np.int64]


class _Form:
    """A compiled model, and the tensors that a step's inputs go into: setting new ones costs a tenth of a millisecond per step."""

    def __init__(self, compiled: ov.CompiledModel, cache: Mapping[str, ov.Tensor]) -> None:
        self._request = compiled.create_infer_request()
        self._inputs = {name: self._request.get_tensor(name) for name in _STEP_INPUTS}
        self.set_cache(cache)

    def set_cache(self, cache: Mapping[str, ov.Tensor]) -> None:
        for name, tensor in cache.items():
            self._request.set_tensor(name, tensor)

    def infer(self, step: StepInputs) -> NDArray[np.float32]:
        for name, tensor in self._inputs.items():
            values: NDArray[np.generic] = getattr(step, name)
            if values.ndim:
                tensor.shape = values.shape
            tensor.data[...] = values
        self._request.infer(share_outputs=True)
        logits = self._request.get_output_tensor(0).data
        return logits.reshape(-1, logits.shape[-1])


@dataclass(frozen=True, slots=True)
class _Unpacked:
    """``rows`` for steps of decode rows alone, ``prompts`` for all others."""

    rows: _Form
    prompts: _Form


class PagedModel:
    """A compiled model and its cache. ``allocate`` once, then ``infer`` from one thread; ``unpack`` may run in another.

    Raises ``ModelUnusable`` when the folder holds no model that can be run this way.
    """

    def __init__(self, folder: Path, formats: Formats, threads: int) -> None:
        core = ov.Core()
        model = _read(core, folder)
        _check_inputs(model, folder)
        self._folder, self._properties = folder, _properties(core, formats, threads)
        try:
            compiled = core.compile_model(model, "CPU", self._properties)
            self._form = _Form(compiled, {})
        except RuntimeError as error:
            raise ModelUnusable(f"OpenVINO cannot compile the model in {folder.name}.") from error
        self._parts = _cache_parts(compiled, folder)
        self._cache: dict[str, ov.Tensor] = {}
        self._unpacked: _Unpacked | None = None
        self._choice = FormChoice()
        self._released = False
        self.vocabulary_tokens: int = compiled.outputs[0].partial_shape[-1].get_length()

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over all layers, keys and values."""
        return sum(part.block_bytes for part in self._parts)

    @property
    def unpacked(self) -> bool:
        return self._unpacked is not None

    def allocate(self, blocks: int, slots: int) -> CacheTensors:
        """Give the model a cache of ``blocks`` blocks, with ``slots`` to swap to."""
        cache = CacheTensors(self._parts, blocks, slots)
        self._cache = cache.tensors
        self._form.set_cache(self._cache)
        return cache

    def infer(self, step: StepInputs) -> NDArray[np.float32]:
        """Logits [sampled, vocabulary], valid until the next call. Raises ``RuntimeError`` when OpenVINO fails."""
        forms = self._unpacked
        if forms is None:
            return self._form.infer(step)
        rows = len(step.past_lens)
        if len(step.input_ids) > rows:
            return forms.prompts.infer(step)
        unpacked = self._choice.unpacked(rows)
        started = time.perf_counter()
        logits = (forms.rows if unpacked else self._form).infer(step)
        self._choice.observe(rows, unpacked, time.perf_counter() - started)
        return logits

    def unpack(self, most_bytes: int, warm_up: StepInputs) -> bool:
        """Compile the model with unpacked weights too, if that takes no more than ``most_bytes``; whether it did.

        Twice: in a step of another number of tokens than the one before OpenVINO works out every node's shape anew, which
        takes 6 ms, and decode rows alone are often as many as before. Takes seconds; raises ``RuntimeError`` when OpenVINO fails.
        """
        core, cache = ov.Core(), self._cache
        model = _read(core, self._folder)
        if not 0 < unpacked_bytes(model) <= most_bytes:
            return False
        unpack_weights(model, lambda: not self._released)
        forms: list[_Form] = []
        while len(forms) < 2 and not self._released:
            forms.append(_Form(core.compile_model(model, "CPU", self._properties), cache))
            forms[-1].infer(warm_up)
        if not self._released:
            self._unpacked = _Unpacked(*forms)
        return self.unpacked

    def release(self) -> None:
        """Forget the model; it cannot be used after that, and ``unpack`` ends soon."""
        self._released = True
        self._unpacked = None
        self._cache = {}
        del self._form


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
    """Gather the rows that are sampled once the last attention is done: from there on no row looks at another, so the last
    layer's matrix products and the language-model head run only for them.
    """
    behind = _behind(_projection(model))
    rows = opset13.parameter([-1], np.int64, name=_SAMPLED_ROWS)  # pyright: ignore[reportUnknownMemberType] - half-typed stubs
    rows.output(0).get_tensor().set_names({_SAMPLED_ROWS})
    axis = opset13.constant(np.array(0, np.int64))
    gathered: dict[tuple[str, int], ov.Output] = {}
    for node in behind.values():
        for port in node.inputs():
            source = port.get_source_output()
            if source.get_node().get_name() in behind or not _has_rows(source.partial_shape):
                continue
            name = source.get_node().get_name(), source.get_index()
            if name not in gathered:
                gathered[name] = opset13.gather(source, rows, axis).output(0)  # pyright: ignore[reportUnknownMemberType] - half-typed stubs
            port.replace_source_output(gathered[name])
    model.add_parameters([rows])
    model.validate_nodes_and_infer_types()


def _has_rows(shape: ov.PartialShape) -> bool:
    """Whether something has a row for each token; constants have not."""
    return shape.rank.get_length() > 0 and shape[0].is_dynamic


def _projection(model: ov.Model) -> ov.Node:
    """The first matrix product behind the last attention."""
    attentions = [node for node in model.get_ordered_ops() if node.get_type_name() == "PagedAttentionExtension"]
    if not attentions:
        raise RuntimeError("there is no paged attention")
    node = attentions[-1]
    while node.get_type_name() != "MatMul":
        readers = list(node.output(0).get_target_inputs())
        if len(readers) != 1:
            raise RuntimeError("the last attention does not lead to a matrix product")
        node = readers[0].get_node()
    return node


def _behind(first: ov.Node) -> dict[str, ov.Node]:
    """``first`` and all that depends on it, by name."""
    found: dict[str, ov.Node] = {}
    left = [first]
    while left:
        node = left.pop()
        if node.get_name() not in found:
            found[node.get_name()] = node
            left += [reader.get_node() for output in node.outputs() for reader in output.get_target_inputs()]
    return found


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


def _cache_parts(compiled: ov.CompiledModel, folder: Path) -> list[CachePart]:
    """The cache inputs. A block has a place for each of its tokens, and in u8 some more for the scales of its keys."""
    parts: list[CachePart] = []
    for port in compiled.inputs:
        if not _is_cache(_name(port)):
            continue
        shape = list(port.partial_shape)
        if len(shape) != 4 or any(dimension.is_dynamic for dimension in shape[1:]):
            raise ModelUnusable(f"The model in {folder.name} cannot be served: its cache has no blocks of a fixed size.")
        part = CachePart(_name(port), port.element_type, tuple(dimension.get_length() for dimension in shape[1:]))
        tokens = part.shape[1]
        if tokens != BLOCK_TOKENS and not (part.element == ov.Type.u8 and BLOCK_TOKENS < tokens < 2 * BLOCK_TOKENS):
            raise ModelUnusable(f"The model in {folder.name} cannot be served: its cache has no blocks of {BLOCK_TOKENS} tokens.")
        parts.append(part)
    return parts


def _properties(core: ov.Core, formats: Formats, threads: int) -> dict[str, str | int | bool]:
    """The cache's format is always named: left alone, the plugin takes u8 for some models and 16 bits for others.

    Threads are not pinned: every step waits for the slowest of them, and a pinned one cannot get out of a neighbour's way.
    """
    properties: dict[str, str | int | bool] = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1, "ENABLE_CPU_PINNING": False}
    if threads > 0:
        properties["INFERENCE_NUM_THREADS"] = threads
    if formats.precision == "exact":
        return properties | {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
    if formats.kv_precision != "auto":
        return properties | {"KV_CACHE_PRECISION": formats.kv_precision}
    has_bf16 = "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return properties | {"KV_CACHE_PRECISION": "bf16" if has_bf16 else "f16"}


def _is_cache(name: str) -> bool:
    return name.startswith(("key_cache.", "value_cache."))


def _name(port: ov.Output | ov.ConstOutput) -> str:
    return min(port.get_names(), default="")
