"""What the public API answers, as far as this library reads it. Fields and events it does not know are ignored."""

from __future__ import annotations

import msgspec

from antiphon.client.errors import ProtocolError


class Conversation(msgspec.Struct, frozen=True):
    id: str
    title: str
    model: str | None = None
    version: int = 1


class ConversationPage(msgspec.Struct, frozen=True):
    data: tuple[Conversation, ...]
    next: str | None = None


class Message(msgspec.Struct, frozen=True):
    """A message of a conversation. ``status`` is streaming, complete, cancelled, failed or interrupted."""

    id: str
    role: str
    content: str
    status: str
    parent_id: str | None = None
    model: str | None = None
    generation_id: str | None = None


class Path(msgspec.Struct, frozen=True):
    """Messages from the root to a leaf. ``siblings`` holds, for each, its own id and those of the branches beside it, in order."""

    data: tuple[Message, ...]
    siblings: dict[str, tuple[str, ...]] = {}
    next: str | None = None


class Model(msgspec.Struct, frozen=True):
    id: str
    status: str = "ready"
    load: str = "normal"
    context_tokens: int = 0


class ModelList(msgspec.Struct, frozen=True):
    data: tuple[Model, ...]


class Me(msgspec.Struct, frozen=True):
    user_id: str
    tenant_id: str
    name: str
    plan: str


class Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class Generation(msgspec.Struct, frozen=True):
    id: str
    message_id: str
    status: str
    text: str = ""
    usage: Usage = Usage()


class Problem(msgspec.Struct, frozen=True):
    code: str
    detail: str = ""
    retry_after_ms: int | None = None
    request_id: str = ""


class Meta(msgspec.Struct, frozen=True):
    generation_id: str
    model: str
    conversation_id: str | None = None
    message_id: str | None = None
    user_message_id: str | None = None


class Delta(msgspec.Struct, frozen=True):
    text: str


class Snapshot(msgspec.Struct, frozen=True):
    """Everything shown so far; it replaces what the reader holds."""

    text: str


class Retract(msgspec.Struct, frozen=True):
    """Replaces what was shown."""

    reason: str
    text: str


class Done(msgspec.Struct, frozen=True):
    finish_reason: str
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    ttft_ms: int | None = None
    duration_ms: int = 0


class Failed(msgspec.Struct, frozen=True):
    code: str
    message: str
    retryable: bool = False
    retry_after_ms: int | None = None


class Status(msgspec.Struct, frozen=True):
    """Where a waiting answer stands; never part of it."""

    state: str
    position: int | None = None
    eta_ms: int | None = None
    done: int | None = None
    total: int | None = None


class Queue(msgspec.Struct, frozen=True):
    """How many wait in one band."""

    band: str
    waiting: int


class Blocks(msgspec.Struct, frozen=True):
    free: int
    held: int
    cached: int


class ReplicaState(msgspec.Struct, frozen=True):
    """One replica as its operator sees it."""

    id: str
    state: str
    running: int
    waiting: int
    blocks: Blocks
    tok_s: float
    pid: int | None = None
    circuit: str = "closed"


class PoolState(msgspec.Struct, frozen=True):
    """One pool; ``shed`` and ``downgraded`` count turns since the server's start, ``presence`` is its model's, in memory;
    ``trouble`` says why a replica whose last start failed is not ready.
    """

    name: str
    queue: tuple[Queue, ...]
    replicas: tuple[ReplicaState, ...]
    load: str = "normal"
    wait_ms: int = 0
    shed: int = 0
    downgraded: int = 0
    presence: str = "resident"
    trouble: str | None = None


class Reconnect(msgspec.Struct, frozen=True):
    after_ms: int


Event = Meta | Delta | Snapshot | Retract | Done | Failed | Status
_EVENTS: dict[str, type[Event | Reconnect]] = {
    "meta": Meta,
    "delta": Delta,
    "snapshot": Snapshot,
    "retract": Retract,
    "done": Done,
    "error": Failed,
    "status": Status,
    "reconnect": Reconnect,
}


def read_event(kind: str, data: str) -> Event | Reconnect | None:
    """The event, or ``None`` for a kind this library does not know. Raises ``ProtocolError``."""
    shape = _EVENTS.get(kind)
    if shape is None:
        return None
    try:
        return msgspec.json.decode(data, type=shape)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"the {kind} event cannot be read: {error}") from error
