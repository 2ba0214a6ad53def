"""What a call of the client library can raise.

ClientError
├── ApiError          the server answered with a problem
├── ConnectionLost    it could not be reached, or went away and did not come back in time
└── ProtocolError     it answered with something that is not Antiphon's API
"""

from __future__ import annotations


class ClientError(Exception):
    """Root of the errors of this library."""


class ApiError(ClientError):
    """A refusal. ``code`` is stable; ``detail`` is a sentence for people."""

    def __init__(self, status: int, code: str, detail: str, *, retry_after_ms: int | None = None, request_id: str = "") -> None:
        self.status = status
        self.code = code
        self.detail = detail
        self.retry_after_ms = retry_after_ms
        self.request_id = request_id
        super().__init__(f"{detail} ({code})")


class ConnectionLost(ClientError):
    """No connection to the server."""


class ProtocolError(ClientError):
    """The answer cannot be understood."""
