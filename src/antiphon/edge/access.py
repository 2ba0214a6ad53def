"""Routes that guard themselves: each declares who may call it, and a route that does not is an error at start-up.

A guarded route authenticates first, then reads and parses the body, then lets FastAPI validate.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Annotated, Any, Generic, Protocol, TypeVar, cast

from fastapi import Depends, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.datastructures import State
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from antiphon.core.errors import BadJson, FieldFault, Forbidden, InvalidRequest, MediaType, Unauthenticated
from antiphon.core.tenancy import Principal
from antiphon.core.tenancy import Scope as Permission
from antiphon.edge.auth import Authenticator, header, is_json
from antiphon.edge.body import JsonValue, check_text, parse_json
from antiphon.edge.services import EdgeServices
from antiphon.edge.standing import JOIN_SECONDS
from antiphon.edge.stream import Streams
from antiphon.stores.conversations.base import Owner

if TYPE_CHECKING:
    from antiphon.edge.transferring import Imports
    from antiphon.edge.web_client import StaticFiles

_EXCHANGE = "antiphon.exchange"
_GUARD = "__antiphon_guard__"
_MAX_FAULTS = 20
_MAX_PATH_PART = 100

Endpoint = TypeVar("Endpoint", bound=Callable[..., object])
Responses = dict[int | str, dict[str, object]]
"""Answers that FastAPI cannot see in an endpoint's signature."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Who may call a route: everybody, anybody signed in, or who holds ``permission``. ``takes_form``: its body is a file's form."""

    public: bool = False
    permission: Permission | None = None
    open_on_loopback: bool = False
    takes_form: bool = False


PUBLIC = Guard(public=True)
SIGNED_IN = Guard()
CHAT = Guard(permission=Permission.CHAT)
UPLOAD = Guard(permission=Permission.CHAT, takes_form=True)
USAGE = Guard(permission=Permission.USAGE)
ADMIN = Guard(permission=Permission.ADMIN)
METRICS = Guard(permission=Permission.METRICS, open_on_loopback=True)


def guarded(guard: Guard) -> Callable[[Endpoint], Endpoint]:
    """Declare who may call an endpoint."""

    def declare(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, _GUARD, guard)
        return endpoint

    return declare


def guard_of(route: APIRoute) -> Guard:
    """Who may call ``route``. Raises ``TypeError`` for an endpoint without ``guarded``."""
    return _guard_of(route.endpoint)


def _guard_of(endpoint: Callable[..., object]) -> Guard:
    guard = getattr(endpoint, _GUARD, None)
    if not isinstance(guard, Guard):
        raise TypeError(f"{endpoint}: it does not declare who may call it")
    return guard


@dataclass(slots=True)
class Exchange:
    """One request and its answer, as the dispatcher sees them; it travels in the ASGI scope."""

    request_id: str
    principal: Principal | None = None
    body: JsonValue = None
    handoff: ASGIApp | None = None
    watches_itself: bool = False

    @staticmethod
    def of(scope: Scope) -> Exchange:
        """The exchange of a request that came through the dispatcher."""
        return cast("Exchange", scope[_EXCHANGE])

    def attach(self, scope: Scope) -> None:
        """Put this exchange into a scope."""
        scope[_EXCHANGE] = self


class Handoff(Response):
    """What an endpoint returns when its answer is a plain ASGI application.

    It sends nothing: the dispatcher runs the application after FastAPI's frames are gone, so a stream that lasts minutes holds
    none of them. It is cut when the caller's credentials end, unless it ``watches_itself``.
    """

    def __init__(self, application: ASGIApp, *, watches_itself: bool = False) -> None:
        super().__init__()
        self._application = application
        self._watches_itself = watches_itself

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        exchange = Exchange.of(scope)
        exchange.handoff, exchange.watches_itself = self._application, self._watches_itself


class AppState(Protocol):
    """What ``build_app`` puts into FastAPI's ``app.state``."""

    services: EdgeServices
    authenticator: Authenticator
    streams: Streams
    imports: Imports
    static: StaticFiles
    forget_credentials: Callable[[], None]
    """A credential was ended here: nothing is remembered of it, and open streams are looked at now."""


def app_state(request: Request) -> AppState:
    """The application's own state, typed."""
    state: State = request.app.state
    return cast("AppState", state)


class _ParsedRequest(Request):
    """A request whose body has been read and parsed by us."""

    def __init__(self, request: Request, raw: bytes, value: JsonValue) -> None:
        super().__init__(request.scope, request.receive)
        self._raw = raw
        self._value = value

    async def body(self) -> bytes:
        return self._raw

    async def json(self) -> JsonValue:
        return self._value


