"""Signing in, by link or by password, and signing out."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from antiphon.core.errors import FieldFault, InvalidRequest, NotFound, Unauthenticated
from antiphon.edge.access import PUBLIC, GuardedRoute, Services, app_state, guarded
from antiphon.edge.api_document import refuses
from antiphon.edge.auth import SESSION_LIFETIME, header, new_token, token_sha256
from antiphon.edge.schemas import SignIn
from antiphon.edge.services import EdgeServices
from antiphon.stores.accounts.base import Session

router = APIRouter(prefix="/v1/session", tags=["session"], route_class=GuardedRoute)

_UNUSABLE = "This sign-in link was used before, has expired, or was never made."
_NO_MATCH = "This name and password do not match."
_MAX_AGENT = 200


@router.post("", status_code=204, responses=refuses(401, 429))
@guarded(PUBLIC)
async def sign_in(body: SignIn, request: Request, services: Services) -> Response:
    """Start a session with a sign-in link, which is burnt, or with a name and its password.

    The same site rules hold as for any write: nobody signs you in from elsewhere.
    """
    authenticator = app_state(request).authenticator
    authenticator.check_same_site("POST", request.headers.raw)
    if body.token is not None:
        token = await _by_link(services, body.token, agent_of(request))
    elif body.name is not None and body.password is not None:
        token = await _by_password(services, body, request)
    else:
        raise InvalidRequest([FieldFault("token", "Send a token, or a name and a password.")])
    return with_cookie(authenticator.cookie.set(token))


@router.delete("", status_code=204)
@guarded(PUBLIC)
async def sign_out(request: Request, services: Services) -> Response:
    """End this browser's session; harmless without one."""
    state = app_state(request)
    digests = state.authenticator.cookie.digests(request.headers.raw)
    if digests:
        state.authenticator.check_same_site("DELETE", request.headers.raw)
        for digest in digests:
            await services.accounts.end_session(digest)
        state.forget_credentials()
    return with_cookie(state.authenticator.cookie.clear())


async def _by_link(services: EdgeServices, link: str, agent: str) -> str:
    link_sha256 = token_sha256(link)
    if link_sha256 is None:
        raise Unauthenticated(_UNUSABLE)
    await services.passwords.gate.check_open()
    token, session_sha256 = new_token(services.ids)
    now = services.clock.now()
    user = await services.accounts.redeem_link(link_sha256, session_sha256, now=now, expires_at=now + SESSION_LIFETIME, agent=agent)
    if user is None:
        raise Unauthenticated(_UNUSABLE)
    return token


async def _by_password(services: EdgeServices, body: SignIn, request: Request) -> str:
    assert body.name is not None
    assert body.password is not None
    user = await services.passwords.user_of(body.name, body.tenant, body.password, address=address_of(request))
    if user is None:
        raise Unauthenticated(_NO_MATCH)
    token, session_sha256 = new_token(services.ids)
    now = services.clock.now()
    try:
        await services.accounts.open_session(Session(session_sha256, user.id, now, now + SESSION_LIFETIME, agent_of(request)))
    except NotFound:
        raise Unauthenticated(_NO_MATCH) from None
    return token


def agent_of(request: Request) -> str:
    """What the browser says of itself, in plain characters, for the list of sessions."""
    told = header(request.headers.raw, b"user-agent") or ""
    return "".join(letter for letter in told if letter.isascii() and letter.isprintable())[:_MAX_AGENT]


def address_of(request: Request) -> str:
    """Where the connection comes from."""
    return "" if request.client is None else request.client.host


def with_cookie(value: bytes) -> Response:
    response = Response(status_code=204)
    response.raw_headers.append((b"set-cookie", value))
    return response
