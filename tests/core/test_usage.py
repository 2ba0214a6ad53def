from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from antiphon.core.generation import Usage
from antiphon.core.ids import ConversationId, GenerationId, KeyId, TenantId, UserId
from antiphon.core.usage import Purpose, UnreadableRecord, UsageRecord, money, usage_json, usage_record

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


def record() -> UsageRecord:
    return UsageRecord(
        GenerationId("gen_1"),
        TenantId("tenant_1"),
        UserId("user_1"),
        KeyId("key_1"),
        None,
        "m",
        "large",
        "small",
        "r1",
        "free",
        Usage(5, 2, 7, 1, 2, 3, 4, cost=Decimal("0.0000001")),
        None,
        True,
        datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC),
    )


def test_a_record_is_read_as_it_was_written() -> None:
    assert usage_record(usage_json(record())) == record()
    for purpose in Purpose:
        titled = replace(record(), purpose=purpose)
        assert usage_record(usage_json(titled)) == titled
    unpriced = replace(record(), usage=Usage(), key_id=None, finish_reason="stop", estimated=False)
    assert usage_record(usage_json(unpriced)) == unpriced
    assert usage_record(usage_json(unpriced).replace("{", '{"later":[1],', 1)) == unpriced


@pytest.mark.parametrize(
    "change",
    [
        ("{", ""),
        ('"prompt_tokens":5', '"prompt_tokens":-5'),
        ('"prompt_tokens":5', '"prompt_tokens":5.5'),
        ('"prompt_tokens":5', '"prompt_tokens":true'),
        ('"prompt_tokens":5,', ""),
        ('"cost":"0.0000001"', '"cost":"a lot"'),
        ('"cost":"0.0000001"', '"cost":"NaN"'),
        ('"cost":"0.0000001"', '"cost":"1e999"'),
        ('"cost":"0.0000001"', '"cost":"-1"'),
        ('"prompt_tokens":5', '"prompt_tokens":9007199254740991'),
        ("2026-01-02T03:04:05.006Z", "0001-01-01T00:00:00+14:00"),
        ("2026-01-02T03:04:05.006Z", "9999-12-31T23:59:59-14:00"),
        ("03:04:05.006Z", "03:04:05.006"),
        ('"2026-01-02T03:04:05.006Z"', "7"),
        ('"tenant_id":"tenant_1"', '"tenant_id":null'),
    ],
)
def test_what_is_no_record_is_told_from_one(change: tuple[str, str]) -> None:
    before, after = change
    assert before in usage_json(record())
    with pytest.raises(UnreadableRecord):
        usage_record(usage_json(record()).replace(before, after, 1))
    for text in ("", "[]", "null", "[" * 5000):
        with pytest.raises(UnreadableRecord):
            usage_record(text)


def test_an_unknown_price_is_not_free() -> None:
    assert money(None) is None
    assert money(Decimal(0)) == "0"
