"""The usage record of one generation: the outbox row's payload and, later, a line of the ledger."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import cast

from antiphon.core.clock import rfc3339
from antiphon.core.generation import Generation, Usage
from antiphon.core.ids import ConversationId, GenerationId, KeyId, TenantId, UserId
from antiphon.core.limits import MOST_NANOS

_MOST_COST = Decimal(MOST_NANOS).scaleb(-9)
_MOST_COUNT = 1 << 40
"""Tokens or milliseconds of one record; sums of millions of them fit a column."""


class Purpose(StrEnum):
    """What was computed. Work that a conversation needs after an answer costs whoever has it, and is no message of theirs."""

    ANSWER = "answer"
    TITLE = "title"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """What a generation cost and whom; keyed by ``generation_id``, so that a consumer may see it twice.

    ``cost`` ``None`` means that the price is unknown, never that it was free. ``estimated``: counted by us because the
    engine's own count was lost. ``finish_reason`` is ``None`` for a generation that failed.
    """

    generation_id: GenerationId
    tenant_id: TenantId
    user_id: UserId
    key_id: KeyId | None
    conversation_id: ConversationId | None
    model: str
    requested_model: str
    pool: str
    release: str | None
    plan: str
    usage: Usage
    finish_reason: str | None
    estimated: bool
    finished_at: datetime
    purpose: Purpose = Purpose.ANSWER


def usage_of(generation: Generation, usage: Usage, *, finish_reason: str | None, estimated: bool, finished_at: datetime) -> UsageRecord:
    """The record of a stored generation that ends now."""
    return UsageRecord(
        generation_id=generation.id,
        tenant_id=generation.tenant_id,
        user_id=generation.user_id,
        key_id=generation.key_id,
        conversation_id=generation.conversation_id,
        model=generation.model,
        requested_model=generation.requested_model,
        pool=generation.pool or generation.model,
        release=None,
        plan=generation.plan,
        usage=usage,
        finish_reason=finish_reason,
        estimated=estimated,
        finished_at=finished_at,
    )


def usage_json(record: UsageRecord) -> str:
    """The record as one line of JSON with the contract's keys; money as a decimal string, time as RFC 3339.

    One that is no answer's names its ``purpose`` besides.
    """
    usage = record.usage
    return json.dumps(
        {
            "generation_id": record.generation_id,
            "tenant_id": record.tenant_id,
            "user_id": record.user_id,
            "key_id": record.key_id,
            "conversation_id": record.conversation_id,
            "model": record.model,
            "requested_model": record.requested_model,
            "pool": record.pool,
            "release": record.release,
            "plan": record.plan,
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "output_tokens": usage.output_tokens,
            "queued_ms": usage.queued_ms,
            "prefill_ms": usage.prefill_ms,
            "decode_ms": usage.decode_ms,
            "accelerator_ms": usage.accelerator_ms,
            "finish_reason": record.finish_reason,
            "cost": money(usage.cost),
            "estimated": record.estimated,
            "finished_at": rfc3339(record.finished_at),
            **({} if record.purpose is Purpose.ANSWER else {"purpose": record.purpose.value}),
        },
        ensure_ascii=False,
        separators=(",", ":"),
    )


class UnreadableRecord(ValueError):
    """Text that is no usage record."""


def usage_record(text: str) -> UsageRecord:
    """The inverse of ``usage_json``; keys that it does not know are ignored. Raises ``UnreadableRecord``."""
    try:
        found: object = json.loads(text)
        if not isinstance(found, dict):
            raise UnreadableRecord("not an object")
        values = cast("dict[str, object]", found)
        cost, finished_at = _optional(values, "cost"), datetime.fromisoformat(_text(values, "finished_at"))
        if finished_at.tzinfo is None or not 2000 <= finished_at.year < 3000:
            raise UnreadableRecord("a time without its zone, or of another age")
        if cost is not None and not 0 <= Decimal(cost) <= _MOST_COST:
            raise UnreadableRecord("a cost that is no amount")
        key_id, conversation_id = _optional(values, "key_id"), _optional(values, "conversation_id")
        return UsageRecord(
            generation_id=GenerationId(_text(values, "generation_id")),
            tenant_id=TenantId(_text(values, "tenant_id")),
            user_id=UserId(_text(values, "user_id")),
            key_id=None if key_id is None else KeyId(key_id),
            conversation_id=None if conversation_id is None else ConversationId(conversation_id),
            model=_text(values, "model"),
            requested_model=_text(values, "requested_model"),
            pool=_text(values, "pool"),
            release=_optional(values, "release"),
            plan=_text(values, "plan"),
            usage=Usage(
                prompt_tokens=_count(values, "prompt_tokens"),
                cached_tokens=_count(values, "cached_tokens"),
                output_tokens=_count(values, "output_tokens"),
                queued_ms=_count(values, "queued_ms"),
                prefill_ms=_count(values, "prefill_ms"),
                decode_ms=_count(values, "decode_ms"),
                accelerator_ms=_count(values, "accelerator_ms"),
                cost=None if cost is None else Decimal(cost),
            ),
            finish_reason=_optional(values, "finish_reason"),
            estimated=values["estimated"] is True,
            finished_at=finished_at,
            purpose=Purpose(_optional(values, "purpose") or Purpose.ANSWER),
        )
    except UnreadableRecord:
        raise
    except (ValueError, KeyError, InvalidOperation, RecursionError) as error:
        raise UnreadableRecord(f"{type(error).__name__}: {error}") from error


def _text(values: dict[str, object], key: str) -> str:
    value = values[key]
    if not isinstance(value, str):
        raise UnreadableRecord(f"{key} is no text")
    return value


def _optional(values: dict[str, object], key: str) -> str | None:
    return None if values.get(key) is None else _text(values, key)


def _count(values: dict[str, object], key: str) -> int:
    value = values[key]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MOST_COUNT:
        raise UnreadableRecord(f"{key} is no count")
    return value


def money(amount: Decimal | None) -> str | None:
    """A decimal string without an exponent, ``None`` for an unknown amount."""
    return None if amount is None else format(amount, "f")
