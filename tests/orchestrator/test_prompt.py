from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.errors import PromptTooLong
from antiphon.core.ids import ConversationId, MessageId
from antiphon.core.messages import Message, MessageStatus, Role
from antiphon.engines.base import PromptMessage
from antiphon.engines.reference import ReferenceTokenizer
from antiphon.orchestrator.prompt import MINIMUM_OUTPUT_TOKENS, SYSTEM_PROMPT, output_tokens, plan_prompt

TOKENIZER = ReferenceTokenizer()
CONTEXT = 400
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def message(number: int, role: Role, content: str, status: MessageStatus = MessageStatus.COMPLETE, counted: bool = True) -> Message:
    tokens = len(TOKENIZER.encode(content)) if counted else None
    return Message(MessageId(f"msg_{number}"), ConversationId("conv_1"), None, role, content, status, NOW, content_tokens=tokens)


def branch(*lengths: int, counted: bool = True) -> list[Message]:
    """Alternating question and answer, of so many tokens each."""
    roles = (Role.USER, Role.ASSISTANT)
    return [message(n, roles[n % 2], chr(65 + n % 26) * length, counted=counted) for n, length in enumerate(lengths)]


def contents(plan_messages: tuple[PromptMessage, ...]) -> list[str]:
    return [said.content for said in plan_messages]


def test_system_first_then_turns_then_the_new_message() -> None:
    plan = plan_prompt(TOKENIZER, branch(3, 4), "new", context_tokens=CONTEXT)
    assert contents(plan.messages) == [SYSTEM_PROMPT, "AAA", "BBBB", "new"]
    assert [said.role for said in plan.messages] == [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.USER]
    assert plan.tokens == len(TOKENIZER.prompt(plan.messages))
    assert plan.omitted == ()


def test_failed_and_empty_answers_leave_their_question_to_the_next() -> None:
    earlier = [
        message(0, Role.USER, "one"),
        message(1, Role.ASSISTANT, "half an", MessageStatus.FAILED),
        message(2, Role.USER, "two"),
        message(3, Role.ASSISTANT, " \n", MessageStatus.CANCELLED),
        message(4, Role.USER, "three"),
        message(5, Role.ASSISTANT, "stopped", MessageStatus.INTERRUPTED),
    ]
    plan = plan_prompt(TOKENIZER, earlier, "four", context_tokens=CONTEXT)
    assert contents(plan.messages)[1:] == ["one\n\ntwo\n\nthree", "stopped", "four"]


def test_an_answer_without_a_question_does_not_come_first() -> None:
    plan = plan_prompt(TOKENIZER, [message(0, Role.ASSISTANT, "welcome"), message(1, Role.SYSTEM, "obey")], "hi", context_tokens=CONTEXT)
    assert contents(plan.messages) == [SYSTEM_PROMPT, "hi"]


def test_the_limit_is_exact() -> None:
    empty = plan_prompt(TOKENIZER, [], "", context_tokens=CONTEXT).tokens
    most = CONTEXT - MINIMUM_OUTPUT_TOKENS - empty
    assert plan_prompt(TOKENIZER, branch(30, 30), "#" * most, context_tokens=CONTEXT).tokens == CONTEXT - MINIMUM_OUTPUT_TOKENS
    with pytest.raises(PromptTooLong) as refused:
        plan_prompt(TOKENIZER, branch(30, 30), "#" * (most + 1), context_tokens=CONTEXT)
    assert refused.value.prompt_tokens == refused.value.limit_tokens + 1
    with pytest.raises(PromptTooLong):
        plan_prompt(TOKENIZER, [], "#" * most, context_tokens=CONTEXT, already_tokens=1)


def test_between_two_trims_the_prompt_only_grows() -> None:
    earlier: list[Message] = []
    before: list[str] = []
    trims = 0
    for number in range(40):
        plan = plan_prompt(TOKENIZER, earlier, f"q{number}", context_tokens=CONTEXT)
        now = contents(plan.messages)
        assert plan.tokens == len(TOKENIZER.prompt(plan.messages)) <= CONTEXT * 3 // 4
        assert now[-1] == f"q{number}"
        if now[: len(before)] != before:
            trims += 1
            assert plan.tokens <= CONTEXT * 3 // 4 * 0.6
        before = now
        earlier += [message(2 * number, Role.USER, f"q{number}"), message(2 * number + 1, Role.ASSISTANT, "a" * 20)]
    assert 2 <= trims <= 12


@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.integers(1, 120), max_size=30), asked=st.integers(0, 290), already=st.integers(0, 60))
def test_it_always_fits_and_keeps_whole_turns(lengths: list[int], asked: int, already: int) -> None:
    earlier = branch(*lengths[: len(lengths) // 2 * 2])
    plan = plan_prompt(TOKENIZER, earlier, "#" * asked, context_tokens=CONTEXT, already_tokens=already)
    uncounted = plan_prompt(
        TOKENIZER, branch(*lengths[: len(lengths) // 2 * 2], counted=False), "#" * asked, context_tokens=CONTEXT, already_tokens=already
    )
    assert plan == uncounted
    assert plan.tokens == len(TOKENIZER.prompt(plan.messages))
    assert plan.tokens + already + MINIMUM_OUTPUT_TOKENS <= CONTEXT
    assert len(plan.messages) % 2 == 0
    assert plan.omitted == tuple(said.id for said in earlier[: len(plan.omitted)])
    assert len(plan.omitted) + len(plan.messages) == len(earlier) + 2


def test_a_long_conversation_is_planned_quickly() -> None:
    earlier = branch(*([30, 60] * 1000))
    plan = plan_prompt(TOKENIZER, earlier, "next", context_tokens=8192)
    assert 8192 * 0.75 * 0.5 < plan.tokens <= 8192 * 0.75


def test_the_answer_gets_what_the_context_leaves() -> None:
    assert output_tokens(64, context_tokens=100, prompt_tokens=30) == 64
    assert output_tokens(64, context_tokens=100, prompt_tokens=80) == 20
    assert output_tokens(64, context_tokens=0, prompt_tokens=80) == 1
