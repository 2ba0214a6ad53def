"""Answers to starter prompts: given again only where everybody would be answered alike."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from antiphon.core.events import Done
from antiphon.core.generation import FinishReason, TurnParams
from antiphon.core.prompts import Preamble
from antiphon.engines.base import Finished, Tokens
from antiphon.inference.gateway import Gateway
from antiphon.orchestrator.response_cache import MOST_ANSWERS, CachedAnswer, ResponseCache, StarterKey
from antiphon.stores.generations.base import Accepted
from tests.orchestrator.stage import Stage, check_log, shown_text

STARTER = "How does a rainbow form?"
PLAIN = TurnParams()
ANSWER = CachedAnswer((1, 2), "so", "", FinishReason.STOP, 9)


@pytest.fixture
async def starting(gateway: Gateway) -> AsyncIterator[Stage]:
    stage = Stage(gateway, ports={"response_cache": ResponseCache([STARTER])})
    await stage.runner.start()
    try:
        yield stage
    finally:
        await stage.close()


def cached_tokens(stage: Stage, accepted: Accepted) -> tuple[int, int, int]:
    """Of the turn's usage record: prompt, cached, and milliseconds of the accelerator."""
    records = [json.loads(row.payload) for row in stage.state.outbox]
    record = next(one for one in records if one["generation_id"] == accepted.generation_id)
    return record["prompt_tokens"], record["cached_tokens"], record["accelerator_ms"] + record["prefill_ms"] + record["decode_ms"]


async def asked(stage: Stage, content: str | None = STARTER, *, params: TurnParams = PLAIN) -> tuple[Accepted, str, Done]:
    """A new conversation's first message; its answer's text, and its end."""
    accepted = await stage.send(await stage.conversation(), content, params=params)
    entries = await stage.entries(accepted.generation_id)
    done = check_log(entries)
    assert isinstance(done, Done)
    return accepted, shown_text(entries), done


async def test_a_starter_is_answered_again_as_it_was_and_costs_no_accelerator(starting: Stage) -> None:
    first, text, done = await asked(starting)
    again, text_again, done_again = await asked(starting)

    assert text_again == text
    assert (done_again.finish_reason, done_again.output_tokens) == (done.finish_reason, done.output_tokens)
    prompt, cached, _ = cached_tokens(starting, first)
    assert cached < prompt
    assert cached_tokens(starting, again) == (prompt, prompt, 0)
    message = await starting.message(again.message_id)
    assert (message.content, message.model, message.content_tokens) == (text, "reference-quick", await tokens_of(starting, first))
    assert starting.telemetry.counts["antiphon_cached_answers_total", "quick"] == 1


async def tokens_of(stage: Stage, accepted: Accepted) -> int | None:
    return (await stage.message(accepted.message_id)).content_tokens


async def test_what_follows_a_cached_answer_is_an_ordinary_turn(starting: Stage) -> None:
    await asked(starting)
    again, _, _ = await asked(starting)
    conversation_id = (await starting.message(again.message_id)).conversation_id
    next_turn = await starting.send(conversation_id, STARTER, params=TurnParams())
    await starting.ended(next_turn.generation_id)
    another = await starting.send(conversation_id, None, parent=again.user_message_id, params=TurnParams())
    await starting.ended(another.generation_id)
    for computed in (next_turn, another):
        prompt, cached, _ = cached_tokens(starting, computed)
        assert cached < prompt


@pytest.mark.parametrize("content", [STARTER + " ", STARTER.lower(), "tell me something else"])
async def test_other_texts_are_computed(starting: Stage, content: str) -> None:
    for _ in range(2):
        accepted, _, _ = await asked(starting, content)
        prompt, cached, _ = cached_tokens(starting, accepted)
        assert cached < prompt


async def test_parameters_and_instructions_are_somebodys_own(starting: Stage) -> None:
    await asked(starting)
    with_params, _, _ = await asked(starting, params=TurnParams(max_tokens=64))
    await starting.ports.personal.put_instructions(starting.owner, "Answer like a pirate.")
    with_instructions, _, _ = await asked(starting)
    for computed in (with_params, with_instructions):
        prompt, cached, _ = cached_tokens(starting, computed)
        assert cached < prompt


