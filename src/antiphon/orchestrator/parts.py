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
class Stem:
    """The beginning that a prompt has in common with the next of its branch: all up to where a question's own ids begin.

    ``opening`` stands before and in the first turn: system prompt, preamble and summary. ``kept`` are the messages of the window, the
    last of them an answer, and ``said`` is what the template sees of both. ``frame_tokens`` of ``ids`` stand behind the last part.
    """

    opening: tuple[Part, ...]
    kept: tuple[Message, ...]
    said: tuple[Said, ...]
    ids: array[int]
    parts: tuple[CountedPart, ...]
    frame_tokens: int


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
    regular: bool
    """Whether it writes the same round every answer and question."""

    def ids(self, text: str) -> array[int]:
        """The ids of an untrusted text."""
        ...

    def count(self, text: str) -> int: ...

    def frame(self, pairs: int) -> tuple[tuple[int, ...], ...]:
        """What the template writes round a system message, a question, and ``pairs`` of an answer and a question."""
        ...


def compose(
    kept: Sequence[Message], question: Question, record: PromptRecord, opening: Sequence[Part], stem: Stem | None = None
) -> tuple[Said, ...]:
    """What the model reads, in order: alternating roles, as strict chat templates want them.

    ``kept`` are the messages of the window, oldest first. A turn's snippets stand before its question, the summary before the oldest.
    A ``stem`` is one that ``grows_into`` the prompt: what it holds is not composed again.
    """
    turns = _turns(kept if stem is None else kept[len(stem.kept) :])
    _add(turns, Role.USER, [*snippet_parts(record.snippets), Part(PartKind.TURN, question.text, question.message_id)])
    if stem is not None:
        return (*stem.said, *(Said(role, tuple(parts)) for role, parts in turns))
    turns[0][1][:0] = [part for part in opening if part.kind is PartKind.SUMMARY]
    system = Said(Role.SYSTEM, tuple(part for part in opening if part.kind is not PartKind.SUMMARY))
    return (system, *(Said(role, tuple(parts)) for role, parts in turns))


def render(texts: Texts, said: Sequence[Said], stem: Stem | None = None) -> RenderedPrompt:
    """The ids of a whole prompt, up to where the answer begins. ``stem`` is the one that ``said`` was composed with."""
    before, *behind = texts.frame(len(said) // 2 - 1)
    ids, parts, frame_tokens = (list(before), (), len(before)) if stem is None else (stem.ids.tolist(), stem.parts, stem.frame_tokens)
    first = 0 if stem is None else len(stem.said)
    counted = list(parts)
    told = len(ids) - frame_tokens
    public_tokens = len(before) + texts.count(said[0].parts[0].text)
    for message, stretch in zip(said[first:], behind[first:], strict=True):
        for part in message.parts:
            ids.extend(texts.ids(part.text))
            counted.append(CountedPart(part, len(ids) - told))
            told = len(ids)
        ids += stretch
    last = counted[-1]
    counted[-1] = CountedPart(last.part, last.tokens + len(ids) - told)
    return RenderedPrompt(tuple(ids), tuple(counted), public_tokens)


def grows_into(stem: Stem, kept: Sequence[Message], opening: Sequence[Part]) -> bool:
    """Whether a prompt of ``kept`` begins with the stem."""
    length = len(stem.kept)
    if stem.opening != tuple(opening) or stem.kept != tuple(kept[:length]):
        return False
    return len(kept) == length or kept[length].role is Role.USER


def stem_of(texts: Texts, kept: Sequence[Message], opening: Sequence[Part], said: Sequence[Said], prompt: RenderedPrompt) -> Stem | None:
    """The stem of a prompt; ``None`` where its question does not follow an answer, or where the template is not regular."""
    if not kept or not is_said(kept[-1]) or len(said) < 3 or not texts.regular:
        return None
    asked = said[-1].parts
    frame = texts.frame(1)
    own = sum(texts.count(part.text) for part in asked) + len(frame[-1])
    ids = array("i", prompt.ids[: len(prompt.ids) - own])
    return Stem(tuple(opening), tuple(kept), tuple(said[:-1]), ids, prompt.parts[: -len(asked)], len(frame[-2]))


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


def opening_parts(preamble: Preamble | None, summary: str) -> tuple[Part, ...]:
    """What a prompt has beside the turns: it changes when a window does, or what its user wants in every conversation."""
    parts = (Part(PartKind.SYSTEM, SYSTEM_PROMPT), *preamble_parts(preamble))
    return (*parts, summary_part(summary)) if summary else parts


def _turns(kept: Sequence[Message]) -> list[tuple[Role, list[Part]]]:
    turns: list[tuple[Role, list[Part]]] = []
    for index, message in enumerate(kept):
        if message.role is Role.USER:
            answer = kept[index + 1] if index + 1 < len(kept) and is_said(kept[index + 1]) else None
            snippets = () if answer is None or answer.prompt is None else answer.prompt.snippets
            _add(turns, Role.USER, [*snippet_parts(snippets), Part(PartKind.TURN, message.content, message.id)])
        elif turns and is_said(message):
            _add(turns, Role.ASSISTANT, [Part(PartKind.TURN, message.content, message.id)])
    return turns


def _add(turns: list[tuple[Role, list[Part]]], role: Role, parts: list[Part]) -> None:
    if turns and turns[-1][0] is role:
        turns[-1][1].append(Part(PartKind.TURN, JOINT, parts[-1].message_id))
        turns[-1][1].extend(parts)
    else:
        turns.append((role, parts))
