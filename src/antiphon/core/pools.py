"""Pools as configured: the replicas that serve one model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

EngineKind = Literal["openvino", "reference", "vllm", "openai"]
Precision = Literal["fast", "exact"]
Vocabulary = Literal["ascii", "nasty", "echo", "thinking"]


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """One ``[[pools]]`` entry. 0 means "decide from the model and the machine"."""

    name: str
    model: str
    engine: EngineKind = "openvino"
    replicas: int = 1
    precision: Precision = "fast"
    kv_bytes: int = 0
    context_tokens: int = 0
    queue_limit: int = 200
    stream_tokens_per_s: int = 0
    """What each answer is to be written at, at least; 0: whatever there is. Who would slow the others below that waits."""
    downgrade_to: str = ""
    prefill_tokens_per_s: float = 5000.0
    output_tokens_per_s: float = 50.0
    blocks: int = 0
    memory_bytes: int = 0
    """What one replica takes, weights and cache, where models share a memory budget."""
    vocabulary: Vocabulary = "ascii"
    url: str = ""
    api_key_env: str = ""
    api_key: str = field(default="", repr=False)
    """Of an added pool; a configured one names the variable that holds its key."""
    added: bool = False
    """It was added while the server ran, and is in no configuration."""

    @property
    def on_this_machine(self) -> bool:
        """Whether its model is in this machine's memory."""
        return self.engine in {"openvino", "reference"}

    @property
    def all_bytes(self) -> int:
        """What its replicas take together."""
        return self.replicas * self.memory_bytes
