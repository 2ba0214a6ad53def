"""What a step brought a sequence."""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.core.generation import FinishReason
from antiphon.engines.base import EngineUsage


@dataclass(frozen=True, slots=True)
class Ended:
    """Why a sequence ended, and what it cost."""

    reason: FinishReason
    usage: EngineUsage


@dataclass(frozen=True, slots=True)
class SequenceOutput:
    """What a step did for one sequence: a token, or ``None`` and the tokens computed so far; ``ended`` when that was its end."""

    sequence_id: int
    token_id: int | None
    done_tokens: int
    total_tokens: int
    ended: Ended | None = None
