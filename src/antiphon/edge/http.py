"""The edge's one ASGI application.

A thin dispatcher gives every request an id, bounds its body, sets the headers every answer has, writes one log line, and tells
errors that nobody else told. Inside it, files of the web client and FastAPI's routes; what an endpoint hands off (streams) runs
on the plain ASGI interface after FastAPI has returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import cast

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from antiphon.core.errors import AntiphonError, BodyTooLarge
from antiphon.core.ids import IdKind
from antiphon.edge.access import AppState, Exchange, Handoff, ShortWay, app_state, faults_of
from antiphon.edge.auth import Authenticator, check_encoding, header
from antiphon.edge.body import MAX_BODY_BYTES
from antiphon.edge.completion_faults import completion_faults
from antiphon.edge.connection import ClientGone
from antiphon.edge.hosts import host_problem
from antiphon.edge.problems import (
    INTERNAL,
    NOT_FOUND,
    Problem,
    invalid_request,
    method_not_allowed,
    openai_body,
    problem_body,
    problem_headers,
    problem_of,
)
from antiphon.edge.routes import ROUTERS
from antiphon.edge.routes.openai import complete
from antiphon.edge.schemas import ChatCompletion
from antiphon.edge.services import EdgeServices
from antiphon.edge.standing import credentials_of
from antiphon.edge.stream import Streams
from antiphon.edge.transferring import Imports
from antiphon.edge.web_client import StaticFiles, send_file, wants_page

SHORT_WAYS = {"/v1/chat/completions": ShortWay(ChatCompletion, complete, completion_faults)}
"""What POST of these does, and in OpenAI's shapes."""

_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; worker-src 'self'; frame-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", _CSP.encode("ascii")),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
_HSTS = (b"strict-transport-security", b"max-age=31536000")
_NO_STORE = (b"cache-control", b"no-store")
_LENGTH_DIGITS = 18
_LOGGED_PATH = 200

_log = structlog.get_logger(__name__)


def build_app(services: EdgeServices) -> EdgeApp:
    """The application that serves ``services``."""
    api = FastAPI(
        title="Antiphon",
        version=services.version,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        exception_handlers={
            HTTPException: _on_http_exception,
            RequestValidationError: _on_validation_error,
            AntiphonError: _on_error,
            ClientGone: _on_gone,
            Exception: _on_error,
        },
    )
    api.state.services = services
    static = api.state.static = StaticFiles(services.static_dir)
    authenticator = Authenticator(services.accounts, services.clock, public_url=services.public_url)
    api.state.authenticator = authenticator
    streams = api.state.streams = Streams(services, authenticator.authenticate_anew)
    api.state.imports = Imports(services)
    api.state.forget_credentials = lambda: _forget_credentials(authenticator, streams)
    for router in ROUTERS:
        api.include_router(router)
    return EdgeApp(services, api, static)


def _forget_credentials(authenticator: Authenticator, streams: Streams) -> None:
    authenticator.forget()
    streams.standings.look_now()


class EdgeApp:
    """Every request passes here; see the module's text."""

    def __init__(self, services: EdgeServices, api: FastAPI, static: StaticFiles) -> None:
        self._services = services
        self._api = api
        self._state = cast("AppState", cast("object", api.state))
        self.streams = self._state.streams
        self._static = static
        self._loopback_only = services.loopback and not services.public_url
        self._headers = (*_HEADERS, _HSTS) if services.public_url.startswith("https://") else _HEADERS

    def new_request_id(self) -> str:
        """An id for one answer."""
        return self._services.ids.new(IdKind.REQUEST)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        exchange = Exchange(self.new_request_id())
        exchange.attach(scope)
        answer = _Answer(send, (*self._headers, (b"x-request-id", exchange.request_id.encode("ascii"))))
        began = self._services.clock.monotonic()
        # Bound by hand: the context manager would stay on the frame of every open stream.
        bound = structlog.contextvars.bind_contextvars(request_id=exchange.request_id)
        try:
            await self._answer(exchange, scope, receive, answer)
            if exchange.handoff is not None:
                await self._hand_off(exchange, exchange.handoff, scope, receive, answer)
        finally:
            _log.info(
                "request",
                method=scope["method"],
                path=_logged_path(scope),
                status=answer.status,
                ms=round((self._services.clock.monotonic() - began) * 1000),
                user_id=None if exchange.principal is None else exchange.principal.user_id,
            )
            structlog.contextvars.reset_contextvars(**bound)

    async def _answer(self, exchange: Exchange, scope: Scope, receive: Receive, answer: _Answer) -> None:
        try:
            await self._route(scope, receive, answer.send)
        except ClientGone:
            exchange.handoff = None
        except Exception as error:  # noqa: BLE001 - the last place where an error becomes an answer
            exchange.handoff = None
            await self._tell(error, scope, receive, answer)

    async def _hand_off(self, exchange: Exchange, application: ASGIApp, scope: Scope, receive: Receive, answer: _Answer) -> None:
        watched = exchange.principal is not None and not exchange.watches_itself
        cutting = self.streams.standings.cutting(credentials_of(scope["headers"])) if watched else nullcontext()
        try:
            with cutting:
                await application(scope, receive, answer.send)
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001 - as above
            await self._tell(error, scope, receive, answer)

    async def _tell(self, error: Exception, scope: Scope, receive: Receive, answer: _Answer) -> None:
        problem = problem_of(error)
        if problem is INTERNAL:
            _log.error("request_failed", path=_logged_path(scope), exc_info=error)
        if answer.status is None:
            await problem_response(problem, scope)(scope, receive, answer.send)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = host_problem(scope, loopback_only=self._loopback_only)
        if problem is not None:
            await problem_response(problem, scope)(scope, receive, send)
            return
        short_way = SHORT_WAYS.get(scope["path"]) if scope["method"] == "POST" else None
        if short_way is not None:
            await short_way.answer(self._state, scope, _bounded(scope, receive), send)
            return
        # A copy: what FastAPI puts into a scope must not outlive it under a stream.
        inner = dict(scope)
        if scope["method"] in {"GET", "HEAD"} and not scope["path"].startswith("/v1/"):
            file = await self._static.find(scope["path"])
            if file is not None:
                await send_file(file, send, accept_encoding=header(scope["headers"], b"accept-encoding") or "")
                return
            inner["method"] = "GET"  # monitors ask with HEAD; the server sends no body then
        await self._api(inner, _bounded(scope, receive), send)