class GuardedRoute(APIRoute):
    """Raises ``TypeError`` at start-up for an endpoint without ``guarded``, and for anything of it that would run in a thread.

    A trip to a thread waits twice for a busy event loop: five of them per request were a p99 of 117 ms beside 500 streams, not 50.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        guard = guard_of(self)
        for call in (self.endpoint, *_dependencies(self.dependant)):
            if not iscoroutinefunction(call):
                raise TypeError(f"{self.path}: {call} is not a coroutine function")
        validate = super().get_route_handler()
        takes_body = self.body_field is not None
        needs_body = self.body_field is not None and self.body_field.field_info.is_required()

        async def handle(request: Request) -> Response:
            if not takes_body:
                await _admit(app_state(request), request.scope, guard)
                return await validate(request)
            raw = await _admitted_body(app_state(request), request, guard)
            value = _parsed(request.scope, raw, needs_body=needs_body)
            return await validate(_ParsedRequest(request, raw, value))

        return handle


BodyT = TypeVar("BodyT", bound=BaseModel)


class ShortWay(Generic[BodyT]):
    """A guarded endpoint with a body, called without FastAPI between: what that adds to a request's first token is as much as all
    that we do with it. The same guard, parser, model and endpoint, in the same order; FastAPI documents the route.
    """

    def __init__(
        self,
        body: type[BodyT],
        endpoint: Callable[[BodyT, Principal, EdgeServices], Awaitable[Response]],
        faults: Callable[[ValidationError, JsonValue], Sequence[FieldFault]],
    ) -> None:
        """``faults`` says what is wrong with a body."""
        self._body = body
        self._faults = faults
        self._endpoint = endpoint
        self._guard = _guard_of(endpoint)

    async def answer(self, state: AppState, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises what becomes a refusal: ``InvalidRequest`` where FastAPI has ``RequestValidationError``."""
        raw = await _admitted_body(state, Request(scope, receive), self._guard)
        value = _parsed(scope, raw, needs_body=True)
        try:
            body = self._body.model_validate(value)
        except ValidationError as error:
            raise InvalidRequest(self._faults(error, value)) from error
        response = await self._endpoint(body, _principal(scope), state.services)
        await response(scope, receive, send)


def faults_of(found: Sequence[tuple[Sequence[str | int], str]]) -> tuple[FieldFault, ...]:
    """The first of pydantic's findings, places and reasons, in our words: ``("body", "params", "stop", 0)`` becomes ``params.stop.0``."""
    return tuple(FieldFault(_path_of(place), _sentence(reason)) for place, reason in found[:_MAX_FAULTS])


def _path_of(location: Sequence[str | int]) -> str:
    inside = location[1:] or location
    return ".".join(str(part)[:_MAX_PATH_PART] for part in inside)


def _sentence(reason: str) -> str:
    return reason if reason.endswith(".") else f"{reason}."


def _dependencies(dependant: Dependant) -> Iterator[object]:
    for dependency in dependant.dependencies:
        yield dependency.call
        yield from _dependencies(dependency)


async def _admit(state: AppState, scope: Scope, guard: Guard) -> None:
    if guard.public or (guard.open_on_loopback and state.services.loopback):
        return
    principal = await state.authenticator.authenticate(scope["method"], scope["headers"], takes_form=guard.takes_form)
    if guard.permission is not None and guard.permission not in principal.scopes:
        raise Forbidden(f"This needs the scope {guard.permission.value}.")
    Exchange.of(scope).principal = principal


async def _admitted_body(state: AppState, request: Request, guard: Guard) -> bytes:
    """The body of a request that may be made; one that came slowly may be so still when it is whole."""
    await _admit(state, request.scope, guard)
    began = state.services.clock.monotonic()
    raw = await request.body()
    if state.services.clock.monotonic() - began > JOIN_SECONDS:
        await _admit(state, request.scope, guard)
    return raw


def _parsed(scope: Scope, raw: bytes, *, needs_body: bool) -> JsonValue:
    if not raw and not needs_body:
        return None
    if not is_json(header(scope["headers"], b"content-type")):
        raise MediaType
    if not raw:
        raise BadJson("The body is empty.")
    value = Exchange.of(scope).body = parse_json(raw)
    return value


def _principal(scope: Scope) -> Principal:
    principal = Exchange.of(scope).principal
    if principal is None:
        raise Unauthenticated
    return principal


async def _caller(request: Request) -> Principal:
    return _principal(request.scope)


async def _owner(request: Request) -> Owner:
    principal = _principal(request.scope)
    return Owner(principal.tenant_id, principal.user_id)


async def _services(request: Request) -> EdgeServices:
    return app_state(request).services


async def _checked_query(request: Request) -> None:
    for name, value in request.query_params.multi_items():
        check_text(name)
        check_text(value)


Caller = Annotated[Principal, Depends(_caller)]
OwnerOf = Annotated[Owner, Depends(_owner)]
Services = Annotated[EdgeServices, Depends(_services)]
CheckedQuery = Depends(_checked_query)
