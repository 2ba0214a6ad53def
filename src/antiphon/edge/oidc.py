"""Signing in at an identity provider: OpenID Connect's code flow with PKCE (RFC 7636), state and nonce.

Between leaving and coming back the server keeps nothing: one random secret lies in a cookie, and state, nonce and verifier are made from
it, each for one provider only. Only a configured provider is asked, over connections of bounded time and size, without redirects.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import quote, urlsplit

import aiohttp

from antiphon.core.clock import Clock
from antiphon.edge.id_token import Claims, Expected, KeyUnknown, TokenRefused, claims_of, read_id_token
from antiphon.edge.sign_in_pace import Allowance, SignInPace

_ASK_SECONDS = 10.0
_MOST_BYTES = 256 * 1024
_MOST_AT_ONCE = 16
_METADATA_SECONDS = 3600.0
_KEYS_ANEW_SECONDS = 60.0
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

Json = Mapping[str, object]


class ProviderFailed(Exception):
    """The provider could not be asked, or what it said is not believed. The text is for the log."""


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """One provider. People it knows whose verified address is in one of ``domains`` (``*``: everybody) become members of ``tenant``."""

    name: str
    label: str
    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    domains: tuple[str, ...]
    tenant: str
    plan: str

    def admits(self, claims: Claims) -> bool:
        """Whether somebody who is new here may come in."""
        return "*" in self.domains or (bool(claims.email) and claims.email.rpartition("@")[2].casefold() in self.domains)


@dataclass(frozen=True, slots=True)
class Flow:
    """What one browser carries to one provider and back, all of it made from the cookie's secret."""

    state: str
    nonce: str
    verifier: str

    @staticmethod
    def of(secret: str, provider: str) -> Flow:
        return Flow(*(_derived(secret, f"{provider} {use}") for use in ("state", "nonce", "verifier")))

    def is_state(self, state: str) -> bool:
        return hmac.compare_digest(state.encode(), self.state.encode())


@dataclass(slots=True)
class _Metadata:
    authorization_endpoint: str
    token_endpoint: str
    userinfo_endpoint: str
    jwks_uri: str
    secret_in_body: bool
    until: float
    keys: Json = field(default_factory=dict[str, object])
    keys_at: float = float("-inf")


