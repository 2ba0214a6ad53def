"""A conversation's title: what a model is asked, and what of its answer is one. Pure."""

from __future__ import annotations

import re

from antiphon.core.messages import Role
from antiphon.engines.base import PromptMessage
from antiphon.orchestrator.relevance import content_words

TITLE_TOKENS = 24

_MOST_WORDS = 6
_MOST_CHARACTERS = 60
_QUESTION_CHARACTERS = 600
_ANSWER_CHARACTERS = 300
_ASK = "Give the conversation a title of two to five words. Answer with the title alone."
_THOUGHTS = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_LABEL = re.compile(r"^(?:the )?(?:title|name|topic)\s*(?:is)?\s*[:\-–—]\s*", re.IGNORECASE)
_WRAPPING = " \t\"'`*_#“”‘’«»-–—:.…"
_CLAUSE = re.compile(r"[:.;!?](?:\s|$)| [-–—] ")


def title_request(question: str, answer: str) -> tuple[PromptMessage, ...]:
    """What a model is asked for the title of a conversation that began so."""
    said = f"User: {question[:_QUESTION_CHARACTERS]}\n\nAssistant: {answer[:_ANSWER_CHARACTERS]}\n\nTitle:"
    return (PromptMessage(Role.SYSTEM, _ASK), PromptMessage(Role.USER, said))


def title_of(text: str, said: str) -> str | None:
    """The title in a model's answer: its first clause without thoughts, marks and labels, at most six words.

    ``None`` where there is none: nothing but marks, a clause that would have to be cut, or words of which nothing was ``said``.
    """
    lines = [line.strip(_WRAPPING) for line in _THOUGHTS.sub("", text).splitlines()]
    first = _LABEL.sub("", next((line for line in lines if line), ""))
    title = " ".join(_CLAUSE.split(first)[0].strip(_WRAPPING).split())
    if len(title.split()) > _MOST_WORDS or len(title) > _MOST_CHARACTERS:
        return None
    words = content_words(title)
    return title if words and set(words) <= set(content_words(said)) else None
