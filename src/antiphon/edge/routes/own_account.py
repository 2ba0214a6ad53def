"""The caller's password and sessions. In a browser's session only: a stolen key must not take the account."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, Request
from starlette.responses import Response

from antiphon.core.clock import rfc3339
from antiphon.core.errors import FieldFault, Forbidden, InvalidRequest, NotFound
from antiphon.core.tenancy import Principal, UserRole
from antiphon.edge.access import SIGNED_IN, Caller, GuardedRoute, Services, app_state, guarded
from antiphon.edge.api_document import refuses
from antiphon.edge.passwords import MIN_PASSWORD, check_new_password
from antiphon.edge.paths import SessionPath
from antiphon.edge.routes.session import address_of
from antiphon.edge.schemas import NewPassword
from antiphon.edge.services import EdgeServices
from antiphon.stores.accounts.base import Session
from antiphon.stores.conversations.base import Owner

router = APIRouter(prefix="/v1/me", tags=["account"], route_class=GuardedRoute)


@dataclass(frozen=True, slots=True)
class SessionAnswer:
    """``current``: the one that asks."""

    id: str
    agent: str
    created_at: str
    expires_at: str
    current: bool


@dataclass(frozen=True, slots=True)
class SessionsAnswer:
    data: list[SessionAnswer]


@dataclass(frozen=True, slots=True)
class PasswordAnswer:
    """``set``: there is one. ``asked``: the window asks for one after a sign-in link, since without it the caller could come back only
    by another link; ``skippable``: they could by a provider too. ``least_characters``: of a new one.
    """

    set: bool
    asked: bool
    skippable: bool
    least_characters: int


@router.get("/password")
@guarded(SIGNED_IN)
async def get_password(caller: Caller, services: Services) -> PasswordAnswer:
    """Whether the caller has a password, and whether they should be asked for one."""
    _check_browser(caller)
    is_set = await services.accounts.password(caller.user_id) is not None
    issuers = {provider.settings.issuer for provider in services.oidc.all}
    provided = bool(issuers) and any(identity.issuer in issuers for identity in await services.accounts.identities(caller.user_id))
    asked = not is_set and not _is_at_the_machine(services, caller)
    return PasswordAnswer(is_set, asked, provided, MIN_PASSWORD)


@router.put("/password", status_code=204, responses=refuses(429))
@guarded(SIGNED_IN)
async def put_password(body: NewPassword, caller: Caller, request: Request, services: Services) -> Response:
    """Set or change the caller's password. Every other session and every link of theirs ends."""
    _check_browser(caller)
    user = await services.accounts.user(caller.user_id)
    check_new_password(body.password, name=user.name)
    if await services.accounts.password(user.id) is not None:
        current = body.current_password or ""
        if not await services.passwords.matches(user, current, address=address_of(request)):
            raise InvalidRequest([FieldFault("current_password", "This is not the password.")])
    encoded = await services.passwords.encode(body.password)
    current_session = await _current(request, services, caller)
    await services.accounts.set_password(user.id, encoded, keep=None if current_session is None else current_session.token_sha256)
    await services.custody.record(Owner(user.tenant_id, user.id), "password.set", user.id, now=services.clock.now())
    app_state(request).forget_credentials()
    return Response(status_code=204)


@router.get("/sessions")
@guarded(SIGNED_IN)
async def list_sessions(caller: Caller, request: Request, services: Services) -> SessionsAnswer:
    """Where the caller is signed in, oldest first."""
    _check_browser(caller)
    digests = app_state(request).authenticator.cookie.digests(request.headers.raw)
    found = await services.accounts.sessions(caller.user_id, now=services.clock.now())
    return SessionsAnswer([_answer(session, current=session.token_sha256 in digests) for session in found])


@router.delete("/sessions/{session_id}", status_code=204)
@guarded(SIGNED_IN)
async def end_session(session_id: SessionPath, caller: Caller, request: Request, services: Services) -> Response:
    """End one of the caller's sessions, and its open streams."""
    _check_browser(caller)
    for session in await services.accounts.sessions(caller.user_id, now=services.clock.now()):
        if _id_of(session) == session_id:
            await services.accounts.end_session(session.token_sha256)
            app_state(request).forget_credentials()
            return Response(status_code=204)
    raise NotFound


async def _current(request: Request, services: Services, caller: Principal) -> Session | None:
    digests = app_state(request).authenticator.cookie.digests(request.headers.raw)
    found = await services.accounts.sessions(caller.user_id, now=services.clock.now())
    return next((session for session in found if session.token_sha256 in digests), None)


def _is_at_the_machine(services: EdgeServices, caller: Principal) -> bool:
    """An owner of a server that no other machine reaches: who can open it can run ``antiphon link`` too."""
    return services.loopback and not services.public_url and caller.role is UserRole.OWNER


def _check_browser(caller: Principal) -> None:
    if caller.key_id is not None:
        raise Forbidden("This is done in the browser, not with a key.")


def _id_of(session: Session) -> str:
    """Half of the token's hash: it names the session and opens nothing."""
    return f"ses_{session.token_sha256[:16].hex()}"


def _answer(session: Session, *, current: bool) -> SessionAnswer:
    return SessionAnswer(_id_of(session), session.agent, rfc3339(session.created_at), rfc3339(session.expires_at), current)
