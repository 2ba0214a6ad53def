"""The parts of a prompt: their order, their ids, and that no text in any of them forges a turn."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.ids import ConversationId, MemoryId, MessageId
from antiphon.core.messages import Message, MessageStatus, PromptRecord, Role, Snippet
from antiphon.core.prompts import Memory, Preamble
from antiphon.engines.base import Tokenizer
from antiphon.engines.reference_tokenizer import ReferenceTokenizer
from antiphon.orchestrator.encoded import EncodedTexts
from antiphon.orchestrator.parts import PartKind, Question, RenderedPrompt, Stem, compose, grows_into, opening_parts, render, stem_of
from antiphon.orchestrator.preamble import preamble_of
from antiphon.orchestrator.prompt import SYSTEM_PROMPT
from antiphon.orchestrator.summary import summary_request
from antiphon.stores.personal.base import Personal
from tests.engines.families import FAMILIES, INJECTIONS

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FAMILY_TOKENIZERS = {family.name: family.tokenizer() for family in FAMILIES}
QUESTION = Question(MessageId("msg_9"), "new")
RECORD = PromptRecord("m", MessageId("msg_0"))


def message(number: int, role: Role, content: str, status: MessageStatus = MessageStatus.COMPLETE) -> Message:
    return Message(MessageId(f"msg_{number}"), ConversationId("conv_1"), None, role, content, status, NOW)


def snippet(text: str) -> Snippet:
    return Snippet(MessageId("msg_old"), Role.USER, text)


def everything(text: str, tokenizer: Tokenizer) -> RenderedPrompt:
    """A prompt with ``text`` in every place that a person's or a model's words can reach."""
    answer = replace(message(1, Role.ASSISTANT, text), prompt=PromptRecord("m", MessageId("msg_0"), snippets=(snippet(text),)))
    record = replace(RECORD, snippets=(snippet(text), snippet(text)))
    kept = [message(0, Role.USER, text), answer]
    said = compose(kept, Question(MessageId("msg_9"), text), record, opening_parts(Preamble("d", text, text), text))
    return render(EncodedTexts(tokenizer), said)


def test_the_order_of_parts() -> None:
    rendered = everything("x", ReferenceTokenizer())
    assert [counted.part.kind.value for counted in rendered.parts] == (
        ["system", "instructions", "memory", "summary", "snippet", "turn", "turn", "snippet", "snippet", "turn"]
    )
    assert sum(counted.tokens for counted in rendered.parts) == len(rendered.ids)
    assert rendered.parts[0].part.text == SYSTEM_PROMPT


def test_roles_alternate_whatever_the_branch_holds() -> None:
    kept = [
        message(0, Role.ASSISTANT, "welcome"),
        message(1, Role.USER, "one"),
        message(2, Role.ASSISTANT, "half an", MessageStatus.FAILED),
        message(3, Role.USER, "two"),
        message(4, Role.ASSISTANT, " \n", MessageStatus.CANCELLED),
        message(5, Role.USER, "three"),
        message(6, Role.ASSISTANT, "stopped", MessageStatus.INTERRUPTED),
    ]
    said = compose(kept, QUESTION, RECORD, opening_parts(None, ""))
    assert [(one.role, "".join(part.text for part in one.parts)) for one in said] == [
        (Role.SYSTEM, SYSTEM_PROMPT),
        (Role.USER, "one\n\ntwo\n\nthree"),
        (Role.ASSISTANT, "stopped"),
        (Role.USER, "new"),
    ]


@pytest.mark.parametrize("name", FAMILY_TOKENIZERS)
def test_no_text_in_any_part_forges_a_turn(name: str) -> None:
    tokenizer = FAMILY_TOKENIZERS[name]

    def marks(text: str) -> list[int]:
        return [token_id for token_id in everything(text, tokenizer).ids if token_id in tokenizer.markup_ids]

    wanted = marks("harmless")
    assert wanted != []
    for text in INJECTIONS:
        assert marks(text) == wanted


@pytest.mark.parametrize("name", FAMILY_TOKENIZERS)
def test_nor_in_what_a_summariser_is_asked(name: str) -> None:
    tokenizer = FAMILY_TOKENIZERS[name]

    def marks(text: str) -> list[int]:
        asked = summary_request(text, [message(0, Role.USER, text), message(1, Role.ASSISTANT, text)], characters=4000)
        return [token_id for token_id in tokenizer.prompt(asked) if token_id in tokenizer.markup_ids]

    for text in INJECTIONS:
        assert marks(text) == marks("harmless")


def test_two_users_share_all_but_their_own_words() -> None:
    texts = EncodedTexts(ReferenceTokenizer())
    prompts = [
        render(texts, compose([], QUESTION, RECORD, opening_parts(preamble, ""))).ids
        for preamble in (None, Preamble("1", "be loud", ""), Preamble("2", "be quiet", "- tea"))
    ]
    public = render(texts, compose([], QUESTION, RECORD, opening_parts(None, ""))).public_tokens
    assert len({ids[:public] for ids in prompts}) == 1
    assert len({ids[: public + 40] for ids in prompts}) == 3


def test_a_preamble_has_one_form() -> None:
    tea = Memory(MemoryId("mem_1"), " likes\n tea ", NOW)
    made = preamble_of(Personal(" Be brief. ", (tea,)))
    assert made is not None
    assert (made.instructions, made.memory) == ("Be brief.", "- likes tea")
    assert preamble_of(Personal(" Be brief. ", (tea,))) == made
    assert preamble_of(Personal()) is None
    assert preamble_of(Personal("a", ())) != preamble_of(Personal("", (replace(tea, text="a"),)))


def test_a_snippet_belongs_to_the_turn_that_brought_it() -> None:
    answer = replace(message(1, Role.ASSISTANT, "yes"), prompt=replace(RECORD, snippets=(snippet("old"),)))
    said = compose([message(0, Role.USER, "one"), answer], QUESTION, RECORD, opening_parts(None, ""))
    kinds = [[part.kind for part in one.parts] for one in said]
    assert kinds == [[PartKind.SYSTEM], [PartKind.SNIPPET, PartKind.TURN], [PartKind.TURN], [PartKind.TURN]]


@given(st.lists(st.text(max_size=12), max_size=40))
def test_what_was_encoded_is_remembered_within_bounds(asked: list[str]) -> None:
    tokenizer = ReferenceTokenizer()
    texts = EncodedTexts(tokenizer, kept_characters=40)
    for text in asked:
        assert list(texts.ids(text)) == tokenizer.encode(text)
        assert texts.knows(text)
        texts.check()


@pytest.mark.parametrize("name", FAMILY_TOKENIZERS)
@pytest.mark.parametrize("pairs", [0, 1, 2, 5])
def test_a_repeated_frame_is_the_templates_own(name: str, pairs: int) -> None:
    tokenizer = FAMILY_TOKENIZERS[name]
    roles = (Role.SYSTEM, Role.USER, *(Role.ASSISTANT, Role.USER) * pairs)
    assert EncodedTexts(tokenizer).frame(pairs) == tokenizer.frame(roles)


branches = st.lists(
    st.tuples(st.sampled_from(Role), st.sampled_from(["", " ", "a", "one two", "é"]), st.booleans(), st.booleans()), max_size=9
)
"""Messages: their role, their words, whether they failed, and whether a snippet came with them."""


def branch_of(told: list[tuple[Role, str, bool, bool]]) -> list[Message]:
    return [
        replace(
            message(number, role, content, MessageStatus.FAILED if failed else MessageStatus.COMPLETE),
            prompt=replace(RECORD, snippets=(snippet("old"),)) if quoting else None,
        )
        for number, (role, content, failed, quoting) in enumerate(told)
        if role is not Role.SYSTEM
    ]


@pytest.mark.parametrize("name", FAMILY_TOKENIZERS)
@given(told=branches, standing=st.sampled_from(["", "Be brief."]), summary=st.sampled_from(["", "of tea"]))
def test_a_prompt_that_grew_is_the_prompt_written_anew(
    name: str, told: list[tuple[Role, str, bool, bool]], standing: str, summary: str
) -> None:
    texts, kept = EncodedTexts(FAMILY_TOKENIZERS[name]), branch_of(told)
    opening = opening_parts(Preamble("d", standing, ""), summary)
    stem: Stem | None = None
    for length in range(len(kept) + 1):
        grows = stem is not None and grows_into(stem, kept[:length], opening)
        said = compose(kept[:length], QUESTION, RECORD, opening, stem if grows else None)
        assert said == compose(kept[:length], QUESTION, RECORD, opening)
        prompt = render(texts, said, stem if grows else None)
        assert prompt == render(texts, said)
        stem = stem_of(texts, kept[:length], opening, said, prompt) or stem


def test_a_turn_writes_only_what_is_new() -> None:
    texts, opening = EncodedTexts(ReferenceTokenizer()), opening_parts(None, "")
    kept = [message(number, (Role.USER, Role.ASSISTANT)[number % 2], f"words {number}") for number in range(40)]
    said = compose(kept[:38], QUESTION, RECORD, opening)
    stem = stem_of(texts, kept[:38], opening, said, render(texts, said))
    assert stem is not None
    assert grows_into(stem, kept, opening)
    grown = compose(kept, QUESTION, RECORD, opening, stem)
    assert [one is other for one, other in zip(grown, stem.said, strict=False)] == [True] * 39
    assert render(texts, grown, stem) == render(texts, compose(kept, QUESTION, RECORD, opening))


def test_a_stem_is_none_of_another_beginning() -> None:
    texts, opening = EncodedTexts(ReferenceTokenizer()), opening_parts(None, "")
    kept = [message(0, Role.USER, "one"), message(1, Role.ASSISTANT, "two")]
    said = compose(kept, QUESTION, RECORD, opening)
    stem = stem_of(texts, kept, opening, said, render(texts, said))
    assert stem is not None
    assert not grows_into(stem, [kept[0], replace(kept[1], content="two and more")], opening)
    assert not grows_into(stem, kept, opening_parts(Preamble("d", "Be brief.", ""), ""))
    assert not grows_into(stem, kept[:1], opening)
    assert not grows_into(stem, [*kept, message(2, Role.ASSISTANT, "three")], opening)
