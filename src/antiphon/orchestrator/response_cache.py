"""Answers to starter prompts, given again instead of computed. Pure; of one process, and gone with it.

Only what every user would be answered alike is kept: the first message of a conversation whose text is one of the configured
ones, to the letter, without parameters, instructions or memory. It is kept for one release of one pool, so nothing of an
earlier model is given again; and it says of nobody more than that somebody chose a text that is offered to everybody.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass

from antiphon.core.generation import FinishReason, TurnParams
from antiphon.core.prompts import Preamble
from antiphon.engines.base import EngineUsage, Finished, Tokens

MOST_ANSWERS = 256
"""So many are kept; then those that were not asked for the longest go."""
_KEPT_ENDINGS = frozenset({FinishReason.STOP, FinishReason.LENGTH})


@dataclass(frozen=True, slots=True)
class StarterKey:
    """What makes two answers interchangeable. ``release`` names what a replica of ``pool`` has loaded, ``output_tokens`` is the
    most that the answer may have.
    """

    pool: str
    release: str
    prompt: str
    output_tokens: int


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """A whole answer. ``tail`` is what the engine's last word brought; ``prompt_tokens`` is its prompt's length."""

    token_ids: tuple[int, ...]
    text: str
    tail: str
    reason: FinishReason
    prompt_tokens: int

    def finished(self) -> Finished:
        """The last word about it: all of the prompt was there, and no accelerator did anything."""
        usage = EngineUsage(self.prompt_tokens, self.prompt_tokens, len(self.token_ids), 0, 0, 0, 0)
        return Finished(self.reason, usage, self.tail)


class ResponseCache:
    """Least recently used answers to ``prompts``; without any, nothing is kept."""

    def __init__(self, prompts: Collection[str] = ()) -> None:
        self._prompts = frozenset(prompts)
        self._answers: OrderedDict[StarterKey, CachedAnswer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._answers)

    def starter(self, key: StarterKey, params: TurnParams, preamble: Preamble | None) -> Starter | None:
        """A conversation's first turn and its dealings with the cache: none for other texts, where it was asked with parameters,
        where its prompt holds what is somebody's own, and where no release is known.
        """
        if key.prompt not in self._prompts or params != TurnParams() or preamble is not None or not key.release:
            return None
        answer = self._answers.get(key)
        if answer is not None:
            self._answers.move_to_end(key)
        return Starter(self, key, answer)

    def keep(self, key: StarterKey, answer: CachedAnswer) -> None:
        """From now on this is the answer; an earlier one stays."""
        if answer.reason in _KEPT_ENDINGS and answer.token_ids and key not in self._answers:
            self._answers[key] = answer
            if len(self._answers) > MOST_ANSWERS:
                self._answers.popitem(last=False)

    def check(self) -> None:
        """Raise ``AssertionError`` unless it is bounded and holds nothing but whole answers to its prompts."""
        assert len(self._answers) <= MOST_ANSWERS
        for key, answer in self._answers.items():
            assert key.prompt in self._prompts
            assert key.release
            assert answer.reason in _KEPT_ENDINGS
            assert 0 < len(answer.token_ids) <= key.output_tokens


class Starter:
    """One turn that begins with a starter prompt: the ``answer`` that is there, or what its own will be kept as."""

    def __init__(self, cache: ResponseCache, key: StarterKey, answer: CachedAnswer | None) -> None:
        self._cache = cache
        self._key = key
        self.answer = answer
        self._ids: list[int] = []
        self._pieces: list[str] = []

    def took(self, tokens: Tokens) -> None:
        """The engine has written this of it."""
        self._ids.extend(tokens.token_ids)
        self._pieces.append(tokens.text)

    def ended(self, finished: Finished, prompt_tokens: int) -> None:
        """The engine's last word: what it wrote is kept if it is whole."""
        if finished.usage.output_tokens == len(self._ids):
            text = "".join(self._pieces)
            self._cache.keep(self._key, CachedAnswer(tuple(self._ids), text, finished.text, finished.reason, prompt_tokens))

    def began(self) -> None:
        """An attempt at the engine begins; what an earlier one brought is forgotten."""
        self._ids.clear()
        self._pieces.clear()