async def test_without_configured_starters_nothing_is_kept(stage: Stage) -> None:
    await asked(stage)
    accepted, _, _ = await asked(stage)
    prompt, cached, _ = cached_tokens(stage, accepted)
    assert cached < prompt
    assert len(stage.ports.response_cache) == 0


async def test_a_cached_answer_waits_for_nobody(starting: Stage) -> None:
    await asked(starting)
    conversation_id = await starting.conversation()
    await starting.send(conversation_id, STARTER, params=TurnParams())
    assert starting.ports.gateway._reserved == {}


async def test_a_stopped_answer_is_not_kept(gateway: Gateway) -> None:
    stage = Stage(gateway, ports={"response_cache": ResponseCache([STARTER])})
    await stage.runner.start()
    try:
        accepted = await stage.send(await stage.conversation(), STARTER, model="slow", params=TurnParams())
        await stage.until_text(accepted.generation_id)
        await stage.runner.cancel(stage.owner, accepted.generation_id)
        assert len(stage.ports.response_cache) == 0
    finally:
        await stage.close()


def test_releases_pools_and_lengths_do_not_share_an_answer() -> None:
    cache, key = ResponseCache([STARTER]), StarterKey("small", "r1", STARTER, 64)
    cache.keep(key, ANSWER)

    def answer(key: StarterKey, params: TurnParams = PLAIN, preamble: Preamble | None = None) -> CachedAnswer | None:
        starter = cache.starter(key, params, preamble)
        return None if starter is None else starter.answer

    assert answer(key) == ANSWER
    for other in (replace(key, release="r2"), replace(key, pool="large"), replace(key, output_tokens=65), replace(key, release="")):
        assert answer(other) is None
    assert answer(key, TurnParams(seed=1)) is None
    assert answer(key, preamble=Preamble("d", "be brief", "")) is None


def test_an_attempt_that_broke_off_is_no_part_of_the_answer() -> None:
    cache, key = ResponseCache([STARTER]), StarterKey("small", "r1", STARTER, 64)
    starter = cache.starter(key, TurnParams(), None)
    assert starter is not None
    starter.began()
    starter.took(Tokens((7,), "lost "))
    starter.began()
    starter.took(Tokens((1, 2), "so"))
    finished = Finished(FinishReason.STOP, replace(ANSWER.finished().usage, output_tokens=2))
    starter.ended(finished, 9)
    kept = cache.starter(key, TurnParams(), None)
    assert kept is not None
    assert kept.answer == ANSWER


class Cache(RuleBasedStateMachine):
    """Any turns: the cache stays bounded, and gives back what it was given first."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = ResponseCache([STARTER, "b"])
        self.model: dict[StarterKey, CachedAnswer] = {}

    @rule(
        prompt=st.sampled_from([STARTER, "b", "c"]),
        release=st.sampled_from(["", "r1", "r2"]),
        most=st.integers(2, MOST_ANSWERS),
        reason=st.sampled_from(list(FinishReason)),
        ids=st.lists(st.integers(0, 9), max_size=2),
    )
    def turn(self, prompt: str, release: str, most: int, reason: FinishReason, ids: list[int]) -> None:
        starter = self.cache.starter(key := StarterKey("small", release, prompt, most), TurnParams(), None)
        assert (starter is None) == (prompt == "c" or not release)
        if starter is None:
            return
        if starter.answer is not None:
            assert starter.answer == self.model[key]
            return
        starter.took(Tokens(tuple(ids), "x" * len(ids)))
        answer = CachedAnswer(tuple(ids), "x" * len(ids), "", reason, 9)
        starter.ended(Finished(reason, answer.finished().usage), 9)
        if ids and reason in {FinishReason.STOP, FinishReason.LENGTH}:
            self.model[key] = answer

    @invariant()
    def agrees(self) -> None:
        self.cache.check()


TestCache = Cache.TestCase
TestCache.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
