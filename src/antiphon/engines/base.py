"""Ports of the accelerator plane.

``Engine`` takes a whole request and yields its events; gateway and orchestrator know only this.
``Executor`` takes one ``StepPlan`` and returns one ``StepResult``; only a replica's step loop knows it.
``Tokenizer`` is a model's vocabulary and chat template.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from antiphon.core.generation import FinishReason, Sampling
from antiphon.core.ids import TenantId
from antiphon.core.messages import Role
from antiphon.core.pools import Vocabulary
from antiphon.core.tenancy import Band

BLOCK_TOKENS = 32
"""Tokens of KV cache in one block."""
SILENCE_S = 120.0
"""A server that is not ours and has said nothing of an answer for so long is given up: until then it may be loading a model."""

KvPrecision = Literal["auto", "f32", "bf16", "f16", "u8"]


# --- whole requests -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One generation as an engine sees it: ids in, ids and text out.

    ``already_ids`` are output tokens computed before (resume, failover, Continue): they are context, they are not
    emitted again, and they count against ``sampling.max_tokens``. The sampler's position is ``len(prompt_ids) +
    len(already_ids)`` at the first new token, so a resumed generation draws the same noise.
    """

    request_id: str
    tenant_id: TenantId
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    already_ids: tuple[int, ...] = ()
    band: Band = Band.STANDARD
    ignore_end_of_turn: bool = False
    weight: float = 1.0
    """The tenant's share of the accelerator among the tenants of its band, relative to theirs."""
    public_prefix_tokens: int = 0
    """Leading ids of ``prompt_ids`` that the server itself wrote and that every tenant's prompts begin with (the system
    prompt): their cache may be shared by all tenants. Whoever sets it promises that no user's text is among them.
    """


@dataclass(frozen=True, slots=True)
class Prefilling:
    """Prompt tokens computed so far; live only."""

    done_tokens: int
    total_tokens: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """New output: the ids consumed and the text they completed (possibly empty: half a character, a held stop prefix)."""

    token_ids: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class EngineUsage:
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    queued_ms: int
    prefill_ms: int
    decode_ms: int
    accelerator_ms: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a request. ``text`` is what was still held back and is part of the answer."""

    reason: FinishReason
    usage: EngineUsage
    text: str = ""


EngineEvent = Prefilling | Tokens | Finished


class Engine(Protocol):
    def generate(self, request: EngineRequest) -> AsyncGenerator[EngineEvent]:
        """Yield events, the last a ``Finished``. Closing the iterator early cancels the request and frees its blocks.

        Raises ``EngineFailed`` when the engine dies in mid-request, ``NoCapacity`` when it is not ready.
        """
        ...


# --- single steps ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SampleRow:
    """Sample the token that follows the last new token of a sequence. ``position`` is that token's index."""

    position: int
    sampling: Sampling
    prompt_sha256: bytes
    output_ids: Sequence[int]


def prompt_sha256(prompt_ids: Sequence[int]) -> bytes:
    """What ``SampleRow.prompt_sha256`` holds: SHA-256 over the ids as 32-bit integers in this machine's byte order."""
    return hashlib.sha256(array("i", prompt_ids)).digest()


@dataclass(frozen=True, slots=True)
class SequenceStep:
    """What one sequence does in one step: compute ``token_ids`` after ``past_tokens`` cached ones.

    ``block_ids`` covers ``past_tokens + len(token_ids)`` tokens. ``sample`` is ``None`` while a prompt is unfinished.
    """

    sequence_id: int
    token_ids: Sequence[int]
    past_tokens: int
    block_ids: Sequence[int]
    sample: SampleRow | None


@dataclass(frozen=True, slots=True)
class BlockCopy:
    source_block: int
    target_block: int


@dataclass(frozen=True, slots=True)
class BlockSwap:
    """Moves one whole block, bit by bit, between the accelerator's cache and a slot of the second tier in host memory."""

    device_block: int
    host_slot: int


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One forward pass. Before it, in this order: ``swap_out`` (block to slot), ``swap_in`` (slot to block), ``copies``.

    A slot may be filled and then emptied in one step. A block written by a swap in may be the source of a copy.
    """

    sequences: tuple[SequenceStep, ...]
    copies: tuple[BlockCopy, ...] = ()
    swap_out: tuple[BlockSwap, ...] = ()
    swap_in: tuple[BlockSwap, ...] = ()

    @property
    def new_tokens(self) -> int:
        return sum(len(sequence.token_ids) for sequence in self.sequences)


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural logarithm of the probability the model itself gave a token: before temperature, penalties and bias."""

    token_id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class SampledToken:
    """``logprob`` and ``top_logprobs``, most probable first, are there where the row's sampling asked for them."""

    sequence_id: int
    token_id: int
    logprob: float | None = None
    top_logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """Sampled tokens, in the plan's order of sampled sequences. Times are seconds."""

    sampled: tuple[SampledToken, ...]
    infer_s: float
    sample_s: float


