"""Frames between a gateway and a replica process: msgpack over ZeroMQ, one frame per step.

A *handle* is the gateway's number for one request at one replica: positive, growing, never used twice.
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from antiphon.core.tenancy import Band
from antiphon.engines.base import EngineRequest, EngineUsage, ExecutorShape, ReplicaSpec

LogFormat = Literal["text", "json"]


class Handshake(msgspec.Struct, frozen=True):
    """The first line on a worker's stdin, as JSON. End of file on stdin means that the parent is gone."""

    replica_id: str
    spec: ReplicaSpec
    address: str
    log_format: LogFormat = "text"


class StartFailure(msgspec.Struct, frozen=True):
    """The last line on a worker's stdout when it gives up, as JSON. ``error`` is one sentence for people."""

    error: str
    code: str = "engine_failed"


# --- gateway to replica ---------------------------------------------------------------------------


class Submit(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    handle: int
    request: EngineRequest


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    handle: int


class SetBand(msgspec.Struct, frozen=True, array_like=True, tag="b"):
    """From now on the request counts as one of this band; unknown handles are ignored."""

    handle: int
    band: Band


class Stop(msgspec.Struct, frozen=True, array_like=True, tag="q"):
    """End the process; what still runs is dropped."""


Command = Submit | Cancel | SetBand | Stop


# --- replica to gateway ---------------------------------------------------------------------------


class PrefillFrame(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    handle: int
    done_tokens: int
    total_tokens: int


class TokensFrame(msgspec.Struct, frozen=True, array_like=True, tag="t"):
    handle: int
    token_ids: tuple[int, ...]
    text: str


class FinishedFrame(msgspec.Struct, frozen=True, array_like=True, tag="f"):
    """The last frame of a request that ended as asked."""

    handle: int
    reason: str
    usage: EngineUsage
    text: str


class FailedFrame(msgspec.Struct, frozen=True, array_like=True, tag="e"):
    """The last frame of a request that the replica cannot serve."""

    handle: int
    detail: str


SequenceFrame = PrefillFrame | TokensFrame | FinishedFrame | FailedFrame


class ReplicaSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """State after a step. ``last_handle`` is the newest request it includes; ``unpromised`` blocks can take more.

    ``host_used`` slots of the second tier are filled. ``prefill_tokens`` are to compute before their first token.
    ``expected_output`` tokens is what an answer without a limit would probably have. ``step_ms`` are the step-time model's
    coefficients: milliseconds per step, decode row, prefill token, token of context, pair of tokens. ``preemptions`` and
    ``recomputed_tokens`` count from the start.
    """

    running: int
    waiting: int
    free: int
    held: int
    cached: int
    unpromised: int
    last_handle: int
    host_used: int = 0
    prefill_tokens: int = 0
    preemptions: int = 0
    recomputed_tokens: int = 0
    expected_output: int = 0
    step_ms: tuple[float, ...] = ()


class StepTimes(msgspec.Struct, frozen=True, array_like=True):
    """Seconds of one step's parts. ``emit_s`` is the previous step's: it includes sending its frame."""

    plan_s: float
    infer_s: float
    sample_s: float
    emit_s: float


class ReplicaReady(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """The first frame: the model is loaded. ``context_tokens`` is what a prompt and its answer can use together.

    ``most_waiting`` requests may wait there for their first step: its own line is short, since order, cancels and places are the
    gateway's.
    """

    pid: int
    shape: ExecutorShape
    context_tokens: int
    max_rows: int
    most_waiting: int = 8
    release: str = ""
    """What exactly is loaded."""


class StepFrame(msgspec.Struct, frozen=True, array_like=True, tag="w"):
    """Everything that one step, or one batch of commands, changed. ``times`` is ``None`` when no step was run.

    ``cached`` and ``dropped`` are fingerprints of prefix blocks that came into the cache and left it: the sum of all
    frames is the digest of what is cached.
    """

    sequences: tuple[SequenceFrame, ...]
    snapshot: ReplicaSnapshot
    times: StepTimes | None
    cached: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()


Report = ReplicaReady | StepFrame

_encoder = msgspec.msgpack.Encoder()
_commands: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_reports: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)


def encode(frame: Command | Report) -> bytes:
    return _encoder.encode(frame)


def decode_command(data: bytes) -> Command:
    """Raises ``msgspec.ValidationError`` for anything but a command."""
    return _commands.decode(data)


def decode_report(data: bytes) -> Report:
    """Raises ``msgspec.ValidationError`` for anything but a report."""
    return _reports.decode(data)


class Channel(Protocol):
    """A replica's end of the wire; one thread."""

    def receive(self, *, wait: bool, expected: int = 0) -> list[Command]:
        """All commands that have arrived; with ``wait`` at least one.

        Waits a moment, milliseconds at most, while fewer than ``expected`` have.
        """
        ...

    def send(self, report: Report) -> None: ...
