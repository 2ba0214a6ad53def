from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

from antiphon.core.generation import Usage
from antiphon.core.ids import ConversationId, GenerationId, TenantId, UserId
from antiphon.core.usage import UsageRecord, money, usage_json

FIELDS = [
    "generation_id", "tenant_id", "user_id", "key_id", "conversation_id", "model", "requested_model", "pool", "release", "plan",
    "prompt_tokens", "cached_tokens", "output_tokens", "queued_ms", "prefill_ms", "decode_ms", "accelerator_ms", "finish_reason",
    "cost", "estimated", "finished_at",
]  # fmt: skip


def test_the_record_has_the_contracts_fields() -> None:
    record = UsageRecord(
        GenerationId("gen_1"),
        TenantId("tenant_1"),
        UserId("user_1"),
        None,
        ConversationId("conv_1"),
        "m",
        "m",
        "small",
        None,
        "free",
        Usage(prompt_tokens=5, cached_tokens=2, output_tokens=7, cost=Decimal("0.0000001")),
        "stop",
        False,
        datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC),
    )
    read = json.loads(usage_json(record))
    assert list(read) == FIELDS
    assert (read["cost"], read["finished_at"], read["key_id"]) == ("0.0000001", "2026-01-02T03:04:05.006Z", None)


def test_an_unknown_price_is_not_free() -> None:
    assert money(None) is None
    assert money(Decimal(0)) == "0"