@dataclass(frozen=True, slots=True)
class ExecutorShape:
    """What an executor offers its scheduler. ``host_slots`` blocks can be swapped out; 0 means that it cannot swap."""

    blocks: int
    block_tokens: int
    context_tokens: int
    vocabulary_tokens: int
    end_token_ids: frozenset[int]
    host_slots: int = 0
    partial_copies: bool = True
    """Whether a copied block may be continued in mid-block: not where a block's content is quantised as a whole."""


class Executor(Protocol):
    """Runs steps on one accelerator. One caller at a time, from one thread."""

    @property
    def shape(self) -> ExecutorShape: ...

    def step(self, plan: StepPlan) -> StepResult:
        """Run one forward pass and sample. Blocks until it is done; raises ``EngineFailed`` when it cannot."""
        ...

    def close(self) -> None:
        """Free the accelerator's memory; harmless when called twice."""
        ...


# --- text -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """A message as the chat template sees it. ``content`` is untrusted and is encoded with special tokens off."""

    role: Role
    content: str


class TextStream(Protocol):
    """Turns one generation's token ids into text, incrementally. A pure function of the ids pushed so far."""

    def push(self, token_id: int) -> str:
        """Text completed by this token; never U+FFFD because of a split character, never part of a stop string."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether a stop string was completed; nothing may be pushed after that."""
        ...

    def finish(self) -> str:
        """What was held back and is now certain to belong to the answer; call once, at the end."""
        ...


@dataclass(frozen=True, slots=True)
class ThinkingMarks:
    """The tokens between which a reasoning model thinks before it answers."""

    open_id: int
    close_id: int


class Tokenizer(Protocol):
    @property
    def thinking(self) -> ThinkingMarks | None:
        """``None`` for a model that does not think aloud."""
        ...

    @property
    def end_token_ids(self) -> frozenset[int]:
        """Tokens that end a turn; they are never shown."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of untrusted ``text``: special tokens typed in it are plain characters. Blocking; O(len(text))."""
        ...

    def frame(self, roles: Sequence[Role]) -> tuple[tuple[int, ...], ...]:
        """What the chat template writes: the ids before each message's content, and those behind the last. Blocking.

        Alternating user and assistant messages, with or without a system message before them, always have one.
        """
        ...

    def prompt(self, messages: Sequence[PromptMessage]) -> list[int]:
        """Ids of the whole chat template, ending where the assistant's answer begins. Blocking."""
        ...

    def text_stream(self, stop: Sequence[str] = ()) -> TextStream:
        """A fresh decoder."""
        ...


class Embedder(Protocol):
    """Texts as points: those of like meaning lie near each other. Blocking; safe to use from several threads."""

    def embed(self, texts: Sequence[str]) -> bytes:
        """The texts' vectors one after the other, each as long as any, in a form of the embedder's own."""
        ...

    def near(self, text: str, vectors: bytes | bytearray, least_cosine: float) -> Mapping[int, float]:
        """The numbers of the vectors whose cosine with ``text`` is above ``least_cosine``, each with it. Keeps no hold of ``vectors``."""
        ...


# --- what a replica is started with ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """Everything a replica process needs to know; it is sent to it as JSON on start."""

    pool: str
    engine: Literal["openvino", "reference", "openai"]
    model: str
    model_path: str
    precision: Literal["fast", "exact"] = "fast"
    kv_bytes: int = 0
    context_tokens: int = 0
    threads: int = 0
    prefill_tokens_per_s: float = 0.0
    output_tokens_per_s: float = 0.0
    blocks: int = 0
    vocabulary: Vocabulary = "ascii"
    host_slots: int = -1
    """Blocks of the second tier; -1 leaves it to the engine, which takes them from the same memory budget."""
    order: Literal["fair", "fcfs"] = "fair"
    """How tenants of one band share the replica; ``fcfs`` is what fairness is measured against."""
    inter_token_ms: float = 50.0
    """How long a step with prefill may take beside decoding sequences."""
    replicas: int = 1
    """Replicas with a model of their own that run on this machine: they divide its memory and its threads."""
    memory_bytes: int = 0
    """What weights and cache may take; nothing is unpacked beyond it. 0: what is spare may be used."""
    kv_precision: KvPrecision = "auto"
    """Format of the KV cache. ``auto`` is f32 where ``precision`` is exact, else the machine's 16-bit format."""
    url: str = ""
    """Where an ``openai`` engine's server is, up to ``/v1``."""
    api_key_env: str = ""
    """The environment variable that holds its key."""
    api_key: str = field(default="", repr=False)
    """The key itself, where no variable holds it."""
