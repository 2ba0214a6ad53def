"""The Python client library; it knows only the public API."""

from __future__ import annotations

from antiphon.client.answer import Answer
from antiphon.client.client import Client
from antiphon.client.errors import ApiError, ClientError, ConnectionLost, ProtocolError
from antiphon.client.shapes import (
    Conversation,
    Delta,
    Done,
    Event,
    Failed,
    Generation,
    Me,
    Meta,
    Model,
    Retract,
    Snapshot,
    Status,
    Usage,
)

__all__ = [
    "Answer",
    "ApiError",
    "Client",
    "ClientError",
    "ConnectionLost",
    "Conversation",
    "Delta",
    "Done",
    "Event",
    "Failed",
    "Generation",
    "Me",
    "Meta",
    "Model",
    "ProtocolError",
    "Retract",
    "Snapshot",
    "Status",
    "Usage",
]
