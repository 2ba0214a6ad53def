"""A small OpenID provider of our own: discovery, keys, authorization, token and userinfo, over HTTP.

It holds its clients to the protocol (redirect address, PKCE, client's secret, a code for one use) and signs with real keys. ``say`` is what
a token says and ``forge`` replaces the whole token, for providers that err or lie.
"""

from __future__ import annotations

import hashlib
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import unquote, urlencode

from aiohttp import web
from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "antiphon", "s3cret:with/odd chars"
Claims = dict[str, object]


@dataclass
class Provider:
    """One issuer. ``person`` is who signs in there next."""

    person: Claims = field(default_factory=lambda: {"sub": "42", "name": "Ada", "email": "ada@example.com", "email_verified": True})
    say: Callable[[Claims], Claims] = lambda claims: claims
    forge: Callable[[Claims, RSAKey], str] | None = None
    userinfo: Claims | None = None
    in_body: bool = False
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "one"}))
    issuer: str = ""
    asked: list[str] = field(default_factory=list)
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)
    _runner: web.AppRunner | None = None

    async def open(self) -> None:
        app = web.Application(middlewares=[self._note])
        app.router.add_get("/.well-known/openid-configuration", self._discovery)
        app.router.add_get("/keys", self._keys)
        app.router.add_get("/authorize", self._authorize)
        app.router.add_post("/token", self._token)
        app.router.add_get("/userinfo", self._userinfo)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.issuer = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def close(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    @web.middleware
    async def _note(self, request: web.Request, handler: Callable[..., object]) -> object:
        self.asked.append(request.path)
        return await handler(request)

    async def _discovery(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "userinfo_endpoint": f"{self.issuer}/userinfo",
                "jwks_uri": f"{self.issuer}/keys",
                "token_endpoint_auth_methods_supported": ["client_secret_post"] if self.in_body else ["client_secret_basic"],
            }
        )

    async def _keys(self, request: web.Request) -> web.Response:
        return web.json_response({"keys": [self.key.as_dict(private=False, use="sig")]})

    async def _authorize(self, request: web.Request) -> web.Response:
        """Everybody agrees at once."""
        asked = request.query
        assert (asked["client_id"], asked["response_type"], asked["code_challenge_method"]) == (CLIENT, "code", "S256")
        assert "openid" in asked["scope"].split()
        code = f"code-{len(self.asked)}"
        self._codes[code] = dict(asked)
        raise web.HTTPFound(f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state'], 'iss': self.issuer})}")

    async def _token(self, request: web.Request) -> web.Response:
        form = await request.post()
        if self._client(request, dict(form)) != (CLIENT, SECRET):
            return web.json_response({"error": "invalid_client"}, status=401)
        asked = self._codes.pop(str(form["code"]), None)
        verifier = urlsafe_b64encode(hashlib.sha256(str(form["code_verifier"]).encode()).digest()).rstrip(b"=").decode()
        if asked is None or asked["redirect_uri"] != form["redirect_uri"] or asked["code_challenge"] != verifier:
            return web.json_response({"error": "invalid_grant"}, status=400)
        now = int(time.time())
        claims = self.say({"iss": self.issuer, "aud": CLIENT, "exp": now + 300, "iat": now, "nonce": asked["nonce"], **self.person})
        token = self.signed(claims) if self.forge is None else self.forge(claims, self.key)
        return web.json_response({"access_token": "access", "token_type": "Bearer", "id_token": token})

    async def _userinfo(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer access"
        return web.json_response(self.person if self.userinfo is None else self.userinfo)

    def signed(self, claims: Claims, **header: object) -> str:
        return jwt.encode({"alg": "RS256", "kid": "one", **header}, claims, self.key)

    def _client(self, request: web.Request, form: dict[str, object]) -> tuple[str, str]:
        if self.in_body:
            return str(form.get("client_id")), str(form.get("client_secret"))
        name, _, secret = b64decode(request.headers.get("Authorization", "Basic ").removeprefix("Basic ")).decode().partition(":")
        return unquote(name), unquote(secret)
