"""Ids in paths and bodies. One of the wrong form is answered exactly as one that is unknown.

Dependencies are coroutines without an ``await``: a plain function would be run in a thread, and each such trip waits twice for a
busy event loop.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Query

from antiphon.core.errors import BadCursor, NotFound
from antiphon.core.ids import ConversationId, GenerationId, IdKind, KeyId, MemoryId, MessageId, ShareId, UserId, is_id
from antiphon.edge.body import check_text


def message_id(text: str) -> MessageId:
    """``text`` as a message id; raises ``NotFound`` for any other form."""
    return MessageId(_checked(text, IdKind.MESSAGE))


def conversation_id(text: str) -> ConversationId:
    """``text`` as a conversation id; raises ``NotFound`` for any other form."""
    return ConversationId(_checked(text, IdKind.CONVERSATION))


def _checked(text: str, kind: IdKind) -> str:
    if not is_id(text, kind):
        raise NotFound
    return text


async def _conversation(conversation_id: Annotated[str, Path()]) -> ConversationId:
    return ConversationId(_checked(conversation_id, IdKind.CONVERSATION))


async def _message(message_id: Annotated[str, Path()]) -> MessageId:
    return MessageId(_checked(message_id, IdKind.MESSAGE))


async def _generation(generation_id: Annotated[str, Path()]) -> GenerationId:
    return GenerationId(_checked(generation_id, IdKind.GENERATION))


async def _key(key_id: Annotated[str, Path()]) -> KeyId:
    return KeyId(_checked(key_id, IdKind.KEY))


async def _share(share_id: Annotated[str, Path()]) -> ShareId:
    return ShareId(_checked(share_id, IdKind.SHARE))


async def _page_cursor(after: Annotated[str | None, Query(max_length=512)] = None) -> str | None:
    return None if after is None else check_text(after)


async def _leaf(leaf: Annotated[str | None, Query()] = None) -> MessageId | None:
    return None if leaf is None else message_id(leaf)


async def _before(before: Annotated[str | None, Query()] = None) -> MessageId | None:
    if before is not None and not is_id(before, IdKind.MESSAGE):
        raise BadCursor
    return None if before is None else MessageId(before)


async def _memory(memory_id: Annotated[str, Path()]) -> MemoryId:
    return MemoryId(_checked(memory_id, IdKind.MEMORY))


async def _user(user_id: Annotated[str, Path()]) -> UserId:
    return UserId(_checked(user_id, IdKind.USER))


async def _session(session_id: Annotated[str, Path(max_length=64)]) -> str:
    return check_text(session_id)


async def _pool(pool: Annotated[str, Path()]) -> str:
    return check_text(pool)


PoolPath = Annotated[str, Depends(_pool)]
UserPath = Annotated[UserId, Depends(_user)]
SessionPath = Annotated[str, Depends(_session)]
MemoryPath = Annotated[MemoryId, Depends(_memory)]
ConversationPath = Annotated[ConversationId, Depends(_conversation)]
MessagePath = Annotated[MessageId, Depends(_message)]
GenerationPath = Annotated[GenerationId, Depends(_generation)]
SharePath = Annotated[ShareId, Depends(_share)]
KeyPath = Annotated[KeyId, Depends(_key)]
PageCursor = Annotated[str | None, Depends(_page_cursor)]
Leaf = Annotated[MessageId | None, Depends(_leaf)]
Before = Annotated[MessageId | None, Depends(_before)]
PageLimit = Annotated[int, Query(ge=1, le=100)]
