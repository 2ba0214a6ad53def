"""One accepted request at the gateway, from its acceptance to its last event."""

from __future__ import annotations

from dataclasses import dataclass, field

from antiphon.engines.base import EngineRequest
from antiphon.inference.ask import Ask
from antiphon.inference.mailbox import Mailbox
from antiphon.inference.shell import ReplicaShell


@dataclass(slots=True, eq=False)
class Ticket:
    """``request`` is ``None`` until it comes."""

    ask: Ask
    entered_at: float
    number: int
    request: EngineRequest | None = None
    mailbox: Mailbox = field(default_factory=Mailbox)
    replica: ReplicaShell[Ticket] | None = None
    handle: int = 0
    queued_s: float = 0.0
    last_token_at: float | None = None
    read_tokens: int = 0
    ended: bool = False
    probe: bool = False
