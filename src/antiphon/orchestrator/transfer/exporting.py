"""The story of an export: one conversation after the other, each read in one snapshot, never more than one held."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from enum import StrEnum

from antiphon.core.errors import NotFound
from antiphon.core.ids import ConversationId
from antiphon.orchestrator.transfer import markdown, own
from antiphon.orchestrator.transfer.values import dump
from antiphon.stores.conversations.base import Conversations, Owner
from antiphon.stores.transfers.base import Transfers, WholeConversation

_PAGE = 100


class Format(StrEnum):
    """``antiphon`` loses nothing and comes back; ``markdown`` is for people; ``json`` is one plain list."""

    ANTIPHON = "antiphon"
    MARKDOWN = "markdown"
    JSON = "json"


class Exporter:
    """Exports conversations. Stateless."""

    def __init__(self, conversations: Conversations, transfers: Transfers) -> None:
        self._conversations = conversations
        self._transfers = transfers

    async def one(self, owner: Owner, conversation_id: ConversationId) -> AsyncIterator[WholeConversation]:
        """That one, read now: raises ``NotFound``."""
        return _only(await self._transfers.whole(owner, conversation_id))

    async def all(self, owner: Owner) -> AsyncIterator[WholeConversation]:
        """Every conversation that is listed, the one used last first. What is deleted on the way is left out."""
        after: str | None = None
        while True:
            page = await self._conversations.page(owner, limit=_PAGE, after=after)
            for head in page.conversations:
                try:
                    whole = await self._transfers.whole(owner, head.id)
                except NotFound:
                    continue
                yield whole
            after = page.next_cursor
            if after is None:
                return


async def _only(whole: WholeConversation) -> AsyncIterator[WholeConversation]:
    yield whole


async def written(found: AsyncIterator[WholeConversation], form: Format) -> AsyncGenerator[bytes]:
    """``found`` in a format, in pieces of about a conversation."""
    begin, between, end, render = _SHAPES[form]
    yield begin.encode()
    first = True
    async for whole in found:
        text = await asyncio.to_thread(render, whole)
        yield (text if first else between + text).encode()
        first = False
    yield end.encode()


def _plain(whole: WholeConversation) -> str:
    told = own.object_of_whole(whole)
    told.pop("origin", None)
    return dump(told)


_SHAPES: dict[Format, tuple[str, str, str, Callable[[WholeConversation], str]]] = {
    Format.ANTIPHON: (own.HEADER, "", "", own.line_of),
    Format.MARKDOWN: ("", "\n---\n\n", "", markdown.document_of),
    Format.JSON: ("[\n", ",\n", "\n]\n", _plain),
}
