"""The blocking client of Antiphon's public API."""

from __future__ import annotations

import secrets

from antiphon.client import calls
from antiphon.client.answer import Answer
from antiphon.client.calls import CURRENT_LEAF, CurrentLeaf
from antiphon.client.shapes import Conversation, ConversationPage, Generation, Me, Model, Path, PoolState
from antiphon.client.transport import Transport

SILENCE_S = 45.0
"""Three missed pings: the connection is dead."""


class Client:
    """One server, one key. Every call raises ``ApiError``, ``ConnectionLost`` or ``ProtocolError``. Thread-safe."""

    def __init__(self, url: str, key: str, *, timeout_s: float = SILENCE_S) -> None:
        self._transport = Transport(url, key, timeout_s=timeout_s)

    def me(self) -> Me:
        return self._transport.call(calls.me())

    def pools(self) -> tuple[PoolState, ...]:
        """Every pool's line and replicas; the key needs the scope admin."""
        return self._transport.call(calls.pools())

    def models(self) -> tuple[Model, ...]:
        return self._transport.call(calls.models()).data

    def new_conversation(self, *, title: str | None = None, model: str | None = None) -> Conversation:
        return self._transport.call(calls.new_conversation(title, model))

    def conversations(self, *, limit: int = 30, after: str | None = None) -> ConversationPage:
        """Newest first; ``next`` of a page is ``after`` of the one that follows it."""
        return self._transport.call(calls.conversations(limit, after))

    def path(self, conversation_id: str, *, leaf: str | None = None, limit: int = 100) -> Path:
        """The messages from the root to ``leaf``, or to where the conversation stands, with the branches beside them."""
        return self._transport.call(calls.path(conversation_id, leaf, limit))

    def send(
        self,
        conversation_id: str,
        content: str | None,
        *,
        parent: str | CurrentLeaf | None = CURRENT_LEAF,
        model: str | None = None,
        max_tokens: int | None = None,
    ) -> Answer:
        """Say ``content`` below ``parent``: the current leaf, a message's id, or ``None`` for a new beginning.

        ``content`` ``None`` has the user message ``parent`` answered once more. Nothing is sent before the answer is iterated over.
        """
        opening = calls.send(conversation_id, calls.Message(content, parent, model, max_tokens), secrets.token_hex(16))
        return Answer(self._transport, opening)

    def generation(self, generation_id: str) -> Generation:
        return self._transport.call(calls.generation(generation_id))
