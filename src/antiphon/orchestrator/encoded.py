"""A tokenizer that remembers: the ids of texts that one prompt after the other holds."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from threading import Lock

from antiphon.core.messages import Role
from antiphon.engines.base import Tokenizer
from antiphon.orchestrator.parts import JOINT

_KEPT_CHARACTERS = 8_000_000


class EncodedTexts:
    """A tokenizer that remembers what it has encoded, newest first. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer, kept_characters: int = _KEPT_CHARACTERS) -> None:
        self.tokenizer = tokenizer
        self._kept_characters = kept_characters
        self._characters = 0
        self._ids: OrderedDict[str, array[int]] = OrderedDict()
        self._lock = Lock()
        self._frames = tuple(tokenizer.frame((Role.SYSTEM, Role.USER, *(Role.ASSISTANT, Role.USER) * pairs)) for pairs in range(3))
        self.bare, longer, _ = (sum(map(len, frame)) for frame in self._frames)
        self.pair = longer - self.bare
        self.regular = self._frames[2] == self._repeated(2)
        self.joint = self.count(JOINT)

    def ids(self, text: str) -> array[int]:
        """The ids of an untrusted text. Blocking where it is new; O(len(text))."""
        with self._lock:
            found = self._ids.get(text)
            if found is not None:
                self._ids.move_to_end(text)
                return found
        made = array("i", self.tokenizer.encode(text))
        with self._lock:
            if text not in self._ids:
                self._characters += len(text) + 1
            self._ids[text] = made
            while self._characters > self._kept_characters:
                dropped, _ = self._ids.popitem(last=False)
                self._characters -= len(dropped) + 1
        return made

    def frame(self, pairs: int) -> tuple[tuple[int, ...], ...]:
        """The tokenizer's frame of a system message, a question, and ``pairs`` of an answer and a question.

        Where the template writes the same round every pair, as all but odd ones do, it need not be rendered for each prompt.
        """
        if self.regular:
            return self._repeated(pairs)
        return self.tokenizer.frame((Role.SYSTEM, Role.USER, *(Role.ASSISTANT, Role.USER) * pairs))

    def _repeated(self, pairs: int) -> tuple[tuple[int, ...], ...]:
        before, asked, answered, again, end = self._frames[1]
        return (before, asked, *(answered, again) * pairs, end)

    def knows(self, text: str) -> bool:
        """Whether its ids are at hand."""
        return text in self._ids

    def count(self, text: str) -> int:
        return len(self.ids(text))

    def check(self) -> None:
        """Raises ``AssertionError`` where the books do not add up."""
        assert self._characters == sum(len(text) + 1 for text in self._ids)
        assert self._characters <= self._kept_characters or len(self._ids) <= 1
