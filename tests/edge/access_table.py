"""Who may call which route, written down by hand: the matrix holds the server's own document against it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Access(Enum):
    """The least that a caller needs."""

    PUBLIC = "nothing"
    SIGNED_IN = "any credential"
    BROWSER = "a session; no key"
    NO_LESSER_KEY = "a session, or a key with the scope admin"
    CHAT = "chat"
    USAGE = "usage"
    ADMIN = "admin"
    METRICS = "metrics"

    @property
    def scope(self) -> str | None:
        """The scope a key must hold."""
        return {"NO_LESSER_KEY": "admin"}.get(self.name, self.value if self.name in {"CHAT", "USAGE", "ADMIN", "METRICS"} else None)

    @property
    def roles(self) -> frozenset[str]:
        return frozenset({"admin", "owner"}) if self in {Access.ADMIN, Access.METRICS} else frozenset({"member", "admin", "owner"})


@dataclass(frozen=True, slots=True)
class Rule:
    """``body`` and ``query`` make the call valid; ``{name}`` in them stands for a thing of the caller, or of the victim.

    ``anonymous``: what a caller without credentials gets from a public route. ``upload``: the body is a file's form. ``ends``: the
    caller's account or session is gone afterwards. ``by_admins``: admins of the same tenant may do it to others.
    """

    access: Access
    body: dict[str, object] | None = None
    query: dict[str, str] = field(default_factory=dict[str, str])
    anonymous: int = 401
    upload: bool = False
    ends: bool = False
    by_admins: bool = False


_CHAT = Rule(Access.CHAT)
_SEND: dict[str, object] = {"content": "hello", "model": "quick", "params": {"max_tokens": 3}}
_SERVER: dict[str, object] = {"url": "https://site/v1", "key": "key-of-site"}
_COMPLETE: dict[str, object] = {"model": "quick", "max_tokens": 3, "messages": [{"role": "user", "content": "hello"}]}

RULES: dict[str, Rule] = {
    "POST /v1/session": Rule(Access.PUBLIC, {"token": "x" * 43}, anonymous=401),
    "DELETE /v1/session": Rule(Access.PUBLIC, anonymous=204),
    "GET /v1/session/providers": Rule(Access.PUBLIC, anonymous=200),
    "GET /v1/session/providers/{provider}": Rule(Access.PUBLIC, anonymous=404),
    "GET /v1/session/providers/{provider}/callback": Rule(Access.PUBLIC, anonymous=404),
    "GET /v1/me": Rule(Access.SIGNED_IN),
    "DELETE /v1/me": Rule(Access.BROWSER, ends=True),
    "GET /v1/me/password": Rule(Access.BROWSER),
    "PUT /v1/me/password": Rule(Access.BROWSER, {"password": "correct horse battery"}),
    "GET /v1/me/sessions": Rule(Access.BROWSER),
    "DELETE /v1/me/sessions/{session_id}": Rule(Access.BROWSER),
    "GET /v1/me/instructions": _CHAT,
    "PUT /v1/me/instructions": Rule(Access.CHAT, {"text": "be brief"}),
    "GET /v1/me/memory": _CHAT,
    "POST /v1/me/memory": Rule(Access.CHAT, {"text": "likes tea"}),
    "PATCH /v1/me/memory/{memory_id}": Rule(Access.CHAT, {"text": "likes coffee"}),
    "DELETE /v1/me/memory/{memory_id}": _CHAT,
    "POST /v1/keys": Rule(Access.NO_LESSER_KEY, {"name": "new", "scopes": ["chat"]}),
    "GET /v1/keys": Rule(Access.NO_LESSER_KEY),
    "DELETE /v1/keys/{key_id}": Rule(Access.NO_LESSER_KEY, by_admins=True),
    "POST /v1/conversations": Rule(Access.CHAT, {"title": "new"}),
    "GET /v1/conversations": _CHAT,
    "GET /v1/conversations/{conversation_id}": _CHAT,
    "PATCH /v1/conversations/{conversation_id}": Rule(Access.CHAT, {"title": "renamed"}),
    "DELETE /v1/conversations/{conversation_id}": _CHAT,
    "GET /v1/conversations/{conversation_id}/messages": _CHAT,
    "GET /v1/conversations/{conversation_id}/tree": _CHAT,
    "POST /v1/conversations/{conversation_id}/messages": Rule(Access.CHAT, _SEND),
    "POST /v1/conversations/{conversation_id}/share": _CHAT,
    "POST /v1/messages/{message_id}/continue": Rule(Access.CHAT, {"params": {"max_tokens": 3}}),
    "PUT /v1/messages/{message_id}/feedback": Rule(Access.CHAT, {"rating": 1}),
    "GET /v1/generations/{generation_id}": _CHAT,
    "GET /v1/generations/{generation_id}/stream": _CHAT,
    "GET /v1/generations/{generation_id}/prompt": _CHAT,
    "POST /v1/generations/{generation_id}/cancel": Rule(Access.CHAT, {}),
    "GET /v1/search": Rule(Access.CHAT, query={"q": "canary"}),
    "GET /v1/folders": _CHAT,
    "GET /v1/shares": _CHAT,
    "DELETE /v1/shares/{share_id}": _CHAT,
    "GET /v1/shared/{token}": Rule(Access.PUBLIC, anonymous=200),
    "GET /s/{token}": Rule(Access.PUBLIC, anonymous=200),
    "GET /v1/export": Rule(Access.CHAT, query={"conversation_id": "{conversation_id}"}),
    "GET /v1/me/export": Rule(Access.NO_LESSER_KEY),
    "POST /v1/import": Rule(Access.CHAT, upload=True),
    "GET /v1/models": _CHAT,
    "POST /v1/chat/completions": Rule(Access.CHAT, _COMPLETE),
    "GET /v1/admin/users": Rule(Access.ADMIN),
    "POST /v1/admin/users": Rule(Access.ADMIN, {"name": "unique"}),
    "PATCH /v1/admin/users/{user_id}": Rule(Access.ADMIN, {"plan": "free"}, by_admins=True),
    "POST /v1/admin/users/{user_id}/link": Rule(Access.ADMIN, by_admins=True),
    "GET /v1/admin/abuse": Rule(Access.ADMIN),
    "PUT /v1/admin/abuse/{user_id}": Rule(Access.ADMIN, {"state": "clear"}, by_admins=True),
    "GET /v1/usage": Rule(Access.USAGE),
    "GET /v1/admin/usage": Rule(Access.ADMIN),
    "GET /v1/admin/pools": Rule(Access.ADMIN),
    "POST /v1/admin/pools": Rule(Access.ADMIN, {**_SERVER, "model": "quick", "name": "unique"}),
    "POST /v1/admin/pools/offers": Rule(Access.ADMIN, _SERVER),
    "DELETE /v1/admin/pools/{pool}": Rule(Access.ADMIN, by_admins=True),
    "GET /v1/admin/plans": Rule(Access.ADMIN),
    "GET /v1/admin/keys": Rule(Access.ADMIN, by_admins=True),
    "GET /v1/admin/audit": Rule(Access.ADMIN),
    "GET /v1/admin/feedback": Rule(Access.ADMIN),
    "GET /v1/admin/retention": Rule(Access.ADMIN),
    "PUT /v1/admin/retention": Rule(Access.ADMIN, {"days": 30}),
    "GET /healthz": Rule(Access.PUBLIC, anonymous=200),
    "GET /healthz/stream": Rule(Access.PUBLIC, anonymous=200),
    "GET /readyz": Rule(Access.PUBLIC, anonymous=200),
    "GET /metrics": Rule(Access.METRICS),
    "GET /openapi.json": Rule(Access.PUBLIC, anonymous=200),
    "GET /docs": Rule(Access.PUBLIC, anonymous=200),
}
