"""Who views a stream, taken from a request."""

from __future__ import annotations

from fastapi import Request

from antiphon.core.ids import GenerationId
from antiphon.core.tenancy import Principal
from antiphon.edge.standing import credentials_of
from antiphon.edge.stream import Viewer
from antiphon.stores.conversations.base import Owner


def viewer_of(request: Request, caller: Principal, generation_id: GenerationId, *, cursor: str | None) -> Viewer:
    """The caller as a reader of ``generation_id``. It keeps the credentials, not the request, to see if they still hold."""
    return Viewer(Owner(caller.tenant_id, caller.user_id), generation_id, cursor, credentials_of(request.headers.raw))
