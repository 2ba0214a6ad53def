"""What is said to a turn from outside while it runs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from antiphon.core.ids import GenerationId
from antiphon.orchestrator.live import LiveFeed
from antiphon.orchestrator.readers import Readership
from antiphon.orchestrator.response_cache import Starter


@dataclass(slots=True)
class Control:
    """What a runner tells a turn, and what it may ask about it."""

    readership: Readership
    continues: GenerationId | None = None
    starter: Starter | None = None
    """Its dealings with the response cache, where it begins a conversation with a starter prompt."""
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    seen_seq: int | None = None
    """Where whoever stopped it stood; ``None``: nobody said so here, and all that was written stays."""
    live: LiveFeed = field(default_factory=LiveFeed)
    finishing: bool = False
    deleted: bool = False

    def stop(self, seen_seq: int | None) -> None:
        """Cancel the generation; of several stoppers, the one who has seen most counts."""
        if seen_seq is not None:
            self.seen_seq = max(seen_seq, self.seen_seq or 0)
        self.cancelled.set()
