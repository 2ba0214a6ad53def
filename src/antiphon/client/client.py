"""The blocking client of Antiphon's public API."""

from __future__ import annotations

import secrets

from antiphon.client.answer import Answer, Opening
from antiphon.client.shapes import Conversation, Generation, Me, Model, ModelList
from antiphon.client.transport import Transport

SILENCE_S = 45.0
"""Three missed pings: the connection is dead."""


class Client:
    """One server, one key. Every call raises ``ApiError``, ``ConnectionLost`` or ``ProtocolError``. Thread-safe."""

    def __init__(self, url: str, key: str, *, timeout_s: float = SILENCE_S) -> None:
        self._transport = Transport(url, key, timeout_s=timeout_s)

    def me(self) -> Me:
        return self._transport.call("GET", "/v1/me", Me)

    def models(self) -> tuple[Model, ...]:
        return self._transport.call("GET", "/v1/models", ModelList).data

    def new_conversation(self, *, title: str | None = None, model: str | None = None) -> Conversation:
        body = {key: value for key, value in (("title", title), ("model", model)) if value is not None}
        return self._transport.call("POST", "/v1/conversations", Conversation, body)

    def send(self, conversation_id: str, content: str, *, model: str | None = None, max_tokens: int | None = None) -> Answer:
        """Say ``content`` at the current leaf. Nothing is sent before the answer is iterated over."""
        body: dict[str, object] = {"content": content}
        if model is not None:
            body["model"] = model
        if max_tokens is not None:
            body["params"] = {"max_tokens": max_tokens}
        path = f"/v1/conversations/{conversation_id}/messages"
        return Answer(self._transport, Opening(path, body, secrets.token_hex(16)))

    def generation(self, generation_id: str) -> Generation:
        return self._transport.call("GET", f"/v1/generations/{generation_id}", Generation)
