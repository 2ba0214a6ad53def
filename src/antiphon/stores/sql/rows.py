"""Rows to words and back. A row is a mapping of column names to what SQLite and PostgreSQL both store."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec
import sqlalchemy as sa

from antiphon.core.clock import from_ms, to_ms
from antiphon.core.generation import Generation, GenerationStatus, TurnParams, Usage
from antiphon.core.messages import Conversation, Message, MessageError, MessageStatus, PromptRecord, Role, TitleSource, TreeNode
from antiphon.core.tenancy import ApiKey, Band, Scope, Tenant, User, UserRole
from antiphon.stores.sql.base import Value

Row = sa.Row[*tuple[Any, ...]]
Values = dict[str, Value]
_PROMPTS = msgspec.json.Decoder(PromptRecord)


def conversation_values(head: Conversation) -> Values:
    return {
        "tenant_id": head.tenant_id,
        "id": head.id,
        "user_id": head.user_id,
        "title": head.title,
        "model": head.model,
        "current_leaf_id": head.current_leaf_id,
        "version": head.version,
        "pinned": int(head.pinned),
        "archived": int(head.archived),
        "temporary": int(head.temporary),
        "created_at": to_ms(head.created_at),
        "updated_at": to_ms(head.updated_at),
        "title_source": head.title_source.value,
        "folder": head.folder,
    }


def conversation_of(row: Row) -> Conversation:
    return Conversation(
        id=row.id,
        tenant_id=row.tenant_id,
        user_id=row.user_id,
        title=row.title,
        model=row.model,
        current_leaf_id=row.current_leaf_id,
        version=row.version,
        pinned=bool(row.pinned),
        archived=bool(row.archived),
        temporary=bool(row.temporary),
        created_at=from_ms(row.created_at),
        updated_at=from_ms(row.updated_at),
        title_source=TitleSource(row.title_source),
        folder=row.folder,
    )


def message_values(message: Message) -> Values:
    """All columns but ``tenant_id``."""
    return {
        "conversation_id": message.conversation_id,
        "id": message.id,
        "parent_id": message.parent_id,
        "role": message.role.value,
        "status": message.status.value,
        "created_at": to_ms(message.created_at),
        "model": message.model,
        "requested_model": message.requested_model,
        "finish_reason": message.finish_reason,
        "prompt_tokens": message.prompt_tokens,
        "cached_tokens": message.cached_tokens,
        "output_tokens": message.output_tokens,
        "content_tokens": message.content_tokens,
        "cost": _money_text(message.cost),
        "generation_id": message.generation_id,
        "error": _error_text(message.error),
        "content": message.content,
        "counted_by": message.counted_by,
        "reasoning": message.reasoning or None,
        "prompt": None if message.prompt is None else _json_text(message.prompt),
    }


def message_of(row: Row) -> Message:
    return Message(
        id=row.id,
        conversation_id=row.conversation_id,
        parent_id=row.parent_id,
        role=Role(row.role),
        content=row.content,
        status=MessageStatus(row.status),
        created_at=from_ms(row.created_at),
        model=row.model,
        requested_model=row.requested_model,
        finish_reason=row.finish_reason,
        prompt_tokens=row.prompt_tokens,
        cached_tokens=row.cached_tokens,
        output_tokens=row.output_tokens,
        content_tokens=row.content_tokens,
        cost=None if row.cost is None else Decimal(row.cost),
        generation_id=row.generation_id,
        error=_error_of(row.error),
        counted_by=row.counted_by,
        reasoning=row.reasoning or "",
        prompt=None if row.prompt is None else _PROMPTS.decode(row.prompt),
    )


def node_of(row: Row) -> TreeNode:
    return TreeNode(row.id, row.parent_id, Role(row.role), MessageStatus(row.status), from_ms(row.created_at))


def generation_values(generation: Generation) -> Values:
    """All columns but ``cancel_requested_at``, which holds when rather than whether."""
    return {
        "tenant_id": generation.tenant_id,
        "id": generation.id,
        "user_id": generation.user_id,
        "key_id": generation.key_id,
        "conversation_id": generation.conversation_id,
        "message_id": generation.message_id,
        "user_message_id": generation.user_message_id,
        "status": generation.status.value,
        "epoch": generation.epoch,
        "lease_until": _moment_ms(generation.lease_until),
        "plan": generation.plan,
        "band": generation.band,
        "pool": generation.pool,
        "model": generation.model,
        "requested_model": generation.requested_model,
        "route_rule": generation.route_rule,
        "route_reason": generation.route_reason,
        "params": _json_text(generation.params),
        "created_at": to_ms(generation.created_at),
        "finished_at": _moment_ms(generation.finished_at),
        "finish_reason": generation.finish_reason,
        "usage": _json_text(generation.usage),
        "ttft_ms": generation.ttft_ms,
        "duration_ms": generation.duration_ms,
        "error": _error_text(generation.error),
        "checkpoint_seq": generation.checkpoint_seq,
        "prior_text": generation.prior_text,
        "checkpoint_text": generation.checkpoint_text,
    }


def generation_of(row: Row) -> Generation:
    return Generation(
        id=row.id,
        tenant_id=row.tenant_id,
        user_id=row.user_id,
        conversation_id=row.conversation_id,
        message_id=row.message_id,
        user_message_id=row.user_message_id,
        status=GenerationStatus(row.status),
        epoch=row.epoch,
        model=row.model,
        requested_model=row.requested_model,
        params=msgspec.json.decode(row.params, type=TurnParams),
        created_at=from_ms(row.created_at),
        key_id=row.key_id,
        plan=row.plan,
        band=None if row.band is None else Band(row.band),
        pool=row.pool,
        route_rule=row.route_rule,
        route_reason=row.route_reason,
        prior_text=row.prior_text,
        checkpoint_text=row.checkpoint_text,
        checkpoint_seq=row.checkpoint_seq,
        lease_until=_moment_of(row.lease_until),
        cancel_requested=row.cancel_requested_at is not None,
        finish_reason=row.finish_reason,
        usage=msgspec.json.decode(row.usage, type=Usage),
        ttft_ms=row.ttft_ms,
        duration_ms=row.duration_ms,
        error=_error_of(row.error),
        finished_at=_moment_of(row.finished_at),
    )


def tenant_of(row: Row) -> Tenant:
    return Tenant(row.tenant_id, row.name, from_ms(row.created_at))


def tenant_values(tenant: Tenant) -> Values:
    return {"tenant_id": tenant.id, "name": tenant.name, "created_at": to_ms(tenant.created_at)}


def user_of(row: Row) -> User:
    return User(row.id, row.tenant_id, row.name, UserRole(row.role), row.plan, bool(row.disabled), from_ms(row.created_at))


def user_values(user: User) -> Values:
    return {
        "tenant_id": user.tenant_id,
        "id": user.id,
        "name": user.name,
        "role": user.role.value,
        "plan": user.plan,
        "disabled": int(user.disabled),
        "created_at": to_ms(user.created_at),
    }


def key_of(row: Row) -> ApiKey:
    return ApiKey(
        id=row.id,
        tenant_id=row.tenant_id,
        user_id=row.user_id,
        name=row.name,
        scopes=frozenset(Scope(scope) for scope in row.scopes.split()),
        last4=row.last4,
        created_at=from_ms(row.created_at),
        revoked_at=_moment_of(row.revoked_at),
        band=None if row.band is None else Band(row.band),
    )


def key_values(key: ApiKey, secret_sha256: bytes) -> Values:
    return {
        "tenant_id": key.tenant_id,
        "id": key.id,
        "user_id": key.user_id,
        "name": key.name,
        "scopes": " ".join(sorted(key.scopes)),
        "last4": key.last4,
        "secret_sha256": secret_sha256,
        "created_at": to_ms(key.created_at),
        "revoked_at": _moment_ms(key.revoked_at),
        "band": key.band,
    }


def usage_text(usage: Usage) -> str:
    return _json_text(usage)


def _json_text(value: TurnParams | Usage | MessageError | PromptRecord) -> str:
    return msgspec.json.encode(value).decode()


def _error_text(error: MessageError | None) -> str | None:
    return None if error is None else _json_text(error)


def _error_of(text: str | None) -> MessageError | None:
    return None if text is None else msgspec.json.decode(text, type=MessageError)


def _money_text(amount: Decimal | None) -> str | None:
    return None if amount is None else str(amount)


def _moment_ms(moment: datetime | None) -> int | None:
    return None if moment is None else to_ms(moment)


def _moment_of(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else from_ms(milliseconds)
