"""Who is calling: API keys, sign-in links, session cookies; one authenticator for all of them.

Secrets carry at least 256 bits of randomness, so a plain SHA-256 of them is kept (OWASP ASVS 5.0, 6.5.2).
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from urllib.parse import urlsplit

from antiphon.core.clock import Clock
from antiphon.core.errors import Forbidden, MediaType, Unauthenticated
from antiphon.core.ids import IdKind, IdSource, KeyId
from antiphon.core.tenancy import ApiKey, Principal, Scope, User, UserRole
from antiphon.stores.accounts.base import Accounts

SESSION_LIFETIME = timedelta(days=30)

CACHE_SECONDS = 3.0
_CACHE_ENTRIES = 4096
_SESSIONS_TRIED = 8
_KEY = re.compile(r"ak_([0-9a-f]{32})[A-Za-z0-9_-]{40,64}([0-9a-f]{8})\Z", re.ASCII)
_TOKEN = re.compile(r"[A-Za-z0-9_-]{40,64}\Z", re.ASCII)
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

Headers = Iterable[tuple[bytes, bytes]]


def new_api_key(ids: IdSource) -> tuple[KeyId, str, bytes, str]:
    """A fresh key: its id, the text to show once, the hash to keep, the last four characters to recognise it by.

    The text is ``ak_`` + the id's UUID in hex + random characters + CRC-32 of all that, so a mistyped key costs no look-up.
    """
    key_id = KeyId(ids.new(IdKind.KEY))
    body = f"ak_{key_id.removeprefix('key_').replace('-', '')}{ids.secret(32)}"
    text = body + _checksum(body)
    return key_id, text, _sha256(text), text[-4:]


def parse_api_key(text: str) -> tuple[KeyId, bytes] | None:
    """The id and hash of a key of ours, ``None`` for text of any other form."""
    found = _KEY.match(text)
    if found is None or _checksum(text[:-8]) != found[2]:
        return None
    digits = found[1]
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return KeyId(f"key_{'-'.join(parts)}"), _sha256(text)


def new_token(ids: IdSource) -> tuple[str, bytes]:
    """A fresh secret for a link or a session: the text for its holder and the hash to keep."""
    text = ids.secret(32)
    return text, _sha256(text)


def token_sha256(text: str) -> bytes | None:
    """The hash of a link's or session's token, ``None`` for text of any other form."""
    return _sha256(text) if _TOKEN.match(text) else None


def scopes_of_role(role: UserRole) -> frozenset[Scope]:
    """What a signed-in person of ``role`` may do; a key never may do more."""
    if role is UserRole.MEMBER:
        return frozenset({Scope.CHAT, Scope.USAGE})
    return frozenset(Scope)


@dataclass(frozen=True, slots=True)
class CookiePolicy:
    """How the session cookie looks: plain on http loopback, bound to the host behind https."""

    secure: bool

    @property
    def name(self) -> str:
        return "__Host-antiphon_session" if self.secure else "antiphon_session"

    def set(self, token: str) -> bytes:
        """A ``Set-Cookie`` value that starts a session."""
        return self._header(token, int(SESSION_LIFETIME.total_seconds()))

    def clear(self) -> bytes:
        """A ``Set-Cookie`` value that ends it in the browser."""
        return self._header("", 0)

    def read(self, headers: Headers) -> tuple[str, ...]:
        """What may be session tokens among the request's cookies, the first few of that name.

        There may be more than one: cookies know no ports, so another server of this machine may have set its own.
        """
        pairs = [pair for name, value in headers if name == b"cookie" for pair in value.decode("latin-1").split(";")]
        named = [token for key, _, token in (pair.strip().partition("=") for pair in pairs) if key == self.name]
        return tuple(dict.fromkeys(named))[:_SESSIONS_TRIED]

    def digests(self, headers: Headers) -> tuple[bytes, ...]:
        """The hashes of those that have a token's form."""
        found = (token_sha256(token) for token in self.read(headers))
        return tuple(digest for digest in found if digest is not None)

    def _header(self, token: str, max_age: int) -> bytes:
        secure = "; Secure" if self.secure else ""
        return f"{self.name}={token}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Lax{secure}".encode("ascii")


@dataclass(frozen=True, slots=True)
class _Cached:
    principal: Principal
    until: float