class _Answer:
    """Adds the headers every answer has, and remembers the status."""

    __slots__ = ("_headers", "_send", "status")

    def __init__(self, send: Send, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self.status: int | None = None
        self._send = send
        self._headers = headers

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = int(message["status"])
            headers = [*message.get("headers", ())]
            own = {name.lower() for name, _ in headers}
            headers += [pair for pair in self._headers if pair[0] not in own]
            if b"cache-control" not in own:
                headers.append(_NO_STORE)
            message = {**message, "headers": headers}
        await self._send(message)


def _bounded(scope: Scope, receive: Receive) -> Receive:
    """``receive`` that counts the body's bytes, whatever ``Content-Length`` says.

    Raises ``BodyTooLarge``, ``ClientGone``, and as ``check_encoding``.
    """
    announced = header(scope["headers"], b"content-length") or ""
    too_large = announced.isdecimal() and (len(announced) > _LENGTH_DIGITS or int(announced) > MAX_BODY_BYTES)
    received = 0

    async def receive_bounded() -> Message:
        nonlocal received
        check_encoding(scope["headers"])
        if too_large:
            raise BodyTooLarge
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        received += len(message.get("body", b""))
        if received > MAX_BODY_BYTES:
            raise BodyTooLarge
        return message

    return receive_bounded


def _logged_path(scope: Scope) -> str:
    """The path as it was sent, percent-encoded, so that it cannot forge a log line; never the query, which may hold a token."""
    return str(scope["raw_path"], "ascii", "replace")[:_LOGGED_PATH]


def problem_response(problem: Problem, scope: Scope) -> Response:
    """``problem`` in the shape this route's clients read."""
    headers = problem_headers(problem)
    if scope["path"] in SHORT_WAYS:
        response = Response(openai_body(problem), problem.status, media_type="application/json")
    else:
        body = problem_body(problem, Exchange.of(scope).request_id)
        response = Response(body, problem.status, media_type="application/problem+json")
    response.raw_headers.extend(headers)
    return response


async def _on_error(request: Request, error: Exception) -> Response:
    return _told(problem_of(error), request)


def _told(problem: Problem, request: Request) -> Response:
    """``problem``; a person whose browser went to an address that is none sees a page."""
    if problem.status == 404 and wants_page(request.scope):
        return Handoff(_missing_page(app_state(request).static))
    return problem_response(problem, request.scope)


def _missing_page(static: StaticFiles) -> ASGIApp:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
        encodings = header(scope["headers"], b"accept-encoding") or ""
        await send_file(await static.page(), send, accept_encoding=encodings, status=404)

    return answer


async def _on_gone(request: Request, error: Exception) -> Response:  # noqa: ARG001
    """Nobody reads this; the status is for the log."""
    return Response(status_code=499)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """FastAPI's and Starlette's own refusals: no such route, no such method."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 405:
        allow = (error.headers or {}).get("Allow", "") if isinstance(error, HTTPException) else ""
        return problem_response(method_not_allowed(allow), request.scope)
    return _told(NOT_FOUND if status == 404 else INTERNAL, request)


async def _on_validation_error(request: Request, error: Exception) -> Response:
    errors = error.errors() if isinstance(error, RequestValidationError) else ()
    return problem_response(invalid_request(faults_of([(found["loc"], found["msg"]) for found in errors])), request.scope)
