"""Signing in by link and signing out."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from antiphon.core.errors import FieldFault, InvalidRequest, Unauthenticated
from antiphon.edge.access import PUBLIC, GuardedRoute, Services, app_state, guarded
from antiphon.edge.auth import SESSION_LIFETIME, new_token, token_sha256
from antiphon.edge.schemas import SignIn

router = APIRouter(prefix="/v1/session", tags=["session"], route_class=GuardedRoute)


@router.post("", status_code=204)
@guarded(PUBLIC)
async def sign_in(body: SignIn, request: Request, services: Services) -> Response:
    """Burn a sign-in link and start a session. The same site rules hold as for any write: nobody signs you in from elsewhere."""
    authenticator = app_state(request).authenticator
    authenticator.check_same_site("POST", request.headers.raw)
    if body.token is None:
        if body.name is None or body.password is None:
            raise InvalidRequest([FieldFault("token", "Send a token, or a name and a password.")])
        raise Unauthenticated("There is no sign-in by password on this server yet; use a sign-in link.")
    link_sha256 = token_sha256(body.token)
    if link_sha256 is None:
        raise Unauthenticated(_UNUSABLE)
    token, session_sha256 = new_token(services.ids)
    now = services.clock.now()
    user = await services.accounts.redeem_link(link_sha256, session_sha256, now=now, expires_at=now + SESSION_LIFETIME)
    if user is None:
        raise Unauthenticated(_UNUSABLE)
    return _with_cookie(authenticator.cookie.set(token))


@router.delete("", status_code=204)
@guarded(PUBLIC)
async def sign_out(request: Request, services: Services) -> Response:
    """End this browser's session; harmless without one."""
    authenticator = app_state(request).authenticator
    digests = authenticator.cookie.digests(request.headers.raw)
    if digests:
        authenticator.check_same_site("DELETE", request.headers.raw)
        for digest in digests:
            await services.accounts.end_session(digest)
        authenticator.forget()
    return _with_cookie(authenticator.cookie.clear())


_UNUSABLE = "This sign-in link was used before, has expired, or was never made."


def _with_cookie(value: bytes) -> Response:
    response = Response(status_code=204)
    response.raw_headers.append((b"set-cookie", value))
    return response
