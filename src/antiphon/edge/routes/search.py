"""Searching titles and texts, and the folders there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query

from antiphon.edge.access import CHAT, CheckedQuery, GuardedRoute, OwnerOf, Services, guarded
from antiphon.edge.paths import PageCursor, PageLimit

router = APIRouter(prefix="/v1", tags=["search"], route_class=GuardedRoute)


@dataclass(frozen=True, slots=True)
class HitAnswer:
    """A message, or a conversation's title where ``message_id`` is null. ``snippet`` is HTML: escaped, hits in ``<mark>``."""

    conversation_id: str
    message_id: str | None
    title: str
    snippet: str


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    data: list[HitAnswer]
    next: str | None


@router.get("/search", dependencies=[CheckedQuery])
@guarded(CHAT)
async def search(
    owner: OwnerOf, services: Services, after: PageCursor, q: Annotated[str, Query(max_length=512)], limit: PageLimit = 30
) -> SearchAnswer:
    """Conversations and messages that hold every word of ``q``; words in double quotes stay together."""
    page = await services.conversations.search(owner, q, limit=limit, after=after)
    return SearchAnswer([HitAnswer(hit.conversation_id, hit.message_id, hit.title, hit.snippet) for hit in page.hits], page.next_cursor)


@dataclass(frozen=True, slots=True)
class FolderAnswer:
    name: str
    conversations: int


@dataclass(frozen=True, slots=True)
class FoldersAnswer:
    data: list[FolderAnswer]


@router.get("/folders")
@guarded(CHAT)
async def list_folders(owner: OwnerOf, services: Services) -> FoldersAnswer:
    """The caller's folders that hold something, by name; a folder exists while a conversation is in it."""
    return FoldersAnswer([FolderAnswer(folder.name, folder.conversations) for folder in await services.conversations.folders(owner)])
