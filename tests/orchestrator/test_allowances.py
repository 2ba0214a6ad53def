"""What a turn may use: refused before anything is written, held while it is written, charged when it has ended."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from antiphon.core.allowance import Customer, Serving, limits_of
from antiphon.core.clock import ManualClock, from_ms
from antiphon.core.errors import ConcurrencyLimited, Conflict, Limited, QuotaExhausted, RateLimited, Refused
from antiphon.core.generation import GenerationStatus, TurnParams, Usage
from antiphon.core.ids import GenerationId, KeyId, TenantId, UserId
from antiphon.core.limits import Budget, Cap, Concurrency, Measure, Rate, Standing, TenantTerms
from antiphon.core.messages import Role
from antiphon.core.money import Price, PriceList
from antiphon.core.plans import MessageCap, Plan
from antiphon.engines.base import PromptMessage
from antiphon.inference.gateway import Gateway
from antiphon.orchestrator.allowances import Allowances, Ended
from antiphon.orchestrator.completion import CompletionRequest
from antiphon.stores.generations.base import Accepted
from antiphon.stores.limits.memory import MemoryLimiter
from tests.orchestrator.stage import PLAN, SHORT, Failing, Stage

NOW = from_ms(1_790_000_000_000)


def stage_with(gateway: Gateway, plan: Plan, **options: Any) -> Stage:
    return Stage(gateway, ports={"plans": {"free": plan}}, **options)


async def standing(stage: Stage, kind: type, measure: Measure | None = None) -> Standing:
    customer = Customer.of(stage.principal, stage.ports.plan("free"))
    found = await stage.ports.allowances.standings(customer, (Serving("quick", "quick"), Serving("slow", "slow")))
    return next(one for one in found if isinstance(one.limit, kind) and getattr(one.limit, "measure", None) is measure)


async def used(stage: Stage) -> tuple[int, int, int]:
    """Tokens, requests, running."""
    tokens, requests = await standing(stage, Rate, Measure.TOKENS), await standing(stage, Rate, Measure.REQUESTS)
    return tokens.used, requests.used, (await standing(stage, Concurrency)).used


SLOW_BACK = {"tokens_per_minute": 600, "requests_per_minute": 60}
"""Little comes back while a test runs."""


async def test_a_turn_is_held_at_its_most_and_charged_what_it_used(gateway: Gateway) -> None:
    stage = stage_with(gateway, replace(PLAN, tokens_per_minute=500))
    accepted = await stage.send(await stage.conversation(), params=TurnParams(max_tokens=300))
    prompt_tokens = (await standing(stage, Rate, Measure.TOKENS)).used - 300
    assert prompt_tokens > 0
    assert accepted.standings[0].used == prompt_tokens + 300
    await stage.runner.cancel(stage.owner, accepted.generation_id)
    generation = await stage.ended(accepted.generation_id)
    tokens, _, running = await used(stage)
    assert abs(tokens - generation.usage.prompt_tokens - generation.usage.output_tokens) <= 10  # some has come back meanwhile
    assert tokens < 300
    assert running == 0
    await stage.close()


async def test_a_refusal_says_what_remains_and_when_it_returns_and_leaves_nothing(gateway: Gateway) -> None:
    stage = stage_with(gateway, replace(PLAN, tokens_per_minute=400), concurrency=0)
    conversation = await stage.conversation()
    await stage.send(conversation, params=TurnParams(max_tokens=200))
    before = len(stage.state.messages), await used(stage)
    with pytest.raises(RateLimited) as told:
        await stage.send(await stage.conversation(), params=TurnParams(max_tokens=200))
    assert "400 tokens per minute" in told.value.detail
    assert told.value.retry_after_ms is not None
    assert 1 <= told.value.retry_after_ms <= 60_000
    assert len(stage.state.messages) == before[0]
    after = await used(stage)
    assert after[0] <= before[1][0]
    assert after[2] == before[1][2]
    assert [one.limit for one in told.value.standings][:1] == [Rate("user:user_1", Measure.TOKENS, 400)]


async def test_of_twenty_parallel_sends_of_nine_hundred_tokens_one_runs(gateway: Gateway) -> None:
    plan = replace(PLAN, tokens_per_minute=1000, max_output_tokens=900)
    stage = stage_with(gateway, plan, concurrency=0)
    conversations = [await stage.conversation() for _ in range(20)]
    sends = (stage.send(conversation, params=TurnParams(max_tokens=800)) for conversation in conversations)
    answers = await asyncio.gather(*sends, return_exceptions=True)
    assert sum(isinstance(answer, Accepted) for answer in answers) == 1
    refused = [answer for answer in answers if isinstance(answer, RateLimited)]
    assert len(refused) == 19
    assert all(answer.retry_after_ms and 30_000 < answer.retry_after_ms <= 60_000 for answer in refused)


async def test_requests_concurrency_and_caps_refuse_each_with_its_own_code(gateway: Gateway) -> None:
    for change, error in (
        ({"requests_per_minute": 2}, RateLimited),
        ({"concurrency": 2}, ConcurrencyLimited),
        ({"caps": (MessageCap("quick", 2, 3600),)}, QuotaExhausted),
    ):
        stage = stage_with(gateway, replace(PLAN, **change), concurrency=0)
        for _ in range(2):
            await stage.send(await stage.conversation())
        with pytest.raises(error):
            await stage.send(await stage.conversation())
        assert len(stage.state.generations) == 2
    assert isinstance(await standing(stage, Cap), Standing)
    await stage.send(await stage.conversation(), model="slow")  # a cap is for one model


async def test_a_replayed_key_spends_nothing_and_of_fifty_equal_sends_one_spends(gateway: Gateway) -> None:
    stage = stage_with(gateway, replace(PLAN, concurrency=1, requests_per_minute=1), concurrency=0)
    conversation = await stage.conversation()
    answers = await asyncio.gather(*(stage.send(conversation, key="k") for _ in range(50)))
    assert len({answer.generation_id for answer in answers}) == 1
    assert (await used(stage))[1:] == (1, 1)
    with pytest.raises(Limited):
        await stage.send(conversation, parent=None, key="other")
    assert stage.desk._keys._locks == {}


@pytest.mark.parametrize("after", [False, True])
async def test_a_turn_that_is_not_accepted_gives_back_what_was_held(gateway: Gateway, after: bool) -> None:
    stage = Stage(gateway, concurrency=0)
    failing = Failing(stage.generations, 1, Conflict(), after=after)
    broken = Stage(gateway, concurrency=0, state=stage.state, ports={"generations": failing})
    with pytest.raises(Refused):
        await broken.send(await stage.conversation())
    assert await used(broken) == (0, 0, 0)


async def test_a_caller_who_goes_while_the_turn_is_written_leaves_nothing_held_twice(gateway: Gateway) -> None:
    stage = Stage(gateway, concurrency=0)
    sending = asyncio.create_task(stage.send(await stage.conversation()))
    for _ in range(40):
        await asyncio.sleep(0)
        sending.cancel()
    await asyncio.wait((sending,))
    await asyncio.sleep(0.05)
    assert (await used(stage))[2] == len(stage.state.generations)


async def test_a_turn_that_fails_without_a_token_counts_for_nothing(gateway: Gateway) -> None:
    plan = replace(PLAN, caps=(MessageCap("quick", 2, 3600),))
    stage = stage_with(gateway, plan, concurrency=0)
    accepted = await stage.send(await stage.conversation())
    generation = await stage.generation(accepted.generation_id)
    customer, serving = Customer.of(stage.principal, plan), Serving("quick", "quick")
    failed = Ended(generation.id, GenerationStatus.FAILED, Usage(prompt_tokens=50), NOW)
    await stage.ports.allowances.settle(customer, serving, failed)
    assert await used(stage) == (0, 0, 0)
    assert (await standing(stage, Cap)).used == 0


async def test_a_downgraded_turn_gives_the_cap_of_the_larger_model_back(gateway: Gateway) -> None:
    plan = replace(PLAN, caps=(MessageCap("quick", 2, 3600), MessageCap("slow", 2, 3600)))
    stage = stage_with(gateway, plan, concurrency=0)
    accepted = await stage.send(await stage.conversation(), model="slow")
    ended = Ended(accepted.generation_id, GenerationStatus.COMPLETE, Usage(10, 0, 5), NOW)
    await stage.ports.allowances.settle(Customer.of(stage.principal, plan), Serving("quick", "quick"), ended)
    found = await stage.ports.allowances.standings(Customer.of(stage.principal, plan), (Serving("quick", "x"), Serving("slow", "y")))
    assert {one.limit.model: one.used for one in found if isinstance(one.limit, Cap)} == {"quick": 1, "slow": 0}


async def test_a_completion_is_held_charged_and_recorded(gateway: Gateway) -> None:
    stage = stage_with(gateway, replace(PLAN, **SLOW_BACK))
    request = CompletionRequest((PromptMessage(Role.USER, "hello"),), "quick", SHORT)
    async with await stage.completions.open(stage.principal, request) as completion:
        assert (await used(stage))[1:] == (1, 1)
        async for _ in completion:
            pass
    assert (await used(stage))[2] == 0
    assert [row.dedup_key for row in stage.state.outbox] == [completion.generation_id]
    assert f'"output_tokens":{completion.usage.output_tokens}' in stage.state.outbox[0].payload
    assert '"estimated":false' in stage.state.outbox[0].payload


async def test_a_completion_whose_caller_goes_is_charged_what_the_engine_says(gateway: Gateway) -> None:
    stage = Stage(gateway)
    request = CompletionRequest((PromptMessage(Role.USER, "hello"),), "slow", TurnParams(max_tokens=400))
    reading = asyncio.Event()

    async def read() -> None:
        async with await stage.completions.open(stage.principal, request) as completion:
            async for _ in completion:
                reading.set()

    reader = asyncio.create_task(read())
    await reading.wait()
    reader.cancel()
    await asyncio.wait((reader,))
    assert (await used(stage))[2] == 0
    assert '"finish_reason":"cancelled"' in stage.state.outbox[0].payload
    assert '"estimated":false' in stage.state.outbox[0].payload


async def test_a_completion_is_refused_as_a_turn_is(gateway: Gateway) -> None:
    stage = stage_with(gateway, replace(PLAN, requests_per_minute=1))
    request = CompletionRequest((PromptMessage(Role.USER, "hello"),), "quick", SHORT)
    async with await stage.completions.open(stage.principal, request) as completion:
        async for _ in completion:
            pass
    with pytest.raises(RateLimited):
        await stage.completions.open(stage.principal, request)


def test_limits_are_the_users_the_keys_and_the_tenants() -> None:
    plan = Plan("free", caps=(MessageCap("large", 3, 60),), key_tokens_per_minute=500, tokens_per_minute=1000, requests_per_minute=8)
    customer = Customer(TenantId("tenant_1"), UserId("user_1"), KeyId("key_1"), plan)
    terms = TenantTerms(tokens_per_minute=9000, monthly_budget=Decimal("1.5"))
    limits = limits_of(customer, Serving("large", "llama"), terms, NOW)
    assert limits[:5] == (
        Rate("user:user_1", Measure.TOKENS, 1000),
        Rate("user:user_1", Measure.REQUESTS, 8),
        Concurrency("user:user_1", 2),
        Cap("user:user_1", "large", 3, 60_000),
        Rate("key:key_1", Measure.TOKENS, 500),
    )
    assert limits[5] == Rate("tenant", Measure.TOKENS, 9000)
    assert isinstance(limits[6], Budget)
    assert (limits[6].period, limits[6].most_nanos) == ("2026-09", 1_500_000_000)
    throttled = limits_of(customer, Serving("small", "x"), replace(terms, throttle=4), NOW)
    assert throttled[:3] == (
        Rate("user:user_1", Measure.TOKENS, 250),
        Rate("user:user_1", Measure.REQUESTS, 2),
        Concurrency("user:user_1", 1),
    )


async def test_what_is_likely_is_learned_and_the_most_is_a_policy(gateway: Gateway) -> None:
    stage = Stage(gateway, concurrency=0)
    customer, serving = Customer.of(stage.principal, PLAN), Serving("quick", "quick")
    for eager in (False, True):
        allowances = Allowances(MemoryLimiter(ManualClock()), stage.clock, expects_most=eager)
        for number in range(30):
            ended = Ended(GenerationId(f"gen_{number}"), GenerationStatus.COMPLETE, Usage(0, 0, 40), NOW)
            await allowances.settle(customer, serving, ended)
        before = (await allowances.standings(customer, (serving,)))[0].used
        held = await allowances.reserve(customer, serving, GenerationId("gen_x"), prompt_tokens=10, most_output_tokens=512)
        assert held[0].used - before == (522 if eager else 50)


async def test_money_is_held_and_charged_against_the_tenants_budget(gateway: Gateway) -> None:
    stage = Stage(gateway, concurrency=0)
    prices = PriceList({"quick": (Price(from_ms(0), Decimal(100), Decimal(10), Decimal(400)),)})
    terms = TenantTerms(monthly_budget=Decimal("0.01"))
    allowances = Allowances(MemoryLimiter(stage.clock), stage.clock, prices, lambda tenant_id, user_id: terms)
    customer, serving = Customer.of(stage.principal, PLAN), Serving("quick", "quick")
    await allowances.reserve(customer, serving, GenerationId("gen_a"), prompt_tokens=20, most_output_tokens=15)  # 0.002 + 0.006
    with pytest.raises(QuotaExhausted, match="budget of 0.01"):
        await allowances.reserve(customer, serving, GenerationId("gen_b"), prompt_tokens=10, most_output_tokens=5)
    usage = Usage(20, 10, 5)
    ended = Ended(GenerationId("gen_a"), GenerationStatus.COMPLETE, usage, stage.clock.now())
    cost = allowances.cost(serving, ended)
    assert cost == Decimal("0.0031")
    await allowances.settle(customer, serving, replace(ended, usage=replace(usage, cost=cost)))
    await allowances.reserve(customer, serving, GenerationId("gen_b"), prompt_tokens=10, most_output_tokens=5)
    assert allowances.cost(serving, replace(ended, status=GenerationStatus.FAILED, usage=Usage(20))) == 0
    assert allowances.cost(Serving("other", "other"), ended) is None
