"""Share links: making, listing, revoking; and the page behind a link, for anybody who has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import HTMLResponse, Response

from antiphon.core.clock import rfc3339
from antiphon.core.errors import NotFound
from antiphon.core.ids import IdKind, ShareId
from antiphon.edge.access import CHAT, PUBLIC, GuardedRoute, OwnerOf, Services, app_state, guarded
from antiphon.edge.body import check_text
from antiphon.edge.paths import ConversationPath, PageCursor, PageLimit, SharePath
from antiphon.edge.services import EdgeServices
from antiphon.edge.shared_page import client_page, plain_page
from antiphon.edge.web_client import wants_page
from antiphon.stores.shares.base import Share

router = APIRouter(tags=["shares"], route_class=GuardedRoute)

_TOKEN_BYTES = 24
_MAX_TOKEN = 64
_NOT_INDEXED = {"X-Robots-Tag": "noindex, nofollow, noarchive", "Referrer-Policy": "no-referrer"}


@dataclass(frozen=True, slots=True)
class NewShareAnswer:
    id: str
    url: str


@dataclass(frozen=True, slots=True)
class ShareAnswer:
    id: str
    url: str
    conversation_id: str
    title: str
    created_at: str


@dataclass(frozen=True, slots=True)
class SharesAnswer:
    data: list[ShareAnswer]
    next: str | None


@dataclass(frozen=True, slots=True)
class SharedMessageAnswer:
    role: str
    content: str
    model: str | None
    created_at: str


@dataclass(frozen=True, slots=True)
class SharedAnswer:
    """A conversation as it was when it was shared."""

    title: str
    created_at: str
    data: list[SharedMessageAnswer]


@router.post("/v1/conversations/{conversation_id}/share", status_code=201)
@guarded(CHAT)
async def share_conversation(conversation_id: ConversationPath, owner: OwnerOf, services: Services, request: Request) -> NewShareAnswer:
    """A link to the conversation as it is now, along its current path; what is written later is not in it."""
    share = await services.shares.create(
        owner,
        conversation_id,
        share_id=ShareId(services.ids.new(IdKind.SHARE)),
        token=services.ids.secret(_TOKEN_BYTES),
        now=services.clock.now(),
    )
    return NewShareAnswer(share.id, _url(services, request, share))


@router.get("/v1/shares")
@guarded(CHAT)
async def list_shares(owner: OwnerOf, services: Services, request: Request, after: PageCursor, limit: PageLimit = 30) -> SharesAnswer:
    """The caller's links, newest first."""
    page = await services.shares.page(owner, limit=limit, after=after)
    return SharesAnswer([_share_answer(services, request, share) for share in page.shares], page.next_cursor)


@router.delete("/v1/shares/{share_id}", status_code=204)
@guarded(CHAT)
async def revoke_share(share_id: SharePath, owner: OwnerOf, services: Services) -> Response:
    """End a link; from now on it is 404."""
    await services.shares.revoke(owner, share_id, now=services.clock.now())
    return Response(status_code=204)


@router.get("/v1/shared/{token}")
@guarded(PUBLIC)
async def get_shared(token: Annotated[str, Path()], services: Services, response: Response) -> SharedAnswer:
    """What a link shows, for programs."""
    share = await _shared(services, token)
    response.headers.update(_NOT_INDEXED)
    data = [SharedMessageAnswer(one.role.value, one.content, one.model, rfc3339(one.created_at)) for one in share.messages]
    return SharedAnswer(share.title, rfc3339(share.created_at), data)


@router.get("/s/{token}", response_class=HTMLResponse, responses={404: {"content": {"text/html": {}}}})
@guarded(PUBLIC)
async def show_shared(token: Annotated[str, Path()], services: Services, request: Request) -> Response:
    """What a link shows: to browsers in the client, to others as a plain page without scripts."""
    share = await _shared(services, token)
    client = await app_state(request).static.page()
    page = client_page(client.content.decode(), share) if client.built and wants_page(request.scope) else plain_page(share)
    return HTMLResponse(page, headers={**_NOT_INDEXED, "Vary": "Accept"})


async def _shared(services: EdgeServices, token: str) -> Share:
    if len(token) > _MAX_TOKEN:
        raise NotFound
    return await services.shares.read(check_text(token))


def _share_answer(services: EdgeServices, request: Request, share: Share) -> ShareAnswer:
    return ShareAnswer(share.id, _url(services, request, share), share.conversation_id, share.title, rfc3339(share.created_at))


def _url(services: EdgeServices, request: Request, share: Share) -> str:
    base = services.public_url or str(request.base_url).rstrip("/")
    return f"{base}/s/{share.token}"
