"""The budget: what fits, when it is trimmed, and that it only grows in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.errors import PromptTooLong
from antiphon.core.ids import ConversationId, MessageId
from antiphon.core.messages import Message, MessageStatus, PromptRecord, Role, Snippet
from antiphon.orchestrator.draft import CountedEnd, counted_end
from antiphon.orchestrator.prompt import (
    MINIMUM_OUTPUT_TOKENS,
    Budget,
    Exchange,
    SummaryOffer,
    Window,
    exchanges_of,
    output_tokens,
    plan_window,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BUDGET = Budget(context_tokens=1000, fixed_tokens=50, question_tokens=20)


class ByCharacter:
    """One token for a character, and round figures for what the template writes."""

    pair = 10
    joint = 2

    def of_message(self, message: Message) -> int:
        return len(message.content)

    def of_snippets(self, record: PromptRecord | None) -> int:
        return 0 if record is None else sum(len(snippet.text) for snippet in record.snippets)


def message(number: int, role: Role, content: str, status: MessageStatus = MessageStatus.COMPLETE) -> Message:
    return Message(MessageId(f"msg_{number}"), ConversationId("conv_1"), None, role, content, status, NOW)


def exchanges(*tokens: int) -> tuple[Exchange, ...]:
    return tuple(Exchange((message(index, Role.USER, "?"),), count) for index, count in enumerate(tokens))


def offer(covers: int, tokens: int = 40) -> SummaryOffer:
    return SummaryOffer(covers, tokens, MessageId(f"msg_{covers - 1}"))


def test_turns_are_grouped_and_counted_as_they_will_be_rendered() -> None:
    answered = replace(
        message(1, Role.ASSISTANT, "ab"), prompt=PromptRecord("m", MessageId(""), snippets=(Snippet(MessageId(""), Role.USER, "xyz"),))
    )
    said = [
        message(0, Role.ASSISTANT, "an answer without a question"),
        message(1, Role.USER, "abc"),
        answered,
        message(3, Role.USER, "one"),
        message(4, Role.ASSISTANT, "half an", MessageStatus.FAILED),
        message(5, Role.USER, "four"),
        message(6, Role.ASSISTANT, " \n", MessageStatus.CANCELLED),
        message(7, Role.USER, "x"),
        message(8, Role.ASSISTANT, "stopped", MessageStatus.INTERRUPTED),
    ]
    found = exchanges_of(said, ByCharacter())
    assert [exchange.tokens for exchange in found] == [3 + 2 + 10 + 3, 3 + 2, 4 + 2, 1 + 7 + 10]
    assert [len(exchange.messages) for exchange in found] == [2, 1, 1, 2]


@given(told=st.lists(st.tuples(st.sampled_from([Role.USER, Role.ASSISTANT]), st.sampled_from(["", "a", "bcd"])), max_size=9))
def test_an_end_that_grew_is_the_end_counted_anew(told: list[tuple[Role, str]]) -> None:
    messages = [message(number, role, content) for number, (role, content) in enumerate(told)]
    known = CountedEnd()
    for first in (0, 1):  # and once more behind a trim, from what was known before it
        for length in range(first, len(messages) + 1):
            known = counted_end(messages[first:length], ByCharacter(), known)
            assert known == CountedEnd(tuple(messages[first:length]), exchanges_of(messages[first:length], ByCharacter()))


def test_all_is_read_until_the_window_is_full() -> None:
    assert plan_window(BUDGET, exchanges(300, 380), None, ()) == Window(0, None, 750, trimmed=False)
    full = plan_window(BUDGET, exchanges(300, 381), None, ())
    assert (full.start, full.trimmed) == (2, True)


def test_a_trim_leaves_sixty_per_cent_with_the_summary_that_reaches_furthest() -> None:
    turns = exchanges(*[100] * 8)
    window = plan_window(BUDGET, turns, None, (offer(2), offer(5)))
    assert window == Window(5, offer(5), 50 + 20 + 300 + 40, trimmed=True)
    assert window.tokens <= BUDGET.window * 0.6
    again = plan_window(BUDGET, turns, Window(0, offer(3), 0, trimmed=False), (offer(2),))
    assert again.summary == offer(3)


def test_a_trim_ends_where_a_summary_does_if_that_is_near() -> None:
    turns = exchanges(*[100] * 8)
    assert plan_window(BUDGET, turns, None, (offer(4),)).start == 4
    assert plan_window(BUDGET, turns, None, (offer(1),)).start == 5


def test_between_trims_nothing_but_the_end_changes() -> None:
    held = Window(0, offer(0), 0, trimmed=False)
    window = plan_window(BUDGET, exchanges(100, 100), held, (offer(1), offer(2)))
    assert window == Window(0, offer(0), 50 + 20 + 200 + 40, trimmed=False)


def test_what_cannot_fit_is_refused_with_the_numbers() -> None:
    most = BUDGET.limit - BUDGET.fixed_tokens
    assert plan_window(replace(BUDGET, question_tokens=most), exchanges(30, 30), None, ()).tokens == BUDGET.limit
    with pytest.raises(PromptTooLong) as refused:
        plan_window(replace(BUDGET, question_tokens=most + 1), exchanges(30, 30), None, ())
    assert (refused.value.prompt_tokens, refused.value.limit_tokens) == (BUDGET.limit + 1, 1000 - MINIMUM_OUTPUT_TOKENS)
    with pytest.raises(PromptTooLong):
        plan_window(replace(BUDGET, question_tokens=most, already_tokens=1), (), None, ())


def test_a_summary_never_keeps_a_question_out() -> None:
    window = plan_window(replace(BUDGET, question_tokens=900), exchanges(), Window(0, offer(0), 0, trimmed=False), ())
    assert (window.summary, window.tokens) == (None, 950)


@settings(max_examples=200, deadline=None)
@given(
    turns=st.lists(st.integers(1, 400), max_size=40),
    question=st.integers(0, 900),
    already=st.integers(0, 200),
    covers=st.lists(st.integers(0, 40), max_size=4),
)
def test_it_always_fits_and_drops_whole_turns_from_the_old_end(turns: list[int], question: int, already: int, covers: list[int]) -> None:
    budget = replace(BUDGET, question_tokens=question, already_tokens=already)
    offers = tuple(offer(min(at, len(turns))) for at in sorted(covers))
    made = exchanges(*turns)
    if budget.bare_tokens + already > budget.limit:
        with pytest.raises(PromptTooLong):
            plan_window(budget, made, None, offers)
        return
    window = plan_window(budget, made, None, offers)
    summary = 0 if window.summary is None else window.summary.tokens
    assert window.tokens == budget.bare_tokens + sum(turns[window.start :]) + summary
    assert window.tokens + already <= budget.limit
    assert window.trimmed or (window.start, window.summary) == (0, None)
    if window.trimmed and window.start < len(turns):
        assert window.tokens <= budget.window


def replay(lengths: Sequence[int], *, summarise: bool) -> list[Window]:
    """A conversation turn by turn, each going on from the window of the turn before."""
    windows: list[Window] = []
    first, held = 0, None
    for asked in range(len(lengths)):
        made = exchanges(*lengths[first:asked])
        offers = (offer(len(made) // 2),) if summarise else ()
        window = plan_window(BUDGET, made, held, offers)
        windows.append(window)
        first += window.start
        held = None if window.summary is None else Window(0, replace(window.summary, covers=0), 0, trimmed=False)
    return windows


@pytest.mark.parametrize("summarise", [False, True])
def test_a_long_conversation_is_trimmed_seldom(summarise: bool) -> None:
    windows = replay([25] * 300, summarise=summarise)
    trims = sum(window.trimmed for window in windows)
    assert 5 <= trims <= 300 / 8
    assert max(window.tokens for window in windows) <= BUDGET.window


def test_the_answer_gets_what_the_context_leaves() -> None:
    assert output_tokens(64, context_tokens=100, prompt_tokens=30) == 64
    assert output_tokens(64, context_tokens=100, prompt_tokens=80) == 20
    assert output_tokens(64, context_tokens=80, prompt_tokens=80) == 1
    assert output_tokens(64, context_tokens=0, prompt_tokens=80) == 64, "a context that is not known yet bounds nothing"
