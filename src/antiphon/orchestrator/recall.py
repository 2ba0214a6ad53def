"""Earlier turns, searched again: the passages of conversations that are in use, with their vectors, in memory.

Everything here can be made anew from the store: it is a cache of the few hundred conversations used last.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock

from antiphon.core.ids import ConversationId, MessageId
from antiphon.core.messages import Message, Role, Snippet
from antiphon.engines.base import Embedder
from antiphon.orchestrator.prompt import is_said
from antiphon.orchestrator.relevance import Passage, choose, passages_of

_CONVERSATIONS = 256


@dataclass(slots=True)
class _Entry:
    """One conversation: its messages' passages, each with its vector. ``lengths``: how long a message was when it was read."""

    lengths: dict[MessageId, int] = field(default_factory=dict[MessageId, int])
    passages: dict[MessageId, tuple[Passage, ...]] = field(default_factory=dict[MessageId, tuple[Passage, ...]])
    vectors: dict[MessageId, tuple[bytes, ...]] = field(default_factory=dict[MessageId, tuple[bytes, ...]])


class Recall:
    """Blocking, and safe to use from several threads: ``learn`` before ``search``. Without an embedder it goes by words alone."""

    def __init__(self, embedder: Embedder | None, conversations: int = _CONVERSATIONS) -> None:
        self._embedder = embedder
        self._most = conversations
        self._entries: OrderedDict[ConversationId, _Entry] = OrderedDict()
        self._lock = Lock()

    def missing(self, conversation_id: ConversationId, message_ids: Iterable[MessageId]) -> tuple[MessageId, ...]:
        """Which of these messages have not been read."""
        with self._lock:
            entry = self._entries.get(conversation_id)
            known = {} if entry is None else entry.lengths
            return tuple(message_id for message_id in message_ids if message_id not in known)

    def learn(self, conversation_id: ConversationId, messages: Sequence[Message]) -> None:
        """Read messages; those whose text has not grown since are read already."""
        with self._lock:
            entry = self._entry(conversation_id)
            new = [message for message in messages if entry.lengths.get(message.id) != len(message.content)]
        made = [(message, passages_of(message.id, message.role, message.content) if _counts(message) else ()) for message in new]
        vectors = iter(self._embed([passage.text for _, passages in made for passage in passages]))
        with self._lock:
            for message, passages in made:
                entry.lengths[message.id] = len(message.content)
                entry.passages[message.id] = passages
                entry.vectors[message.id] = tuple(next(vectors) for _ in passages)

    def search(
        self,
        conversation_id: ConversationId,
        among: Collection[MessageId],
        in_view: Collection[MessageId],
        question: str,
        *,
        at_most: int,
        count: Callable[[Snippet], int],
    ) -> tuple[Snippet, ...]:
        """The passages of the messages ``among`` that ``question`` refers to, at most ``at_most`` tokens of them, oldest first.

        Those ``in_view`` are read by the model anyway: they are no snippets, but what is less to the point than they is left alone.
        """
        with self._lock:
            entry = self._entry(conversation_id)
            read = [message_id for message_id in among if message_id in entry.passages]
            passages = [passage for message_id in read for passage in entry.passages[message_id]]
            vectors = [vector for message_id in read for vector in entry.vectors[message_id]]
        if not passages:
            return ()
        cosines = [0.0] * len(vectors) if self._embedder is None else self._embedder.cosines(question, vectors)
        return choose(question, passages, cosines, in_view, at_most=at_most, count=count)

    def forget(self, conversation_id: ConversationId) -> None:
        """Keep nothing of a conversation that was deleted."""
        with self._lock:
            self._entries.pop(conversation_id, None)

    def check(self) -> None:
        """Raises ``AssertionError`` where it holds more than it may, or a passage without its vector."""
        with self._lock:
            assert len(self._entries) <= self._most
            for entry in self._entries.values():
                assert entry.lengths.keys() == entry.passages.keys() == entry.vectors.keys()
                assert all(len(entry.passages[name]) == len(entry.vectors[name]) for name in entry.passages)

    def _embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        return [b""] * len(texts) if self._embedder is None else self._embedder.embed(texts)

    def _entry(self, conversation_id: ConversationId) -> _Entry:
        entry = self._entries.get(conversation_id)
        if entry is None:
            entry = self._entries[conversation_id] = _Entry()
            while len(self._entries) > self._most:
                self._entries.popitem(last=False)
        self._entries.move_to_end(conversation_id)
        return entry


def _counts(message: Message) -> bool:
    return message.role is Role.USER or is_said(message)
