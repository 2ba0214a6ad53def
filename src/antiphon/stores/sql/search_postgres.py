"""The search index on PostgreSQL: for each document the numbers of its three-character pieces in one array, under a GIN index.

The pieces are made here, not by ``pg_trgm``: that one is an extension, and under the C locale it drops every character that is not
ASCII. A piece's number is a hash of it, and so is one more that stands for the user: the index intersects the user's documents with
the term's. An array says which pieces a text has, not where, so each text found is looked through before it counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from zlib import crc32

import sqlalchemy as sa

from antiphon.core.ids import ConversationId, MessageId
from antiphon.stores.conversations.base import Owner
from antiphon.stores.conversations.search_text import SEARCH_WINDOW, Candidate, matches, normalised, short_grams, short_token
from antiphon.stores.sql.prepared import Prepared, matching
from antiphon.stores.sql.tables import search_docs

_NEWEST = 2**62

_add = Prepared(
    sa.text(
        "WITH made AS ("
        "INSERT INTO search_docs (tenant_id, user_id, conversation_id, message_id) "
        "VALUES (:tenant_id, :user_id, :conversation_id, :message_id) RETURNING doc) "
        "INSERT INTO search_index (doc, pieces) SELECT doc, CAST(:pieces AS integer[]) FROM made"
    )
)
# A document's pieces go with it.
_take = Prepared(
    search_docs.delete().where(
        *matching(search_docs, "tenant_id", "conversation_id"), search_docs.c.message_id.is_not_distinct_from(sa.bindparam("message_id"))
    )
)
_drop = Prepared(search_docs.delete().where(*matching(search_docs, "tenant_id", "conversation_id")))
_find = Prepared(
    sa.text(
        "SELECT d.doc, d.conversation_id, d.message_id, c.title, coalesce(m.content, c.title) AS text "
        "FROM search_index AS i JOIN search_docs AS d ON d.doc = i.doc "
        "JOIN conversations AS c ON c.tenant_id = d.tenant_id AND c.id = d.conversation_id "
        "LEFT JOIN messages AS m ON m.tenant_id = d.tenant_id AND m.conversation_id = d.conversation_id AND m.id = d.message_id "
        "WHERE i.pieces @> CAST(:pieces AS integer[]) AND d.doc <= :start AND d.tenant_id = :tenant_id AND d.user_id = :user_id "
        "AND c.deleted_at IS NULL ORDER BY d.doc DESC LIMIT :limit"
    )
)


class PostgresIndex:
    def create(self, tx: sa.Connection) -> None:
        tx.exec_driver_sql(
            "CREATE TABLE search_index (doc bigint PRIMARY KEY REFERENCES search_docs ON DELETE CASCADE, pieces integer[] NOT NULL)"
        )
        tx.exec_driver_sql("CREATE INDEX search_index_pieces ON search_index USING gin (pieces)")

    def add(self, tx: sa.Connection, owner: Owner, conversation_id: ConversationId, texts: Sequence[tuple[MessageId | None, str]]) -> None:
        place = {"tenant_id": owner.tenant_id, "user_id": owner.user_id, "conversation_id": conversation_id}
        given = ((message_id, _array(_pieces_of(owner, text))) for message_id, text in texts)
        _add.run_each(tx, [{**place, "message_id": message_id, "pieces": pieces} for message_id, pieces in given])

    def take(self, tx: sa.Connection, owner: Owner, conversation_id: ConversationId, text: tuple[MessageId | None, str]) -> None:
        _take.run(tx, {"tenant_id": owner.tenant_id, "conversation_id": conversation_id, "message_id": text[0]})

    def drop_conversation(self, tx: sa.Connection, owner: Owner, conversation_id: ConversationId) -> None:
        _drop.run(tx, {"tenant_id": owner.tenant_id, "conversation_id": conversation_id})

    def find(self, tx: sa.Connection, owner: Owner, terms: Sequence[str], start: int | None) -> list[Candidate]:
        place = {"tenant_id": owner.tenant_id, "user_id": owner.user_id, "limit": SEARCH_WINDOW}
        wanted = _array({_owner_piece(owner), *(piece for term in terms for piece in _pieces_of_term(term))})
        window: list[Candidate] = []
        below = _NEWEST if start is None else start
        while True:
            found = [Candidate(*row) for row in _find.run(tx, {**place, "pieces": wanted, "start": below})]
            window += [candidate for candidate in found if matches(terms, candidate.text)]
            if len(found) < SEARCH_WINDOW or len(window) >= SEARCH_WINDOW:
                return window[:SEARCH_WINDOW]
            below = found[-1].doc - 1

    def tidy(self, tx: sa.Connection, pages: int) -> bool:  # noqa: ARG002
        """Does nothing: the server's own vacuum takes what was deleted out of its files."""
        return False


def _pieces_of(owner: Owner, text: str) -> set[int]:
    body = normalised(text)
    return {_owner_piece(owner), *_numbered(_threes(body.lower())), *_numbered(_threes(short_grams(body)))}


def _pieces_of_term(term: str) -> Iterator[int]:
    return _numbered(_threes(term) if len(term) > 2 else (short_token(term),))


def _threes(text: str) -> set[str]:
    return {text[place : place + 3] for place in range(len(text) - 2)}


def _numbered(pieces: Iterable[str]) -> Iterator[int]:
    """A 32-bit number with a sign, as PostgreSQL's ``integer`` is."""
    return (crc32(piece.encode("utf-8", "surrogatepass")) - 2**31 for piece in pieces)


@lru_cache(maxsize=4096)
def _owner_piece(owner: Owner) -> int:
    return next(_numbered((f"{owner.tenant_id}/{owner.user_id}",)))


def _array(numbers: Iterable[int]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"
