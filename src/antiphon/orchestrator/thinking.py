"""What a reasoning model thinks before it answers, told apart from the answer by its tokens, never by its text. Pure.

A model's words about ``<think>``, or a forged mark in them, are plain tokens and stay what they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from antiphon.core.messages import Role
from antiphon.engines.base import Tokenizer


@dataclass(frozen=True, slots=True)
class Spoken:
    """New output: first what was thought, then what was said."""

    reasoning: str = ""
    text: str = ""


class ThinkingSplit:
    """Takes a generation's output in order, and returns it split. For a model that does not think aloud it changes nothing.

    Thoughts come before the answer and only there: after the closing mark, marks count for nothing. Thoughts are decoded here, the
    engine's text being of one piece.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = (), *, continued: bool = False) -> None:
        self._marks = None if continued else tokenizer.thinking
        self._thoughts = tokenizer.text_stream()
        self._answer = tokenizer.text_stream(stop)
        self._thinking = self._marks is not None and _begins_in_thought(tokenizer)
        self._closed = False
        self._said = False
        self.reasoning = ""
        """Everything thought so far."""

    def push(self, token_ids: Sequence[int], text: str) -> Spoken:
        """Output of the engine: ids, and the text it made of them."""
        marks = self._marks
        if marks is None:
            return Spoken(text=text)
        thought: list[str] = []
        said: list[str] = []
        for token_id in token_ids:
            if token_id == marks.open_id and not self._closed:
                self._thinking = True
            elif token_id == marks.close_id and self._thinking:
                self._thinking, self._closed = False, True
                thought.append(self._thoughts.finish())
            elif self._thinking:
                thought.append(self._thoughts.push(token_id))
            elif not self._answer.stopped:
                said.append(self._answer.push(token_id))
        return self._split("".join(thought), "".join(said))

    def finish(self, text: str) -> Spoken:
        """The engine's last word; call once."""
        if self._marks is None:
            return Spoken(text=text)
        return self._split(self._thoughts.finish() if self._thinking else "", self._answer.finish())

    def _split(self, reasoning: str, text: str) -> Spoken:
        if not self.reasoning:
            reasoning = reasoning.lstrip("\n")
        self.reasoning += reasoning
        if self._closed and not self._said:
            text = text.lstrip("\n")
        self._said = self._said or bool(text)
        return Spoken(reasoning, text)


def _begins_in_thought(tokenizer: Tokenizer) -> bool:
    """Whether the template itself opens the thought."""
    marks = tokenizer.thinking
    begun = tokenizer.frame((Role.SYSTEM, Role.USER))[-1]
    return marks is not None and marks.open_id in begun and marks.close_id not in begun[begun.index(marks.open_id) :]
