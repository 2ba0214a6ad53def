"""HTTP over the standard library: one connection per request, problems as ``ApiError``."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from antiphon.client.errors import ApiError, ClientError, ConnectionLost, ProtocolError
from antiphon.client.shapes import Problem

Shape = TypeVar("Shape")


class Transport:
    """Requests to one server with one key. Thread-safe: it holds no connection."""

    def __init__(self, url: str, key: str, *, timeout_s: float) -> None:
        """``timeout_s`` bounds connecting and each silence. Raises ``ClientError`` for a URL that is not http or https."""
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ClientError(f"{url!r} is not an http:// or https:// address")
        self._connection = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host = parts.hostname
        self._port = parts.port
        self._prefix = parts.path.rstrip("/")
        self._key = key
        self._timeout_s = timeout_s

    @contextmanager
    def exchange(
        self, method: str, path: str, body: Mapping[str, object] | None = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        """The answer, read as far as its headers. Raises ``ApiError`` for a status of 400 and above, ``ConnectionLost``."""
        connection = self._connection(self._host, self._port, timeout=self._timeout_s)
        sent = {"Authorization": f"Bearer {self._key}", "Accept": "application/json", **(headers or {})}
        payload = None
        if body is not None:
            payload = json.dumps(body)
            sent["Content-Type"] = "application/json"
        try:
            connection.request(method, self._prefix + path, payload, sent)
            with connection.getresponse() as answer:
                if answer.status >= 400:
                    raise _problem(answer)
                yield answer
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionLost(f"{self._address(connection)}: {_reason(error)}") from error
        finally:
            connection.close()

    def _address(self, connection: http.client.HTTPConnection) -> str:
        scheme = "https" if isinstance(connection, http.client.HTTPSConnection) else "http"
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{scheme}://{host}:{connection.port}"

    def call(self, method: str, path: str, shape: type[Shape], body: Mapping[str, object] | None = None) -> Shape:
        """The JSON answer as ``shape``; also raises ``ProtocolError``."""
        with self.exchange(method, path, body) as answer:
            text = answer.read()
        try:
            return msgspec.json.decode(text, type=shape)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"{method} {path} answered something else: {error}") from error


def _reason(error: Exception) -> str:
    """What happened, without the system's number for it."""
    reason = error.strerror if isinstance(error, OSError) else None
    return reason or str(error) or type(error).__name__


def _problem(answer: http.client.HTTPResponse) -> ApiError:
    try:
        problem = msgspec.json.decode(answer.read(65_536), type=Problem)
    except msgspec.MsgspecError:
        return ApiError(answer.status, "unknown", f"The server answered {answer.status} {answer.reason}.")
    return ApiError(
        answer.status,
        problem.code,
        problem.detail or answer.reason,
        retry_after_ms=problem.retry_after_ms,
        request_id=problem.request_id,
    )
