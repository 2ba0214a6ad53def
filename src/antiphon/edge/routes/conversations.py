"""Conversations: make, list, look at, change, delete; their paths and trees."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query
from starlette.responses import Response

from antiphon.core.errors import FieldFault, InvalidRequest
from antiphon.core.ids import ConversationId, IdKind
from antiphon.core.messages import Conversation, TitleSource
from antiphon.edge.access import CHAT, Caller, CheckedQuery, GuardedRoute, OwnerOf, Services, guarded
from antiphon.edge.answers import (
    ConversationAnswer,
    ConversationsAnswer,
    PathAnswer,
    TreeAnswer,
    conversation_answer,
    node_answer,
    path_answer,
)
from antiphon.edge.api_document import refuses
from antiphon.edge.paths import Before, ConversationPath, Leaf, PageCursor, PageLimit, message_id
from antiphon.edge.schemas import MAX_TITLE, ConversationChange, NewConversation
from antiphon.edge.services import EdgeServices
from antiphon.stores.conversations.base import ConversationFilter, ConversationPatch, Owner

router = APIRouter(prefix="/v1/conversations", tags=["conversations"], route_class=GuardedRoute)


async def _only(
    pinned: bool | None = None, archived: bool | None = None, folder: Annotated[str | None, Query(max_length=MAX_TITLE)] = None
) -> ConversationFilter:
    return ConversationFilter(pinned=pinned, archived=archived, folder=folder)


Only = Annotated[ConversationFilter, Depends(_only)]
_ETAG = re.compile(r'"(\d{1,18})"\Z', re.ASCII)


@router.post("", status_code=201, responses=refuses(409))
@guarded(CHAT)
async def create_conversation(
    caller: Caller, services: Services, response: Response, body: NewConversation | None = None
) -> ConversationAnswer:
    """A new, empty conversation. Without a title it is named after its first message."""
    wanted = body or NewConversation()
    if wanted.model is not None:
        _check_model(services, caller.plan, wanted.model)
    now = services.clock.now()
    conversation = Conversation(
        id=ConversationId(services.ids.new(IdKind.CONVERSATION)),
        tenant_id=caller.tenant_id,
        user_id=caller.user_id,
        title=wanted.title or "",
        title_source=TitleSource.USER if wanted.title else TitleSource.AUTO,
        model=wanted.model,
        current_leaf_id=None,
        version=1,
        pinned=False,
        archived=False,
        temporary=wanted.temporary,
        created_at=now,
        updated_at=now,
    )
    await services.conversations.create(conversation)
    response.headers["ETag"] = _etag(conversation)
    return conversation_answer(conversation)


@router.get("", dependencies=[CheckedQuery])
@guarded(CHAT)
async def list_conversations(
    owner: OwnerOf, services: Services, after: PageCursor, only: Only, limit: PageLimit = 30
) -> ConversationsAnswer:
    """Conversations, the one used last first; of one folder, or only those (not) pinned or archived, where that is asked for."""
    page = await services.conversations.page(owner, limit=limit, after=after, only=only)
    return ConversationsAnswer([conversation_answer(conversation) for conversation in page.conversations], page.next_cursor)


@router.get("/{conversation_id}")
@guarded(CHAT)
async def get_conversation(conversation_id: ConversationPath, owner: OwnerOf, services: Services, response: Response) -> ConversationAnswer:
    """One conversation's head; its version is the ``ETag``."""
    conversation = await services.conversations.get(owner, conversation_id)
    response.headers["ETag"] = _etag(conversation)
    return conversation_answer(conversation)


@router.patch("/{conversation_id}", responses=refuses(409, 412))
@guarded(CHAT)
async def change_conversation(
    conversation_id: ConversationPath,
    body: ConversationChange,
    caller: Caller,
    services: Services,
    response: Response,
    if_match: Annotated[str | None, Header()] = None,
) -> ConversationAnswer:
    """Change title, model, pin, archive or current leaf; with ``If-Match`` only at that version."""
    if body.model is not None:
        _check_model(services, caller.plan, body.model)
    patch = ConversationPatch(
        title=body.title,
        model=body.model,
        pinned=body.pinned,
        archived=body.archived,
        current_leaf_id=None if body.current_leaf_id is None else message_id(body.current_leaf_id),
        if_version=_version(if_match),
        folder=_folder(body),
    )
    conversation = await services.conversations.update(
        Owner(caller.tenant_id, caller.user_id), conversation_id, patch, now=services.clock.now()
    )
    if body.title is not None:
        services.runner.entitle(conversation.id, conversation.title)
    response.headers["ETag"] = _etag(conversation)
    return conversation_answer(conversation)


@router.delete("/{conversation_id}", status_code=204)
@guarded(CHAT)
async def delete_conversation(conversation_id: ConversationPath, owner: OwnerOf, services: Services) -> Response:
    """Hide a conversation at once and stop what is being written in it."""
    running = await services.conversations.delete(owner, conversation_id, now=services.clock.now())
    services.background.cancel(owner, conversation_id)
    await services.runner.stop_and_wait(running)
    return Response(status_code=204)


@router.get("/{conversation_id}/messages", tags=["messages"])
@guarded(CHAT)
async def get_path(
    conversation_id: ConversationPath, owner: OwnerOf, services: Services, leaf: Leaf, before: Before, limit: PageLimit = 30
) -> PathAnswer:
    """The path root → leaf, its last ``limit`` messages, with the siblings of each."""
    page = await services.conversations.path(owner, conversation_id, leaf=leaf, limit=limit, before=before)
    return path_answer(page)


@router.get("/{conversation_id}/tree", tags=["messages"])
@guarded(CHAT)
async def get_tree(conversation_id: ConversationPath, owner: OwnerOf, services: Services) -> TreeAnswer:
    """Every message of the conversation, without its text."""
    return TreeAnswer([node_answer(node) for node in await services.conversations.tree(owner, conversation_id)])


def _folder(body: ConversationChange) -> str | None:
    """The folder to move to, empty for none, ``None`` when the request does not say."""
    if "folder" not in body.model_fields_set:
        return None
    return " ".join((body.folder or "").split())


def _check_model(services: EdgeServices, plan_name: str, model: str) -> None:
    """Raises ``ModelGone`` or ``Forbidden`` for a model this plan's users cannot have."""
    plan = services.plans.get(plan_name)
    services.gateway.resolve(model, () if plan is None else plan.models)


def _etag(conversation: Conversation) -> str:
    return f'"{conversation.version}"'


def _version(if_match: str | None) -> int | None:
    if if_match is None or if_match.strip() == "*":
        return None
    found = _ETAG.match(if_match.strip().removeprefix("W/"))
    if found is None:
        raise InvalidRequest([FieldFault("If-Match", 'Send the version in quotes, as in "3".')])
    return int(found[1])
