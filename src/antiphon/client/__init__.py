"""The Python client library; it knows only the public API. ``Client`` blocks; ``antiphon.client.async_client`` has ``AsyncClient``."""

from __future__ import annotations

from antiphon.client.answer import Answer
from antiphon.client.calls import CURRENT_LEAF
from antiphon.client.client import Client
from antiphon.client.errors import ApiError, ClientError, ConnectionLost, ProtocolError
from antiphon.client.shapes import (
    Conversation,
    ConversationPage,
    Delta,
    Done,
    Event,
    Failed,
    Generation,
    Me,
    Message,
    Meta,
    Model,
    Path,
    PoolState,
    ReplicaState,
    Retract,
    Snapshot,
    Status,
    Usage,
)

__all__ = [
    "CURRENT_LEAF",
    "Answer",
    "ApiError",
    "Client",
    "ClientError",
    "ConnectionLost",
    "Conversation",
    "ConversationPage",
    "Delta",
    "Done",
    "Event",
    "Failed",
    "Generation",
    "Me",
    "Message",
    "Meta",
    "Model",
    "Path",
    "PoolState",
    "ProtocolError",
    "ReplicaState",
    "Retract",
    "Snapshot",
    "Status",
    "Usage",
]
