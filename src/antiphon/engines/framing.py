"""A whole prompt out of a tokenizer's two halves: the template's own ids, and what people and models wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from antiphon.core.messages import Role
from antiphon.engines.base import PromptMessage

Frame = Callable[[Sequence[Role]], Sequence[Sequence[int]]]


def framed(messages: Sequence[PromptMessage], frame: Frame, encode: Callable[[str], Sequence[int]]) -> list[int]:
    """The messages' ids with the template's round each of them: it writes one stretch before the first, and one behind each."""
    before, *behind = frame([message.role for message in messages])
    ids = list(before)
    for message, stretch in zip(messages, behind, strict=True):
        ids += encode(message.content)
        ids += stretch
    return ids
