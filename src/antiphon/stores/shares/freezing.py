"""What a share shows, as pure functions that every driver shares."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.core.errors import FieldFault, InvalidRequest
from antiphon.core.messages import Message, MessageStatus
from antiphon.stores.shares.base import SharedMessage


def frozen(path: Sequence[Message]) -> tuple[SharedMessage, ...]:
    """The messages of a path that are written to their end and hold text; raises ``InvalidRequest`` when there is none."""
    shown = tuple(
        SharedMessage(message.role, message.content, message.model, message.created_at)
        for message in path
        if message.status is not MessageStatus.STREAMING and message.content
    )
    if not shown:
        raise InvalidRequest([FieldFault("conversation_id", "There is nothing to share yet.")])
    return shown
