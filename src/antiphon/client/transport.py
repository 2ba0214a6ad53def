"""HTTP over the standard library: one connection per request, problems as ``ApiError``."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self, TypeVar
from urllib.parse import urlsplit

import msgspec

from antiphon.client.calls import Call
from antiphon.client.errors import ApiError, ClientError, ConnectionLost, ProtocolError
from antiphon.client.shapes import Problem

Shape = TypeVar("Shape")

_MOST_PROBLEM_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Address:
    """A server's address, taken apart. ``prefix`` is its path without a slash at the end."""

    scheme: str
    host: str
    port: int | None
    prefix: str

    @classmethod
    def of(cls, url: str) -> Self:
        """Raises ``ClientError`` for a URL that is not http or https."""
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ClientError(f"{url!r} is not an http:// or https:// address")
        return cls(parts.scheme, parts.hostname, parts.port, parts.path.rstrip("/"))

    @property
    def base(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}{'' if self.port is None else f':{self.port}'}{self.prefix}"


class Transport:
    """Requests to one server with one key. Thread-safe: it holds no connection."""

    def __init__(self, url: str, key: str, *, timeout_s: float) -> None:
        """``timeout_s`` bounds connecting and each silence. Raises ``ClientError`` for a URL that is not http or https."""
        self._address = Address.of(url)
        self._connection = http.client.HTTPSConnection if self._address.scheme == "https" else http.client.HTTPConnection
        self._key = key
        self._timeout_s = timeout_s

    @contextmanager
    def exchange(
        self, method: str, path: str, body: Mapping[str, object] | None = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        """The answer, read as far as its headers. Raises ``ApiError`` for a status of 400 and above, ``ConnectionLost``."""
        connection = self._connection(self._address.host, self._address.port, timeout=self._timeout_s)
        sent = {"Authorization": f"Bearer {self._key}", "Accept": "application/json", **(headers or {})}
        payload = None
        if body is not None:
            payload = json.dumps(body)
            sent["Content-Type"] = "application/json"
        try:
            connection.request(method, self._address.prefix + path, payload, sent)
            with connection.getresponse() as answer:
                if answer.status >= 400:
                    raise api_error(answer.status, answer.reason, answer.read(_MOST_PROBLEM_BYTES))
                yield answer
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionLost(f"{self._address.base}: {_reason(error)}") from error
        finally:
            connection.close()

    def call(self, call: Call[Shape]) -> Shape:
        """The JSON answer in the call's shape; also raises ``ProtocolError``."""
        with self.exchange(call.method, call.path, call.body) as answer:
            content = answer.read()
        return decode(call, content)


def decode(call: Call[Shape], content: bytes) -> Shape:
    """Raises ``ProtocolError`` where ``content`` has not the call's shape."""
    try:
        return msgspec.json.decode(content, type=call.shape)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"{call.method} {call.path} answered something else: {error}") from error


def api_error(status: int, reason: str, content: bytes) -> ApiError:
    """The problem in an answer of status 400 and above."""
    try:
        problem = msgspec.json.decode(content, type=Problem)
    except msgspec.MsgspecError:
        return ApiError(status, "unknown", f"The server answered {status} {reason}.")
    detail = problem.detail or reason
    return ApiError(status, problem.code, detail, retry_after_ms=problem.retry_after_ms, request_id=problem.request_id)


def _reason(error: Exception) -> str:
    """What happened, without the system's number for it."""
    reason = error.strerror if isinstance(error, OSError) else None
    return reason or str(error) or type(error).__name__
