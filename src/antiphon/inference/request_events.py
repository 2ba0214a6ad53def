"""What a request's one reader hears of it, from its place in the line to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from antiphon.core.errors import QueueTimeout
from antiphon.core.events import Queued
from antiphon.engines.base import EngineEvent, Tokens
from antiphon.inference.pool import Pool
from antiphon.inference.ticket import Ticket

_PATIENCE_S = 5.0
"""Who may wait beyond its deadline asks again so often."""


class RequestEvents:
    """What a request's replica and line say to its one reader. A reader who is cancelled while it waits loses no event."""

    __slots__ = ("_deadline", "_forget", "_pool", "_ticket")

    def __init__(self, pool: Pool, ticket: Ticket, deadline: float, forget: Callable[[Pool, Ticket], None]) -> None:
        """Until ``deadline``, by the loop's time, a replica has to have taken it."""
        self._pool = pool
        self._ticket = ticket
        self._deadline = deadline
        self._forget = forget

    async def next(self) -> EngineEvent | Queued:
        """The next event; see ``Gateway.open``."""
        ticket = self._ticket
        event = ticket.mailbox.take()
        while event is None:
            if ticket.replica is not None or ticket.ended:
                event = await ticket.mailbox.get()
                break
            try:
                async with asyncio.timeout_at(self._deadline):
                    event = await ticket.mailbox.get()
            except TimeoutError:
                if ticket.replica is not None or ticket.ended:
                    continue
                if not self._pool.waits_on(ticket):
                    raise QueueTimeout(self._pool.why_late) from None
                self._deadline = asyncio.get_running_loop().time() + _PATIENCE_S
        if isinstance(event, Tokens):
            ticket.read_tokens += len(event.token_ids)
        return event

    def close(self) -> None:
        """Cancel the request unless it has ended: its blocks are free after the replica's current step. Harmless when called twice."""
        self._forget(self._pool, self._ticket)
        self._pool.leave(self._ticket)
