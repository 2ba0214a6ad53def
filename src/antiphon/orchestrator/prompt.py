"""What the model reads: the system prompt, the newest turns that fit, the new message whole.

Pure. What is left out follows from the branch and the pool's context alone, never from what an earlier call decided: the
window is found by replaying the branch from its root, as if each of its turns were being asked now. It grows turn by turn
until it is full, then the oldest turns go in one step until 60 % are left. Between two such trims the prompt only grows at
its end, so the prefix that the cache holds stays valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from antiphon.core.errors import PromptTooLong
from antiphon.core.ids import MessageId
from antiphon.core.messages import Message, MessageStatus, Role
from antiphon.engines.base import PromptMessage, Tokenizer

SYSTEM_PROMPT = "You are a helpful assistant."
"""Identical for everybody, so that its cached blocks serve everybody."""

MINIMUM_OUTPUT_TOKENS = 16
"""An answer shorter than this is not worth a prompt; a prompt that leaves less is refused."""

_WINDOW_SHARE = 0.75
"""Part of the context that system prompt, turns and new message may fill; the rest is the answer's."""

_TRIMMED_SHARE = 0.6
"""Part of the window that is left after a trim."""


@dataclass(frozen=True, slots=True)
class PromptPlan:
    """Which messages the model reads. ``tokens`` is exact without earlier turns, else a sum of their stored counts."""

    messages: tuple[PromptMessage, ...]
    tokens: int
    omitted: tuple[MessageId, ...]


@dataclass(frozen=True, slots=True)
class _Exchange:
    """A question with its answer, or a question that was never answered."""

    messages: tuple[Message, ...]
    question_tokens: int
    tokens: int


def plan_prompt(
    tokenizer: Tokenizer, earlier: Sequence[Message], question: str, *, context_tokens: int, already_tokens: int = 0
) -> PromptPlan:
    """The prompt for ``question`` asked under ``earlier`` (root first).

    ``already_tokens`` of the answer are written and stand behind the prompt. Raises ``PromptTooLong`` when system prompt,
    question, these and ``MINIMUM_OUTPUT_TOKENS`` do not fit into ``context_tokens``. Blocking: it encodes the question and
    every earlier message without a stored count.
    """
    limit = context_tokens - MINIMUM_OUTPUT_TOKENS
    bare = len(tokenizer.prompt(_with_system([PromptMessage(Role.USER, question)])))
    if bare + already_tokens > limit:
        raise PromptTooLong(prompt_tokens=bare + already_tokens, limit_tokens=limit)
    empty, per_message = _template_tokens(tokenizer)
    exchanges = _exchanges(tokenizer, earlier, per_message)
    fixed = empty - per_message
    start = _window_start(exchanges, bare - fixed, fixed, int(context_tokens * _WINDOW_SHARE))
    tokens = bare + sum(exchange.tokens for exchange in exchanges[start:])
    while tokens + already_tokens > limit:
        tokens -= exchanges[start].tokens
        start += 1
    kept = [message for exchange in exchanges[start:] for message in exchange.messages]
    return PromptPlan(
        messages=_render(kept, question),
        tokens=tokens,
        omitted=tuple(message.id for exchange in exchanges[:start] for message in exchange.messages),
    )


def output_tokens(asked: int, *, context_tokens: int, prompt_tokens: int) -> int:
    """How many tokens the answer may have: what was asked for, or what the context leaves; at least one."""
    return max(1, min(asked, context_tokens - prompt_tokens))


def _with_system(messages: Sequence[PromptMessage]) -> tuple[PromptMessage, ...]:
    return (PromptMessage(Role.SYSTEM, SYSTEM_PROMPT), *messages)


def _template_tokens(tokenizer: Tokenizer) -> tuple[int, int]:
    """Tokens of a prompt with an empty question, and what the template adds to each message (rounded up)."""
    question, answer = PromptMessage(Role.USER, ""), PromptMessage(Role.ASSISTANT, "")
    empty = len(tokenizer.prompt(_with_system([question])))
    longer = len(tokenizer.prompt(_with_system([question, answer, question])))
    return empty, (longer - empty + 1) // 2


def _exchanges(tokenizer: Tokenizer, earlier: Sequence[Message], per_message: int) -> list[_Exchange]:
    """Whole turns, oldest first. Answers that failed or are empty are left out: their question stands alone."""
    groups: list[list[Message]] = []
    for message in earlier:
        if message.role is Role.USER:
            groups.append([message])
        elif message.role is Role.ASSISTANT and message.status is not MessageStatus.FAILED and message.content.strip():
            if groups:
                groups[-1].append(message)
            else:
                groups.append([message])
    exchanges: list[_Exchange] = []
    for group in groups:
        counts = [per_message + _count(tokenizer, message) for message in group]
        exchanges.append(_Exchange(tuple(group), question_tokens=counts[0], tokens=sum(counts)))
    return exchanges


def _count(tokenizer: Tokenizer, message: Message) -> int:
    if message.content_tokens is not None:
        return message.content_tokens
    return len(tokenizer.encode(message.content))


def _window_start(exchanges: Sequence[_Exchange], question_tokens: int, fixed: int, window: int) -> int:
    """Index of the oldest exchange kept, after replaying every question of the branch and then the new one."""
    start, held = 0, 0
    questions = [exchange.question_tokens for exchange in exchanges] + [question_tokens]
    for asked, tokens in enumerate(questions):
        if asked:
            held += exchanges[asked - 1].tokens
        if fixed + held + tokens <= window:
            continue
        while start < asked and fixed + held + tokens > window * _TRIMMED_SHARE:
            held -= exchanges[start].tokens
            start += 1
    return start


def _render(kept: Sequence[Message], question: str) -> tuple[PromptMessage, ...]:
    """Alternating roles, as strict chat templates want them: neighbours of one role become one message."""
    said = [PromptMessage(message.role, message.content) for message in kept]
    while said and said[0].role is Role.ASSISTANT:
        del said[0]
    said.append(PromptMessage(Role.USER, question))
    return _with_system(
        [PromptMessage(role, "\n\n".join(message.content for message in same)) for role, same in groupby(said, key=lambda said: said.role)]
    )
