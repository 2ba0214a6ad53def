"""Summaries made of sentences, and which of a model's are taken."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.ids import ConversationId, MessageId
from antiphon.core.messages import Message, MessageStatus, Role
from antiphon.orchestrator.summary import accepted_summary, extracted, summary_request

ROLES = (Role.USER, Role.ASSISTANT)


def said(*texts: str) -> list[Message]:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return [
        Message(MessageId(f"msg_{index}"), ConversationId("c"), None, ROLES[index % 2], text, MessageStatus.COMPLETE, now)
        for index, text in enumerate(texts)
    ]


TALK = said(
    "Hello. My boat is called Amaryllis, it has 3 masts. Nice day.",
    "That is a lovely name for a boat. How can I help?",
    "We sail to Lisbon on 14 March with Emil.",
    "Good. Take water along.",
)


def test_names_and_numbers_are_kept_in_order() -> None:
    text = extracted("", TALK, at_most=110, count=len)
    assert text.splitlines() == ["User: My boat is called Amaryllis, it has 3 masts.", "User: We sail to Lisbon on 14 March with Emil."]


def test_the_summary_before_goes_into_the_next() -> None:
    first = extracted("", TALK, at_most=60, count=len)
    assert first in extracted(first, said("thanks", "you are welcome"), at_most=100, count=len)


@given(st.lists(st.text(max_size=80), max_size=8), st.integers(0, 200), st.text(max_size=40))
def test_it_keeps_to_its_length_and_to_what_was_said(texts: list[str], at_most: int, earlier: str) -> None:
    text = extracted(earlier, said(*texts), at_most=at_most, count=len)
    assert len(text) <= at_most
    everything = " ".join(" ".join(one.split()) for one in (*texts, earlier))
    for line in text.splitlines():
        words = line.removeprefix("User: ").removeprefix("Assistant: ").split()
        assert all(word in everything for word in words)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "  \n",
        "...",
        "User: We sail to Lisbon on 14 March with Emil.".removeprefix("User: "),
        "Hello. My boat is called Amaryllis, it has 3 masts.",
    ],
)
def test_an_empty_or_echoing_model_is_not_taken(bad: str) -> None:
    assert accepted_summary(bad, TALK) is None


def test_a_summary_is_taken() -> None:
    assert accepted_summary("The user's boat\nAmaryllis sails to Lisbon. ", TALK) == "The user's boat Amaryllis sails to Lisbon."


def test_what_is_asked_is_cut_to_size() -> None:
    asked = summary_request("before", said("x" * 900, "y" * 900), characters=400)
    assert len(asked[1].content) < 500
