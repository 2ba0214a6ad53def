"""Summaries of what leaves the window: the words asked of a model, and the one made of the messages' own sentences. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from antiphon.core.messages import Message, Role
from antiphon.engines.base import PromptMessage
from antiphon.orchestrator.relevance import content_words

EXTRACT = "extract"
"""The ``source`` of a summary made of sentences."""

_LINE_CHARACTERS = 240
_SENTENCE = re.compile(r"[^.!?。！？\n]+(?:[.!?。！？]+|\n|$)")
_NUMBER = re.compile(r"\d")
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][\w'-]+")
_ASK = (
    "Summarise the conversation below in at most 120 words, for yourself. Keep names, numbers, decisions and what the user wants. "
    "Write plain sentences and nothing else."
)
_ECHO_WORDS = 12


@dataclass(frozen=True, slots=True)
class _Line:
    place: int
    who: str
    text: str
    score: float


def extracted(earlier: str, messages: Sequence[Message], *, at_most: int, count: Callable[[str], int]) -> str:
    """The sentences of ``messages``, and of the summary ``earlier`` before them, that tell most, in order; at most ``at_most`` tokens.

    A sentence counts by its names, numbers and recurring words; a person's more than a model's. Method: extraction by frequency
    (H. P. Luhn, The automatic creation of literature abstracts, 1958).
    """
    lines = _lines(earlier, messages)
    chosen: list[_Line] = []
    left = at_most
    for line in sorted(lines, key=lambda line: (-line.score, line.place)):
        tokens = count(_shown(line) + "\n")
        if tokens <= left:
            left -= tokens
            chosen.append(line)
    return "\n".join(_shown(line) for line in sorted(chosen, key=lambda line: line.place))


def summary_request(earlier: str, messages: Sequence[Message], characters: int) -> tuple[PromptMessage, ...]:
    """What a model is asked, with at most ``characters`` of the messages, each cut alike."""
    share = max(80, characters // max(len(messages), 1))
    told = [f"{_who(message)}: {_one_line(message.content)[:share]}" for message in messages]
    before = f"What was said before: {earlier}\n\n" if earlier else ""
    return (PromptMessage(Role.SYSTEM, _ASK), PromptMessage(Role.USER, before + "\n".join(told)))


def accepted_summary(text: str, messages: Sequence[Message]) -> str | None:
    """A model's summary, cleaned; ``None`` where it is none: empty, no words, or nothing but the messages again."""
    plain = _one_line(text)
    words = content_words(plain)
    if len(words) < 3:
        return None
    opening = " ".join(plain.lower().split()[:_ECHO_WORDS])
    if any(opening and opening in _one_line(message.content).lower() for message in messages):
        return None
    return plain


def _lines(earlier: str, messages: Sequence[Message]) -> list[_Line]:
    frequency = Counter(word for message in messages for word in set(content_words(message.content)))
    lines = [_Line(place, "", text, 4.0) for place, text in enumerate(earlier.splitlines()) if text.strip()]
    for message in messages:
        for sentence in _SENTENCE.findall(message.content):
            text = _one_line(sentence)[:_LINE_CHARACTERS]
            words = content_words(text)
            if words:
                lines.append(_Line(len(lines), _who(message), text, _score(text, words, frequency) * _weight(message)))
    return lines


def _score(text: str, words: Sequence[str], frequency: Counter[str]) -> float:
    recurring = sum(min(frequency[word], 4) for word in set(words)) / len(words) ** 0.5
    return recurring + 2.0 * len(_NUMBER.findall(text)[:3]) + 2.0 * len(_NAME.findall(text)[:3]) - (1.0 if text.endswith("?") else 0.0)


def _weight(message: Message) -> float:
    return 1.5 if message.role is Role.USER else 1.0


def _who(message: Message) -> str:
    return "User" if message.role is Role.USER else "Assistant"


def _shown(line: _Line) -> str:
    return f"{line.who}: {line.text}" if line.who else line.text


def _one_line(text: str) -> str:
    return " ".join(text.split())
