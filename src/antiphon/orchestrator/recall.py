"""Earlier turns, searched again: the passages of conversations that are in use, with their vectors, in memory.

Everything here can be made anew from the store: it is a cache of the few hundred conversations used last.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock

from antiphon.core.ids import ConversationId, MessageId
from antiphon.core.messages import Message, Role, Snippet
from antiphon.engines.base import Embedder
from antiphon.orchestrator.prompt import is_said
from antiphon.orchestrator.relevance import LEAST_COSINE, PassageIndex, Room, choose, passages_of

_CONVERSATIONS = 256
_FORGOTTEN = 1024


@dataclass(slots=True)
class _Entry:
    """One conversation: its passages, and their vectors one after the other. ``lengths``: how long a message was when it was read."""

    lengths: dict[MessageId, int] = field(default_factory=dict[MessageId, int])
    index: PassageIndex = field(default_factory=PassageIndex)
    vectors: bytearray = field(default_factory=bytearray)


class Recall:
    """Blocking, and safe to use from several threads: ``learn`` before ``search``. Without an embedder it goes by words alone."""

    def __init__(self, embedder: Embedder | None, conversations: int = _CONVERSATIONS) -> None:
        self._embedder = embedder
        self._most = conversations
        self._entries: OrderedDict[ConversationId, _Entry] = OrderedDict()
        self._forgotten: OrderedDict[ConversationId, None] = OrderedDict()
        self._lock = Lock()

    def missing(self, conversation_id: ConversationId, message_ids: Sequence[MessageId]) -> tuple[MessageId, ...]:
        """Which of these messages have not been read."""
        with self._lock:
            entry = self._entries.get(conversation_id)
            if entry is None:
                return tuple(message_ids)
            known = entry.lengths
            return () if all(map(known.__contains__, message_ids)) else tuple(one for one in message_ids if one not in known)

    def learn(self, conversation_id: ConversationId, messages: Sequence[Message]) -> None:
        """Read messages; those whose text has not grown since are read already."""
        with self._lock:
            entry = self._entry(conversation_id)
            new = [message for message in messages if entry.lengths.get(message.id) != len(message.content)]
        made = [(message, passages_of(message.id, message.role, message.content) if _counts(message) else ()) for message in new]
        vectors = [self._embed([passage.text for passage in passages]) for _, passages in made]
        with self._lock:
            for (message, passages), some in zip(made, vectors, strict=True):
                if message.id in entry.lengths:
                    _leave_out(entry, message.id)
                entry.lengths[message.id] = len(message.content)
                entry.index.add(message.id, passages)
                entry.vectors += some

    def search(
        self,
        conversation_id: ConversationId,
        path: Sequence[MessageId],
        in_view: Collection[MessageId],
        question: str,
        room: Room,
    ) -> tuple[Snippet, ...]:
        """The passages on the branch ``path`` that ``question`` refers to, as many as the ``room`` takes, oldest first.

        Those ``in_view`` are read by the model anyway: they are no snippets, but what is less to the point than they is left alone.
        """
        with self._lock:
            entry = self._entry(conversation_id)
            if not entry.index.passages:
                return ()
            cosines: Mapping[int, float] = {}
            if self._embedder is not None:
                cosines = self._embedder.near(question, entry.vectors, LEAST_COSINE)
            return choose(question, entry.index.on(path), cosines, in_view, room)

    def forget(self, conversation_id: ConversationId) -> None:
        """Keep nothing of a conversation that was deleted, nor of what is being read of it now."""
        with self._lock:
            self._entries.pop(conversation_id, None)
            self._forgotten[conversation_id] = None
            if len(self._forgotten) > _FORGOTTEN:
                self._forgotten.popitem(last=False)

    def check(self) -> None:
        """Raises ``AssertionError`` where it holds more than it may, or a passage without its vector."""
        with self._lock:
            assert len(self._entries) <= self._most
            for entry in self._entries.values():
                entry.index.check()
                passages = sum(len(entry.index.rows(message_id)) for message_id in entry.lengths)
                assert passages == len(entry.index.passages)
                assert len(entry.vectors) % max(passages, 1) == 0

    def _embed(self, texts: Sequence[str]) -> bytes:
        return b"" if self._embedder is None else self._embedder.embed(texts)

    def _entry(self, conversation_id: ConversationId) -> _Entry:
        if conversation_id in self._forgotten:
            return _Entry()
        entry = self._entries.get(conversation_id)
        if entry is None:
            entry = self._entries[conversation_id] = _Entry()
            while len(self._entries) > self._most:
                self._entries.popitem(last=False)
        self._entries.move_to_end(conversation_id)
        return entry


def _leave_out(entry: _Entry, message_id: MessageId) -> None:
    """Number the passages anew without those of one message, whose text has grown."""
    passages, size = entry.index.passages, len(entry.vectors) // max(len(entry.index.passages), 1)
    index, vectors = PassageIndex(), bytearray()
    for other in entry.lengths:
        rows = entry.index.rows(other)
        if other != message_id:
            index.add(other, passages[rows.start : rows.stop])
            vectors += entry.vectors[size * rows.start : size * rows.stop]
    entry.index, entry.vectors = index, vectors


def _counts(message: Message) -> bool:
    return message.role is Role.USER or is_said(message)
