"""Earlier words are found again when they are meant, and left alone when they are not."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.ids import ConversationId, MessageId
from antiphon.core.messages import Message, MessageStatus, Role, Snippet
from antiphon.engines.static_embedding import StaticEmbedder
from antiphon.orchestrator.recall import Recall
from antiphon.orchestrator.relevance import PASSAGE_CHARACTERS, PassageIndex, Room, choose, content_words, is_personal, passages_of
from benchmarks.context_cases import FILLERS, cases

CONVERSATION = ConversationId("conv_1")
EMBEDDER = StaticEmbedder()


def message(number: int, role: Role, content: str) -> Message:
    status, now = MessageStatus.COMPLETE, datetime(2026, 1, 1, tzinfo=UTC)
    return Message(MessageId(f"msg_{number}"), CONVERSATION, None, role, content, status, now)


def conversation(*told: str) -> list[Message]:
    """What was told, spread over small talk."""
    said: list[Message] = []
    for index, (question, answer) in enumerate(FILLERS):
        for text in told[index // 8 : index // 8 + 1] if index % 8 == 1 else ():
            said.append(message(len(said), Role.USER, text))
            said.append(message(len(said), Role.ASSISTANT, "Noted."))
        said.append(message(len(said), Role.USER, question))
        said.append(message(len(said), Role.ASSISTANT, answer))
    return said


def by_characters(snippet: Snippet) -> int:
    return len(snippet.text) // 4 + 8


def found(recall: Recall, said: list[Message], question: str, at_most: int = 600, in_view: Collection[MessageId] = ()) -> list[str]:
    recall.learn(CONVERSATION, said)
    ids = [one.id for one in said]
    return [one.text for one in recall.search(CONVERSATION, ids, in_view, question, Room(at_most, at_most, by_characters))]


@pytest.mark.parametrize("shared", [True, False])
def test_written_facts_are_found(shared: bool) -> None:
    asked = [case for case in cases() if case.shared_words is shared]
    hits = [case.fact in found(Recall(EMBEDDER), conversation(case.fact, *case.distractors), case.question) for case in asked]
    assert sum(hits) >= 0.9 * len(asked)


def test_the_cases_are_what_they_say() -> None:
    common = [len(set(content_words(case.fact)) & set(content_words(case.question))) for case in cases() if not case.shared_words]
    assert len(common) == 25
    assert max(common) <= 1


def test_words_alone_find_what_shares_words() -> None:
    asked = [case for case in cases() if case.shared_words]
    hits = [case.fact in found(Recall(None), conversation(case.fact, *case.distractors), case.question) for case in asked]
    assert sum(hits) >= 0.9 * len(asked)


@pytest.mark.parametrize("question", ["What is a monad?", "Write a limerick about rain.", "How tall is the Eiffel Tower?", "ok", "🙂", ""])
def test_nothing_comes_back_that_nobody_meant(question: str) -> None:
    assert found(Recall(EMBEDDER), conversation("My dog is called Pixel."), question) == []


def test_what_is_in_view_is_no_snippet_and_keeps_less_fitting_words_away() -> None:
    said = conversation("The boat of Emil is green.", "The boat of Emil is called Amaryllis.")
    told = [one.id for one in said if "boat" in one.content]
    question = "How is the boat of Emil called?"
    assert "The boat of Emil is called Amaryllis." in found(Recall(EMBEDDER), said, question)
    assert found(Recall(EMBEDDER), said, question, in_view=told[1:]) == []
    assert found(Recall(EMBEDDER), said, question, in_view=told[:1]) == ["The boat of Emil is called Amaryllis."]


def test_snippets_keep_to_their_budget_and_order() -> None:
    said = [message(number, Role.USER, f"My number {number} is {number * 111}.") for number in range(40)]
    texts = found(Recall(EMBEDDER), said, "Which numbers are my numbers?", at_most=100)
    assert 0 < sum(len(text) // 4 + 8 for text in texts) <= 100
    assert texts == sorted(texts, key=lambda text: int(text.split()[2]))


def test_what_is_plainly_meant_has_a_room_of_its_own() -> None:
    said = conversation("The project Heron has a budget of 48,000 euros.", "My native tongue is Hungarian.")
    recall, ids = Recall(EMBEDDER), [one.id for one in said]
    recall.learn(CONVERSATION, said)

    def snippets(question: str, usual: int) -> int:
        return len(recall.search(CONVERSATION, ids, (), question, Room(usual, 100, by_characters)))

    for question in ("How large is the budget of project Heron?", "Which is my native tongue?"):
        assert snippets(question, usual=-20) == 1
    weak = "How do bees see?"
    long = (
        "The project Heron has a budget. Translate that into Latin, compare syntax, grammar and metre, then sketch a poem on autumn leaves."
    )
    for question in (weak, long):
        assert snippets(question, usual=100) > 0
        assert snippets(question, usual=-20) == 0


def test_an_answer_comes_back_when_the_model_is_addressed() -> None:
    answer = "Paint the boat with two coats of linseed oil."
    said = [*conversation(), message(900, Role.USER, "My friend bought oil."), message(901, Role.ASSISTANT, answer)]
    assert found(Recall(EMBEDDER), said, "Which oil did you say is good for my boat?", at_most=20) == [answer]
    assert found(Recall(EMBEDDER), said, "Which oil is good for my boat?", at_most=20) == ["My friend bought oil."]


def test_asking_how_tells_nothing_of_the_asker() -> None:
    assert not is_personal("How do I tie a bowline?")
    assert is_personal("How do I invest my money?")
    assert not is_personal("Tell me a joke.")
    assert is_personal("Which joke did you tell me?")
    (asked,) = passages_of(MessageId("msg_0"), Role.USER, "How do I descale a kettle? Boil vinegar in it.")
    (told,) = passages_of(MessageId("msg_0"), Role.USER, "Is that so? I descale my kettle.")
    assert (asked.told, told.told) == (False, True)


def test_a_text_that_grew_is_read_again() -> None:
    recall = Recall(EMBEDDER)
    assert recall.missing(CONVERSATION, [MessageId("msg_0")]) == (MessageId("msg_0"),)
    assert found(recall, [message(0, Role.USER, "My dog is")], "What is my dog called?") == ["My dog is"]
    assert recall.missing(CONVERSATION, [MessageId("msg_0")]) == ()
    assert found(recall, [message(0, Role.USER, "My dog is called Pixel.")], "What is my dog called?") == ["My dog is called Pixel."]
    recall.check()
    recall.forget(CONVERSATION)
    assert recall.missing(CONVERSATION, [MessageId("msg_0")]) == (MessageId("msg_0"),)


def test_other_branches_are_not_searched_nor_counted() -> None:
    said = conversation("The boat of Emil is green.", "My boat is called Amaryllis.")
    elsewhere = [message(number + 1000, Role.USER, f"The boat of Emil is called Heron, says witness {number}.") for number in range(20)]
    alone, question = found(Recall(EMBEDDER), said, "How is my boat called?"), "How is my boat called?"
    recall = Recall(EMBEDDER)
    recall.learn(CONVERSATION, elsewhere)
    assert found(recall, said, question) == alone
    assert "My boat is called Amaryllis." in alone
    recall.check()


def test_only_the_conversations_used_last_are_kept() -> None:
    recall = Recall(None, conversations=2)
    for number in range(4):
        recall.learn(ConversationId(f"conv_{number}"), [message(0, Role.USER, "hello world")])
        recall.check()
    assert recall.missing(ConversationId("conv_3"), [MessageId("msg_0")]) == ()
    assert recall.missing(ConversationId("conv_0"), [MessageId("msg_0")]) != ()


@given(st.text(max_size=2000))
def test_passages_are_short(text: str) -> None:
    passages = passages_of(MessageId("msg_0"), Role.USER, text)
    assert all(len(passage.text) <= PASSAGE_CHARACTERS + 1 for passage in passages)
    assert all(passage.length == sum(passage.words.values()) > 0 for passage in passages)


@given(st.text(max_size=60), st.lists(st.text(max_size=60), max_size=6))
def test_any_text_may_be_asked_of_any(question: str, said: list[str]) -> None:
    path = [MessageId(f"msg_{number}") for number in range(len(said))]
    index = PassageIndex()
    for message_id, text in zip(path, said, strict=True):
        index.add(message_id, passages_of(message_id, Role.USER, text))
    index.check()
    chosen = choose(question, index.on(path), dict.fromkeys(range(len(index.passages)), 0.3), (), Room(50, 50, by_characters))
    assert sum(map(by_characters, chosen)) <= 50
