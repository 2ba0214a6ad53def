"""Events of a generation. ``LogEvent`` kinds are entries of its log; ``LiveEvent`` kinds are never logged nor replayed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from antiphon.core.ids import ConversationId, GenerationId, MessageId


@dataclass(frozen=True, slots=True)
class ReadContext:
    """What of a conversation the model was not given whole: so many earlier messages were left out, a summary stands for them or not,
    and so many snippets of them were brought back.
    """

    omitted: int
    summarised: bool
    snippets: int


@dataclass(frozen=True, slots=True)
class Meta:
    """``context`` is there where something was left out."""

    generation_id: GenerationId
    conversation_id: ConversationId | None
    message_id: MessageId | None
    user_message_id: MessageId | None
    model: str
    requested_model: str
    context: ReadContext | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    text: str


@dataclass(frozen=True, slots=True)
class Source:
    title: str
    url: str


@dataclass(frozen=True, slots=True)
class Sources:
    items: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything shown so far; it replaces what the reader holds."""

    text: str


@dataclass(frozen=True, slots=True)
class Retract:
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class Done:
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    queued_ms: int
    ttft_ms: int | None
    duration_ms: int
    cost: str | None
    model: str
    requested_model: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The wire's ``error`` event."""

    code: str
    message: str
    retryable: bool
    retry_after_ms: int | None = None


LogEvent = Meta | Delta | Reasoning | Sources | Snapshot | Retract | Done | Failed


@dataclass(frozen=True, slots=True)
class Queued:
    """A place in the line. ``starting``: no replica is up yet, so the model's start is what is waited for."""

    position: int
    eta_ms: int | None
    starting: bool = False


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Downgraded:
    from_model: str
    to_model: str
    reason: str


@dataclass(frozen=True, slots=True)
class Title:
    title: str


@dataclass(frozen=True, slots=True)
class Reconnect:
    after_ms: int


LiveEvent = Queued | PrefillProgress | Downgraded | Title | Reconnect


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One logged event. ``seq`` is dense from 1 over the whole generation, across epochs.

    ``token_ids`` are the ids consumed since the previous entry; they stay inside the server and make exact continuation possible.
    """

    epoch: int
    seq: int
    event: LogEvent
    token_ids: tuple[int, ...] = ()

    @property
    def terminal(self) -> bool:
        return isinstance(self.event, Done | Failed)


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a reader stands: it has everything up to and including ``seq``. ``epoch`` is ``None`` for a bare seq."""

    seq: int
    epoch: int | None = None


_CURSOR = re.compile(r"(?:(\d{1,9})-)?(\d{1,12})\Z", re.ASCII)


def parse_cursor(text: str) -> Cursor | None:
    """Read ``<epoch>-<seq>`` or ``<seq>``; ``None`` for anything else (the reader then gets one snapshot)."""
    found = _CURSOR.match(text)
    if found is None:
        return None
    epoch, seq = found.groups()
    return Cursor(seq=int(seq), epoch=None if epoch is None else int(epoch))


def cursor_text(entry: LogEntry) -> str:
    """The wire id of an entry: ``<epoch>-<seq>``."""
    return f"{entry.epoch}-{entry.seq}"
