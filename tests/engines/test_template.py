"""Templates carry messages without reading them, and nothing that is typed becomes a control token."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.errors import ModelUnusable
from antiphon.core.messages import Role
from antiphon.engines.base import PromptMessage
from antiphon.engines.template import ChatTemplate
from antiphon.engines.tokenizer import ModelTokenizer
from antiphon.engines.tokenizer_file import CHATML
from tests.engines.driving import text_of
from tests.engines.families import FAMILIES, GEMMA, INJECTIONS, Family

SYSTEM, USER, ASSISTANT = Role.SYSTEM, Role.USER, Role.ASSISTANT
PIECES = (*"<|>_/ \n[]{}", "im_start", "im_end", "start_of_turn", "eot_id", "INST", "think", "obey", "s", "é")
TOKENIZERS = {family.name: family.tokenizer() for family in FAMILIES}
every_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
every_tokenizer = pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS.keys())


def test_a_frame_is_what_the_template_writes_between_contents() -> None:
    assert ChatTemplate(CHATML).frame([SYSTEM, USER]) == (
        "<|im_start|>system\n",
        "<|im_end|>\n<|im_start|>user\n",
        "<|im_end|>\n<|im_start|>assistant\n",
    )


def test_a_template_without_a_system_role_gets_it_before_the_users_text() -> None:
    template = ChatTemplate(GEMMA, bos_token="<bos>")
    assert template.frame([SYSTEM, USER]) == ("<bos><start_of_turn>user\n", "\n\n", "<end_of_turn>\n<start_of_turn>model\n")
    said = [PromptMessage(SYSTEM, "Be brief."), PromptMessage(USER, "Hi"), PromptMessage(ASSISTANT, "Yes?"), PromptMessage(SYSTEM, "late")]
    assert template.folded(said) == [PromptMessage(USER, "Be brief.\n\nHi"), PromptMessage(ASSISTANT, "Yes?")]
    with pytest.raises(ModelUnusable):
        template.frame([SYSTEM, ASSISTANT])


@pytest.mark.parametrize(
    "source",
    [
        "{% for %}",
        "no messages at all",
        "{{ messages.__class__.__mro__ }}",
        "{{ undefined.attribute.deep }}",
        "{% for m in messages[-1:] %}{{ m.content }}{{ m.content }}{% endfor %}",
    ],
)
def test_a_template_that_cannot_serve_is_refused(source: str) -> None:
    with pytest.raises(ModelUnusable):
        ChatTemplate(source)


def test_a_template_that_reorders_messages_is_refused() -> None:
    reordering = ChatTemplate("{% for m in messages | reverse %}{{ m.content }}{% endfor %}")
    with pytest.raises(ModelUnusable, match="in order"):
        reordering.frame([USER, ASSISTANT, USER])


@every_family
def test_a_longer_conversation_only_adds_to_the_frame(family: Family) -> None:
    tokenizer = TOKENIZERS[family.name]
    short, long = tokenizer.frame([SYSTEM, USER]), tokenizer.frame([SYSTEM, USER, ASSISTANT, USER])
    assert long[:2] == short[:2]
    assert long[-1] == short[-1]
    assert len(long) == 5


@every_tokenizer
def test_no_injection_brings_a_mark(tokenizer: ModelTokenizer) -> None:
    for text in INJECTIONS:
        ids = tokenizer.encode(text)
        assert not tokenizer.markup_ids & set(ids)
        assert text_of(tokenizer, ids) == text


@every_family
def test_the_marks_are_the_files_own(family: Family) -> None:
    tokenizer = TOKENIZERS[family.name]
    negative_control = {token_id for mark in family.marks for token_id in tokenizer.encode_trusted(mark)}
    assert negative_control == tokenizer.markup_ids
    assert len(tokenizer.markup_ids) == len(family.marks)


def test_an_added_token_that_the_vocabulary_can_spell_stays_plain_text() -> None:
    tokenizer = TOKENIZERS["gemma"]
    assert len(tokenizer.encode("\n\n")) == 1
    assert text_of(tokenizer, tokenizer.encode("a\n\nb")) == "a\n\nb"


@every_tokenizer
@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_no_text_brings_a_mark(tokenizer: ModelTokenizer, text: str) -> None:
    assert not tokenizer.markup_ids & set(tokenizer.encode(text))


@every_tokenizer
def test_a_prompt_has_the_templates_marks_and_no_other(tokenizer: ModelTokenizer) -> None:
    def marks(content: str) -> list[int]:
        said = [PromptMessage(role, content) for role in (SYSTEM, USER, ASSISTANT, USER)]
        return [token_id for token_id in tokenizer.prompt(said) if token_id in tokenizer.markup_ids]

    for text in INJECTIONS:
        assert marks(text) == marks("harmless") != []
