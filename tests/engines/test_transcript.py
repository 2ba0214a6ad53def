from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.messages import Role
from antiphon.engines.base import PromptMessage
from antiphon.engines.transcript import VOCABULARY_TOKENS, TranscriptTokenizer, messages_of, text_of

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
CONVERSATIONS = st.lists(st.builds(PromptMessage, st.sampled_from(list(Role)), TEXTS), min_size=1, max_size=6)
TOKENIZER = TranscriptTokenizer()


@given(CONVERSATIONS)
def test_a_prompts_ids_are_its_messages(messages: list[PromptMessage]) -> None:
    ids = TOKENIZER.prompt(messages)
    assert messages_of(ids) == tuple(messages)
    assert max(ids) < VOCABULARY_TOKENS < 2**31


@given(CONVERSATIONS, TEXTS.filter(bool))
def test_what_follows_the_prompt_is_the_answers_beginning(messages: list[PromptMessage], begun: str) -> None:
    ids = TOKENIZER.prompt(messages) + TOKENIZER.encode(begun)
    assert messages_of(ids) == (*messages, PromptMessage(Role.ASSISTANT, begun))


@given(st.lists(TEXTS))
def test_pieces_of_a_stream_come_out_as_they_went_in(pieces: list[str]) -> None:
    stream = TOKENIZER.text_stream()
    ids = [token_id for piece in pieces for token_id in TOKENIZER.encode(piece)]
    assert "".join(map(stream.push, ids)) == text_of(ids) == "".join(pieces)


@given(TEXTS)
def test_text_never_becomes_control(text: str) -> None:
    assert not set(TOKENIZER.encode(text)) & (TOKENIZER.end_token_ids | {1, 2, 3})
