"""The reference engine's tokenizer: 256 byte tokens, four control tokens, one token per word. Loads nothing that computes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from antiphon.core.messages import Role
from antiphon.core.pools import Vocabulary
from antiphon.engines.base import PromptMessage, ThinkingMarks
from antiphon.engines.framing import framed
from antiphon.engines.reference_words import NASTY_GROUPS, WORDS
from antiphon.engines.text import ByteTextStream

SYSTEM_ID, USER_ID, ASSISTANT_ID, END_ID = range(256, 260)
FIRST_WORD_ID = 260
_ROLE_IDS = {Role.SYSTEM: SYSTEM_ID, Role.USER: USER_ID, Role.ASSISTANT: ASSISTANT_ID}
_SPECIAL_IDS = frozenset({SYSTEM_ID, USER_ID, ASSISTANT_ID, END_ID})
GROUP_TOKENS = 4

_PIECES: dict[bytes, int] = {f"{word} ".encode(): FIRST_WORD_ID + index for index, word in enumerate(WORDS)}
_NASTY_PIECES: tuple[bytes, ...] = tuple(sorted({piece for group in NASTY_GROUPS for piece in group if len(piece) > 1} - _PIECES.keys()))
TOKEN_BYTES: tuple[bytes, ...] = (*(bytes([value]) for value in range(256)), b"", b"", b"", b"", *_PIECES, *_NASTY_PIECES)
THINK_ID, THOUGHT_ID = len(TOKEN_BYTES), len(TOKEN_BYTES) + 1
THOUGHT_TOKENS = 8
_HIDDEN_IDS = _SPECIAL_IDS | {THINK_ID, THOUGHT_ID}
_NASTY_IDS: dict[bytes, int] = {piece: token_id for token_id, piece in enumerate(TOKEN_BYTES) if piece}
NASTY_GROUP_IDS = tuple(tuple(_NASTY_IDS[piece] for piece in group) for group in NASTY_GROUPS)
_WORD = re.compile(rb"(?<![a-z])[a-z]+ ")
"""Begins at a word's first letter only, so that a long run without a space is scanned once."""


class ReferenceTokenizer:
    """256 byte tokens, four control tokens, one token per word; any text round-trips.

    The ids are the same in all vocabularies; ``vocabulary`` only says which of them the executor draws. With ``thinking`` an answer
    begins with a thought of eight words.
    """

    def __init__(self, vocabulary: Vocabulary = "ascii") -> None:
        self.vocabulary: Vocabulary = vocabulary

    @property
    def thinking(self) -> ThinkingMarks | None:
        return ThinkingMarks(THINK_ID, THOUGHT_ID) if self.vocabulary == "thinking" else None

    @property
    def end_token_ids(self) -> frozenset[int]:
        return frozenset({END_ID})

    def encode(self, text: str) -> list[int]:
        """Known words with the space after them as one id, everything else as UTF-8 bytes; never a control token."""
        data = text.encode()
        ids: list[int] = []
        at = 0
        for found in _WORD.finditer(data):
            token_id = _PIECES.get(found.group())
            if token_id is not None:
                ids.extend(data[at : found.start()])
                ids.append(token_id)
                at = found.end()
        ids.extend(data[at:])
        return ids

    def frame(self, roles: Sequence[Role]) -> tuple[tuple[int, ...], ...]:
        """``role content end`` for each message, then the assistant's mark."""
        marks = [_ROLE_IDS[role] for role in roles]
        return ((marks[0],), *((END_ID, mark) for mark in marks[1:]), (END_ID, ASSISTANT_ID))

    def prompt(self, messages: Sequence[PromptMessage]) -> list[int]:
        return framed(messages, self.frame, self.encode)

    def text_stream(self, stop: Sequence[str] = ()) -> ByteTextStream:
        return ByteTextStream(TOKEN_BYTES.__getitem__, stop, _HIDDEN_IDS)
