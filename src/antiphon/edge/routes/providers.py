"""Signing in at an identity provider and coming back. Whoever is known there by (issuer, subject) is known here by it alone."""

from __future__ import annotations

import html
from typing import Annotated

import structlog
from fastapi import APIRouter, Path, Query, Request
from pydantic.dataclasses import dataclass
from starlette.responses import HTMLResponse, RedirectResponse, Response

from antiphon.core.errors import Conflict, NotFound
from antiphon.core.ids import IdKind, UserId
from antiphon.core.tenancy import Identity, User, UserRole
from antiphon.edge.access import PUBLIC, GuardedRoute, Responses, Services, app_state, guarded
from antiphon.edge.api_document import refuses
from antiphon.edge.auth import SESSION_LIFETIME, header, new_token
from antiphon.edge.id_token import Claims
from antiphon.edge.oidc import Flow, OidcProvider, ProviderFailed, ProviderSettings
from antiphon.edge.routes.session import address_of, agent_of
from antiphon.edge.services import EdgeServices
from antiphon.edge.sign_in_pace import TryLater
from antiphon.stores.accounts.base import Session

router = APIRouter(prefix="/v1/session/providers", tags=["session"], route_class=GuardedRoute)

_FLOW_SECONDS = 600
_MOST_CODE = 4096
_NAMES_TRIED = 20
_AWAY: Responses = {
    303: {"description": "To the provider, or to the client, signed in."},
    401: {"description": "Not signed in; a page says so.", "content": {"text/html": {}}},
    403: {"description": "Not admitted; a page says so.", "content": {"text/html": {}}},
    429: {"description": "Too many tries; a page says so.", "content": {"text/html": {}}},
    502: {"description": "The provider does not answer as it should; a page says so.", "content": {"text/html": {}}},
    **refuses(404),
}

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class ProviderAnswer:
    name: str
    label: str


@dataclass(frozen=True)
class ProvidersAnswer:
    data: list[ProviderAnswer]


ProviderPath = Annotated[str, Path(max_length=64)]
Told = Annotated[str, Query(max_length=_MOST_CODE)]


@router.get("")
@guarded(PUBLIC)
async def list_providers(services: Services) -> ProvidersAnswer:
    """Where people may sign in."""
    return ProvidersAnswer([ProviderAnswer(one.settings.name, one.settings.label) for one in services.oidc.all])


@router.get("/{provider}", response_model=None, responses=_AWAY, status_code=303)
@guarded(PUBLIC)
async def leave_for_provider(provider: ProviderPath, request: Request, services: Services) -> Response:
    """Send the browser to the provider; what it needs to come back lies in its own cookie."""
    chosen = _provider(services, provider)
    secret = services.ids.secret(32)
    try:
        url = await chosen.authorization_url(Flow.of(secret, provider), _redirect_uri(services, request, provider))
    except ProviderFailed as failure:
        return _failed(chosen, failure)
    response = RedirectResponse(url, 303)
    response.raw_headers.append((b"set-cookie", _cookie(request, secret, _FLOW_SECONDS)))
    return response


@router.get("/{provider}/callback", response_model=None, responses=_AWAY, status_code=303)
@guarded(PUBLIC)
async def come_back(provider: ProviderPath, request: Request, services: Services, code: Told = "", state: Told = "") -> Response:
    """Take what the provider gave the browser, and start a session."""
    chosen = _provider(services, provider)
    flow = Flow.of(_flow_secret(request), provider)
    if not code or not flow.is_state(state):
        return _page(401, chosen, "This sign-in was not begun in this browser, was broken off, or has expired.")
    await services.passwords.gate.check_open()
    pace = services.oidc.pace.ask(provider, address_of(request), now=services.clock.monotonic())
    if isinstance(pace, TryLater):
        return _page(429, chosen, "Too many tries to sign in. Wait a minute.")
    try:
        claims = await chosen.claims(code, flow, _redirect_uri(services, request, provider))
    except ProviderFailed as failure:
        return _failed(chosen, failure)
    user = await _user_of(services, chosen.settings, claims)
    if user is None or user.disabled:
        _log.warning("not_admitted", provider=provider, known=user is not None)
        return _page(403, chosen, "You are known there, but not admitted here. Ask whoever runs this server.")
    return await _signed_in(services, request, user)


async def _user_of(services: EdgeServices, provider: ProviderSettings, claims: Claims) -> User | None:
    """Whose identity it is; somebody new, where they are admitted."""
    identity = Identity(provider.issuer, claims.subject)
    known = await services.accounts.user_of_identity(identity)
    if known is not None or not provider.admits(claims):
        return known
    tenant = next((one for one in await services.accounts.tenants() if one.name == provider.tenant), None)
    if tenant is None:
        _log.error("no_such_tenant", provider=provider.name, tenant=provider.tenant)
        return None
    name = claims.name or claims.email or claims.subject
    for number in range(1, _NAMES_TRIED + 1):
        called = name if number == 1 else f"{name} ({number})"
        new_id = UserId(services.ids.new(IdKind.USER))
        user = User(new_id, tenant.id, called, UserRole.MEMBER, provider.plan, disabled=False, created_at=services.clock.now())
        try:
            await services.accounts.create_user_of_identity(user, identity)
        except Conflict:  # the name is taken, or the same person came twice at once
            known = await services.accounts.user_of_identity(identity)
            if known is not None:
                return known
        else:
            return user
    return None


async def _signed_in(services: EdgeServices, request: Request, user: User) -> Response:
    token, session_sha256 = new_token(services.ids)
    now = services.clock.now()
    await services.accounts.open_session(Session(session_sha256, user.id, now, now + SESSION_LIFETIME, agent_of(request)))
    response = RedirectResponse("/", 303)
    response.raw_headers.append((b"set-cookie", app_state(request).authenticator.cookie.set(token)))
    response.raw_headers.append((b"set-cookie", _cookie(request, "", 0)))
    return response


def _provider(services: EdgeServices, name: str) -> OidcProvider:
    chosen = services.oidc.get(name)
    if chosen is None:
        raise NotFound
    return chosen


def _redirect_uri(services: EdgeServices, request: Request, provider: str) -> str:
    base = services.public_url or str(request.base_url).rstrip("/")
    return f"{base}/v1/session/providers/{provider}/callback"


def _cookie_name(request: Request) -> str:
    return "__Host-antiphon_flow" if app_state(request).authenticator.cookie.secure else "antiphon_flow"


def _cookie(request: Request, secret: str, seconds: int) -> bytes:
    secure = "; Secure" if app_state(request).authenticator.cookie.secure else ""
    return f"{_cookie_name(request)}={secret}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}".encode("ascii")


def _flow_secret(request: Request) -> str:
    """The secret that ``leave_for_provider`` left in this browser; one that nobody knows where there is none."""
    for pair in (header(request.headers.raw, b"cookie") or "").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == _cookie_name(request) and value:
            return value
    return app_state(request).services.ids.secret(32)


def _failed(provider: OidcProvider, failure: ProviderFailed) -> Response:
    _log.warning("provider_failed", provider=provider.settings.name, reason=str(failure))
    return _page(502, provider, "It did not answer as it should; what happened is in this server's log.")


def _page(status: int, provider: OidcProvider, reason: str) -> Response:
    label = html.escape(provider.settings.label)
    return HTMLResponse(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Not signed in</title></head><body><main><h1>Not signed in with {label}</h1><p>{html.escape(reason)}</p>"
        '<p><a href="/">Back to the sign-in page</a></p></main></body></html>',
        status,
    )