class OidcProvider:
    """One provider, asked over HTTP. What it says of itself is remembered for an hour, its keys until a token names another."""

    def __init__(self, settings: ProviderSettings, clock: Clock) -> None:
        self.settings = settings
        self._clock = clock
        self._known: _Metadata | None = None
        self._places = asyncio.Semaphore(_MOST_AT_ONCE)

    async def authorization_url(self, flow: Flow, redirect_uri: str) -> str:
        """Where to send the browser. Raises ``ProviderFailed``."""
        from authlib.oauth2.rfc6749.parameters import prepare_grant_uri  # pyright: ignore[reportUnknownVariableType]
        from authlib.oauth2.rfc7636 import create_s256_code_challenge  # pyright: ignore[reportUnknownVariableType]

        async with self._session() as session:
            metadata = await self._metadata(session)
        challenge = cast("str", create_s256_code_challenge(flow.verifier))
        return cast(
            "str",
            prepare_grant_uri(
                metadata.authorization_endpoint,
                self.settings.client_id,
                "code",
                redirect_uri=redirect_uri,
                scope="openid profile email",
                state=flow.state,
                nonce=flow.nonce,
                code_challenge=challenge,
                code_challenge_method="S256",
            ),
        )

    async def claims(self, code: str, flow: Flow, redirect_uri: str) -> Claims:
        """Who came back with ``code``. Raises ``ProviderFailed``."""
        async with self._places, self._session() as session:
            metadata = await self._metadata(session)
            told = await self._exchange(session, metadata, code, flow, redirect_uri)
            claims = await self._believed(session, metadata, told.get("id_token"), flow)
            if claims.email or "*" in self.settings.domains or not metadata.userinfo_endpoint:
                return claims
            return await self._with_address(session, metadata, claims, told.get("access_token"))

    async def _exchange(self, session: aiohttp.ClientSession, metadata: _Metadata, code: str, flow: Flow, redirect_uri: str) -> Json:
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri, "code_verifier": flow.verifier}
        own = self.settings
        headers = {"Accept": "application/json"}
        if metadata.secret_in_body:
            form |= {"client_id": own.client_id, "client_secret": own.client_secret}
        else:
            # RFC 6749, 2.3.1: both are form-encoded before they are put into the header.
            headers["Authorization"] = aiohttp.encode_basic_auth(quote(own.client_id, safe=""), quote(own.client_secret, safe=""))
        return await self._json(session.post(metadata.token_endpoint, data=form, headers=headers, allow_redirects=False))

    async def _believed(self, session: aiohttp.ClientSession, metadata: _Metadata, token: object, flow: Flow) -> Claims:
        if not isinstance(token, str):
            raise ProviderFailed("no id_token came")
        expected = Expected(self.settings.issuer, self.settings.client_id, flow.nonce)
        for last in (False, True):
            await self._read_keys(session, metadata, anew=last)
            try:
                return read_id_token(token, metadata.keys, expected, now=self._clock.now())
            except KeyUnknown as refusal:
                if last or self._clock.monotonic() - metadata.keys_at < _KEYS_ANEW_SECONDS:
                    raise ProviderFailed(f"the id_token is refused: {refusal}") from refusal
            except TokenRefused as refusal:
                raise ProviderFailed(f"the id_token is refused: {refusal}") from refusal
        raise AssertionError

    async def _with_address(self, session: aiohttp.ClientSession, metadata: _Metadata, claims: Claims, token: object) -> Claims:
        """Some providers keep the address out of the token; the answer must be about the same subject (Core 5.3.2)."""
        headers = {"Authorization": f"Bearer {token}"} if isinstance(token, str) else {}
        said = await self._json(session.get(metadata.userinfo_endpoint, headers=headers, allow_redirects=False))
        try:
            told = claims_of(said)
        except TokenRefused as refusal:
            raise ProviderFailed(f"the userinfo is refused: {refusal}") from refusal
        if told.subject != claims.subject:
            raise ProviderFailed("the userinfo is about somebody else")
        return Claims(claims.subject, claims.name or told.name, told.email)

    async def _read_keys(self, session: aiohttp.ClientSession, metadata: _Metadata, *, anew: bool) -> None:
        if metadata.keys and not anew:
            return
        metadata.keys = await self._json(session.get(metadata.jwks_uri, allow_redirects=False))
        metadata.keys_at = self._clock.monotonic()

    async def _metadata(self, session: aiohttp.ClientSession) -> _Metadata:
        now = self._clock.monotonic()
        if self._known is None or self._known.until < now:
            issuer = self.settings.issuer
            url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
            said = await self._json(session.get(url, allow_redirects=False))
            if said.get("issuer") != issuer:
                raise ProviderFailed(f"{url} speaks for another issuer")
            methods = said.get("token_endpoint_auth_methods_supported")
            methods = cast("list[object]", methods) if isinstance(methods, list) else ["client_secret_basic"]
            userinfo = said.get("userinfo_endpoint")
            self._known = _Metadata(
                self._endpoint(said, "authorization_endpoint"),
                self._endpoint(said, "token_endpoint"),
                "" if userinfo is None else self._endpoint(said, "userinfo_endpoint"),
                self._endpoint(said, "jwks_uri"),
                secret_in_body="client_secret_basic" not in methods,
                until=now + _METADATA_SECONDS,
            )
        return self._known

    def _endpoint(self, said: Json, name: str) -> str:
        url = said.get(name)
        if not isinstance(url, str) or not is_provider_url(url):
            raise ProviderFailed(f"its {name} is no https:// address")
        return url

    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ASK_SECONDS), trust_env=True, max_line_size=16_384)

    async def _json(self, asking: aiohttp.client._RequestContextManager) -> Json:  # pyright: ignore[reportPrivateUsage]
        try:
            async with asking as answer:
                content = await answer.content.read(_MOST_BYTES + 1)
                while len(content) <= _MOST_BYTES and not answer.content.at_eof():
                    content += await answer.content.read(_MOST_BYTES + 1 - len(content))
                if answer.status != 200 or len(content) > _MOST_BYTES:
                    raise ProviderFailed(f"{answer.url.origin()} answered {answer.status} with {len(content)} bytes")
                value: object = json.loads(content)
        except (aiohttp.ClientError, TimeoutError, ValueError, RecursionError) as failure:
            raise ProviderFailed(f"{self.settings.issuer}: {failure or type(failure).__name__}") from failure
        if not isinstance(value, dict):
            raise ProviderFailed("it answered with something else than an object")
        return cast("dict[str, object]", value)


class OidcProviders:
    """The configured providers, by name, and how fast people may come back from them."""

    def __init__(self, settings: Sequence[ProviderSettings] = (), clock: Clock | None = None) -> None:
        assert clock is not None or not settings
        self.pace = SignInPace(name=Allowance(1000, 0.1))
        self._providers = {one.name: OidcProvider(one, cast("Clock", clock)) for one in settings}

    def get(self, name: str) -> OidcProvider | None:
        return self._providers.get(name)

    @property
    def all(self) -> tuple[OidcProvider, ...]:
        return tuple(self._providers.values())


def is_provider_url(url: str) -> bool:
    """Whether secrets may be sent to ``url``: https, or http within this machine; no user, no fragment."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    safe = parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)
    return safe and bool(host) and "@" not in parts.netloc and not parts.fragment and "\\" not in url


def _derived(secret: str, use: str) -> str:
    """43 URL-safe characters: a PKCE verifier's least length."""
    return urlsafe_b64encode(hmac.digest(secret.encode(), use.encode(), hashlib.sha256)).rstrip(b"=").decode()
