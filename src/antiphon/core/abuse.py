"""What accounts under suspicion are told in: what turns tell of an account, and the case that is kept about it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from antiphon.core.allowance import Customer
from antiphon.core.ids import GenerationId, TenantId, UserId


class CaseState(StrEnum):
    CLEAR = "clear"
    FLAGGED = "flagged"
    THROTTLED = "throttled"


@dataclass(frozen=True, slots=True)
class Signal:
    """One thing that the score is made of: ``level`` is 0 for what is usual and 1 for what nobody does by hand."""

    name: str
    level: float


@dataclass(frozen=True, slots=True)
class Case:
    """What is held against an account. ``version`` counts its changes; ``reviewed_by`` is who decided last, ``None`` for the server.

    Until ``trusted_until`` the server holds nothing against it.
    """

    tenant_id: TenantId
    user_id: UserId
    state: CaseState
    score: float
    signals: tuple[Signal, ...]
    since: datetime
    version: int = 1
    reviewed_by: UserId | None = None
    trusted_until: datetime | None = None


class Watch(Protocol):
    """Is told of every turn. Quick; raises nothing."""

    def began(self, customer: Customer, generation_id: GenerationId, conversation: str, asked: str) -> None:
        """A turn was accepted. ``conversation`` is where it belongs, a name of its own where nowhere; ``asked`` is what was asked."""
        ...

    def ran(self, customer: Customer, ended_at: datetime, ran_ms: int) -> None:
        """A turn has ended, for which an engine worked ``ran_ms`` until then."""
        ...


class Unwatched:
    """Nobody watches."""

    def began(self, customer: Customer, generation_id: GenerationId, conversation: str, asked: str) -> None:
        pass

    def ran(self, customer: Customer, ended_at: datetime, ran_ms: int) -> None:
        pass
