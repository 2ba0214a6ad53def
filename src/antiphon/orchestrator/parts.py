"""The parts of a prompt, in order, and the ids they become. Pure, but for the tokenizer's time.

What people or models wrote is encoded with control tokens off, part by part; the chat template's own text is encoded apart. So no text
can forge a turn, and a part has the same ids in every prompt.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from antiphon.core.events import ReadContext
from antiphon.core.ids import MessageId
from antiphon.core.messages import Message, PromptRecord, Role, Snippet
from antiphon.core.prompts import Preamble
from antiphon.orchestrator.prompt import SYSTEM_PROMPT, is_said

JOINT = "\n\n"


class PartKind(StrEnum):
    SYSTEM = "system"
    INSTRUCTIONS = "instructions"
    MEMORY = "memory"
    TURN = "turn"
    SUMMARY = "summary"
    SNIPPET = "snippet"


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of one kind. ``message_id`` is the message it is, or was taken from."""

    kind: PartKind
    text: str
    message_id: MessageId | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """One message as the chat template sees it."""

    role: Role
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class CountedPart:
    """A part with its tokens, what the template writes before it included."""

    part: Part
    tokens: int


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """``public_tokens`` leading ids are the same for everybody."""

    ids: tuple[int, ...]
    parts: tuple[CountedPart, ...]
    public_tokens: int


@dataclass(frozen=True, slots=True)
class Question:
    """The message to be answered."""

    message_id: MessageId
    text: str


class Texts(Protocol):
    """A tokenizer that remembers what it has encoded (``EncodedTexts``)."""

    bare: int
    """What the template writes round a system message and one question."""
    pair: int
    """What it writes round one answer and one question more."""
    joint: int

    def ids(self, text: str) -> array[int]:
        """The ids of an untrusted text."""
        ...

    def count(self, text: str) -> int: ...

    def frame(self, pairs: int) -> tuple[tuple[int, ...], ...]:
        """What the template writes round a system message, a question, and ``pairs`` of an answer and a question."""
        ...


def compose(
    kept: Sequence[Message], question: Question, record: PromptRecord, *, preamble: Preamble | None, summary: str
) -> tuple[Said, ...]:
    """What the model reads, in order: alternating roles, as strict chat templates want them.

    ``kept`` are the messages of the window, oldest first. A turn's snippets stand before its question, the summary before the oldest.
    """
    said: list[Said] = [Said(Role.SYSTEM, _system_parts(preamble))]
    turns: list[tuple[Role, list[Part]]] = []
    for index, message in enumerate(kept):
        if message.role is Role.USER:
            answer = kept[index + 1] if index + 1 < len(kept) and is_said(kept[index + 1]) else None
            snippets = () if answer is None or answer.prompt is None else answer.prompt.snippets
            _add(turns, Role.USER, [*snippet_parts(snippets), Part(PartKind.TURN, message.content, message.id)])
        elif turns and is_said(message):
            _add(turns, Role.ASSISTANT, [Part(PartKind.TURN, message.content, message.id)])
    _add(turns, Role.USER, [*snippet_parts(record.snippets), Part(PartKind.TURN, question.text, question.message_id)])
    if summary:
        turns[0][1].insert(0, summary_part(summary))
    return (*said, *(Said(role, tuple(parts)) for role, parts in turns))


def render(texts: Texts, said: Sequence[Said]) -> RenderedPrompt:
    """The ids of a whole prompt, up to where the answer begins."""
    before, *behind = texts.frame(len(said) // 2 - 1)
    ids: list[int] = list(before)
    counted: list[CountedPart] = []
    told = 0
    public_tokens = len(ids) + texts.count(said[0].parts[0].text)
    for message, stretch in zip(said, behind, strict=True):
        for part in message.parts:
            ids.extend(texts.ids(part.text))
            counted.append(CountedPart(part, len(ids) - told))
            told = len(ids)
        ids += stretch
    last = counted[-1]
    counted[-1] = CountedPart(last.part, last.tokens + len(ids) - told)
    return RenderedPrompt(tuple(ids), tuple(counted), public_tokens)


def read_context(record: PromptRecord | None) -> ReadContext | None:
    """What a turn's model was not given whole; ``None`` where nothing was left out."""
    if record is None or not record.omitted:
        return None
    return ReadContext(record.omitted, record.summary is not None, len(record.snippets))


def preamble_parts(preamble: Preamble | None) -> tuple[Part, ...]:
    """What a user wants in every conversation, as it stands behind the system prompt."""
    parts: list[Part] = []
    if preamble is not None and preamble.instructions:
        parts.append(Part(PartKind.INSTRUCTIONS, f"\n\nThe user's instructions:\n{preamble.instructions}"))
    if preamble is not None and preamble.memory:
        parts.append(Part(PartKind.MEMORY, f"\n\nWhat the user wants you to remember:\n{preamble.memory}"))
    return tuple(parts)


def summary_part(text: str) -> Part:
    return Part(PartKind.SUMMARY, f"[What was said before, in short:\n{text}]\n\n")


def snippet_parts(snippets: Sequence[Snippet]) -> tuple[Part, ...]:
    return tuple(Part(PartKind.SNIPPET, snippet_text(snippet), snippet.message_id) for snippet in snippets)


def snippet_text(snippet: Snippet) -> str:
    """A snippet as the prompt words it."""
    who = "The user" if snippet.role is Role.USER else "The assistant"
    return f"[{who} said earlier: {snippet.text}]\n"


def _system_parts(preamble: Preamble | None) -> tuple[Part, ...]:
    return (Part(PartKind.SYSTEM, SYSTEM_PROMPT), *preamble_parts(preamble))


def _add(turns: list[tuple[Role, list[Part]]], role: Role, parts: list[Part]) -> None:
    if turns and turns[-1][0] is role:
        turns[-1][1].append(Part(PartKind.TURN, JOINT, parts[-1].message_id))
        turns[-1][1].extend(parts)
    else:
        turns.append((role, parts))