class Authenticator:
    """Turns a request's credentials into a ``Principal``. A revoked or disabled one stops working within 3 s."""

    def __init__(self, accounts: Accounts, clock: Clock, *, public_url: str) -> None:
        self._accounts = accounts
        self._clock = clock
        self._public_host = urlsplit(public_url).netloc
        self.cookie = CookiePolicy(secure=public_url.startswith("https://"))
        self._cache: dict[bytes, _Cached] = {}

    async def authenticate_anew(self, headers: Headers) -> Principal:
        """As ``authenticate`` for a read, but by what the store holds now. Raises ``Unauthenticated``."""
        authorization = header(headers, b"authorization")
        parsed = None if authorization is None else _parsed_bearer(authorization)
        for digest in self.cookie.digests(headers) if authorization is None else () if parsed is None else (parsed[1],):
            self._cache.pop(digest, None)
        return await self.authenticate("GET", headers)

    async def authenticate(self, method: str, headers: Headers, *, takes_form: bool = False) -> Principal:
        """Raises ``Unauthenticated``; ``MediaType`` or ``Forbidden`` for a cookie's write that another site may have caused.

        An ``Authorization`` header alone decides where there is one; a wrong one never falls back to the cookie.
        """
        authorization = header(headers, b"authorization")
        if authorization is not None:
            return await self._by_key(authorization)
        principal = await self._by_sessions(self.cookie.digests(headers))
        if method not in _SAFE_METHODS:
            self.check_same_site(method, headers, takes_form=takes_form)
        return principal

    def check_same_site(self, method: str, headers: Headers, *, takes_form: bool = False) -> None:
        """Refuse what a form or script of another site could send with our cookie.

        Neither a JSON content type nor DELETE can be sent cross-site without a preflight, which we never grant; browsers also
        say where a request comes from, and then it must be here. A form, which any site could send, must say that it does.
        """
        if method != "DELETE" and not takes_form and not is_json(header(headers, b"content-type")):
            raise MediaType
        site = header(headers, b"sec-fetch-site")
        if site is not None and site not in {"same-origin", "none"}:
            raise Forbidden("This request came from another site.")
        origin = header(headers, b"origin")
        if origin is not None and _host_of(origin) not in self._own_hosts(headers):
            raise Forbidden("This request came from another site.")
        if takes_form and origin is None and site != "same-origin":
            raise Forbidden("This request does not say which site it came from.")

    def forget(self) -> None:
        """Drop what is cached, after a key or session was ended here."""
        self._cache.clear()

    def _own_hosts(self, headers: Headers) -> frozenset[str]:
        return frozenset(host for host in (self._public_host, header(headers, b"host")) if host)

    async def _by_key(self, authorization: str) -> Principal:
        parsed = _parsed_bearer(authorization)
        if parsed is None:
            raise Unauthenticated
        key_id, digest = parsed
        cached = self._cached(digest)
        if cached is not None:
            return cached
        owner = await self._accounts.key(digest)
        if owner is None or owner.key.id != key_id:
            raise Unauthenticated
        scopes = owner.key.scopes & scopes_of_role(owner.user.role)
        return self._remember(digest, _principal(owner.user, scopes, owner.key))

    async def _by_sessions(self, digests: Sequence[bytes]) -> Principal:
        """Of the first session that is one."""
        cached = next((found for digest in digests if (found := self._cached(digest)) is not None), None)
        if cached is not None:
            return cached
        for digest in digests:
            owner = await self._accounts.session(digest, now=self._clock.now())
            if owner is not None:
                return self._remember(digest, _principal(owner.user, scopes_of_role(owner.user.role), None))
        raise Unauthenticated

    def _cached(self, digest: bytes) -> Principal | None:
        found = self._cache.get(digest)
        return found.principal if found is not None and self._clock.monotonic() < found.until else None

    def _remember(self, digest: bytes, principal: Principal) -> Principal:
        self._cache.pop(digest, None)
        while len(self._cache) >= _CACHE_ENTRIES:
            del self._cache[next(iter(self._cache))]
        self._cache[digest] = _Cached(principal, self._clock.monotonic() + CACHE_SECONDS)
        return principal


def _parsed_bearer(authorization: str) -> tuple[KeyId, bytes] | None:
    scheme, _, text = authorization.partition(" ")
    return parse_api_key(text.strip()) if scheme.lower() == "bearer" else None


def header(headers: Headers, name: bytes) -> str | None:
    """The first header of that lower-case ``name``."""
    for key, value in headers:
        if key == name:
            return value.decode("latin-1")
    return None


def check_encoding(headers: Headers) -> None:
    """Raises ``MediaType`` for a body that is packed: nothing is unpacked here, so nothing can burst."""
    if (header(headers, b"content-encoding") or "identity").strip().lower() != "identity":
        raise MediaType("Send the body as it is, without Content-Encoding.")


def is_json(content_type: str | None) -> bool:
    """Whether a ``Content-Type`` is exactly JSON, whatever its parameters."""
    return content_type is not None and content_type.partition(";")[0].strip().lower() == "application/json"


def _host_of(origin: str) -> str:
    """Host and port of an ``Origin``; empty for ``null`` and for what is none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _principal(user: User, scopes: frozenset[Scope], key: ApiKey | None) -> Principal:
    principal = Principal(tenant_id=user.tenant_id, user_id=user.id, name=user.name, role=user.role, plan=user.plan, scopes=scopes)
    return principal if key is None else replace(principal, key_id=key.id, band=key.band)


def _sha256(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8")).digest()


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode('ascii')):08x}"
