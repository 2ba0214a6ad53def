"""A vocabulary for engines that take text: every id carries its own piece of it, so that ids turn back into messages.

A server behind an OpenAI-compatible address keeps its tokens to itself. All planes above count, cache and resume by ids; here an id
is up to three bytes of UTF-8 and their number, a little less than a real token of English and about one of Chinese. Budgets made
from such counts err towards refusing early; usage is what the server itself reports.
"""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.core.messages import Role
from antiphon.engines.base import PromptMessage, ThinkingMarks
from antiphon.engines.framing import framed
from antiphon.engines.text import ByteTextStream

_PIECE_BYTES = 3
_LENGTH_SHIFT = 8 * _PIECE_BYTES
_END, THINK, THOUGHT = 4, 5, 6
_ROLE_IDS = {Role.SYSTEM: 1, Role.USER: 2, Role.ASSISTANT: 3}
_ROLES = {token_id: role for role, token_id in _ROLE_IDS.items()}
_CONTROL_IDS = frozenset({*_ROLES, _END, THINK, THOUGHT})

VOCABULARY_TOKENS = (_PIECE_BYTES + 1) << _LENGTH_SHIFT


class TranscriptTokenizer:
    """Implements ``Tokenizer`` for any server that takes messages. Stateless."""

    @property
    def thinking(self) -> ThinkingMarks:
        """Servers tell thoughts apart by themselves; the marks are put around them."""
        return ThinkingMarks(THINK, THOUGHT)

    @property
    def end_token_ids(self) -> frozenset[int]:
        return frozenset({_END})

    def encode(self, text: str) -> list[int]:
        data = text.encode()
        pieces = (data[start : start + _PIECE_BYTES] for start in range(0, len(data), _PIECE_BYTES))
        return [(len(piece) << _LENGTH_SHIFT) | int.from_bytes(piece, "big") for piece in pieces]

    def frame(self, roles: Sequence[Role]) -> tuple[tuple[int, ...], ...]:
        """``role content end`` for each message, then the assistant's mark."""
        marks = [_ROLE_IDS[role] for role in roles]
        return ((marks[0],), *((_END, mark) for mark in marks[1:]), (_END, _ROLE_IDS[Role.ASSISTANT]))

    def prompt(self, messages: Sequence[PromptMessage]) -> list[int]:
        return framed(messages, self.frame, self.encode)

    def text_stream(self, stop: Sequence[str] = ()) -> ByteTextStream:
        return ByteTextStream(_bytes_of, stop, _CONTROL_IDS)


def messages_of(prompt_ids: Sequence[int]) -> tuple[PromptMessage, ...]:
    """The messages whose ``prompt`` these ids are. What follows the last assistant's mark is the beginning of its answer, a last
    message of its own where there is any.
    """
    messages: list[PromptMessage] = []
    role: Role | None = None
    content = bytearray()

    def close() -> None:
        if role is not None:
            messages.append(PromptMessage(role, content.decode(errors="replace")))
        content.clear()

    for token_id in prompt_ids:
        if token_id in _ROLES:
            role = _ROLES[token_id]
        elif token_id == _END:
            close()
            role = None
        elif token_id not in _CONTROL_IDS:
            content += _bytes_of(token_id)
    if content:
        close()
    return tuple(messages)


def text_of(token_ids: Sequence[int]) -> str:
    """The text that output ids carry, without the thoughts before it."""
    ids = list(token_ids)
    if THINK in ids:
        ids = ids[ids.index(THOUGHT) + 1 :] if THOUGHT in ids else []
    return b"".join(_bytes_of(token_id) for token_id in ids if token_id not in _CONTROL_IDS).decode(errors="replace")


def _bytes_of(token_id: int) -> bytes:
    length = token_id >> _LENGTH_SHIFT
    return (token_id & ((1 << 8 * length) - 1)).to_bytes(length, "big")
