"""The search index on SQLite: an FTS5 table of trigrams without contents, beside a plain table that says whose each document is.

Column ``owner`` holds three characters, one trigram, that stand for the user: FTS5 walks the user's documents and the term's
together, newest first, so a common word costs a user no more than a rare one. A document leaves the index by the text it came with, so
changes are told with the text before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import sqlalchemy as sa

from antiphon.core.ids import ConversationId, MessageId
from antiphon.stores.conversations.base import Owner
from antiphon.stores.conversations.search_text import SEARCH_WINDOW, Candidate, normalised, short_grams, short_token
from antiphon.stores.sql.base import across_tenants
from antiphon.stores.sql.prepared import Prepared
from antiphon.stores.sql.tables import search_docs

INDEX = "search_index"
_ALPHABET_START, _ALPHABET = 0xF0000, 65_000
_WHY = "search_index"
# Twice FTS5's own: every commit adds a segment, and merging four at a time is a twentieth of what accepting a turn costs.
_MERGED_SEGMENTS = 8

_put_doc = Prepared(search_docs.insert(), columns=("tenant_id", "user_id", "conversation_id", "message_id"))
_last_doc = Prepared(sa.text("SELECT last_insert_rowid()"), across=_WHY)
_all_changes = Prepared(sa.text("SELECT total_changes()"), across=_WHY)
_put = Prepared(
    sa.text(f"INSERT INTO {INDEX} (rowid, owner, body, short) VALUES (:doc, :owner, :body, :short)"),  # noqa: S608
    across=_WHY,
)
_take = Prepared(
    sa.text(f"INSERT INTO {INDEX} ({INDEX}, rowid, owner, body, short) VALUES ('delete', :doc, :owner, :body, :short)"),  # noqa: S608
    across=_WHY,
)
_doc_of = Prepared(
    sa.select(search_docs.c.doc).where(
        search_docs.c.tenant_id == sa.bindparam("tenant_id"),
        search_docs.c.conversation_id == sa.bindparam("conversation_id"),
        search_docs.c.message_id.is_not_distinct_from(sa.bindparam("message_id")),
    )
)
_drop_doc = Prepared(
    search_docs.delete().where(search_docs.c.tenant_id == sa.bindparam("tenant_id"), search_docs.c.doc == sa.bindparam("doc"))
)
_docs_in = Prepared(
    sa.text(
        "SELECT d.doc, coalesce(m.content, c.title) FROM search_docs AS d "
        "JOIN conversations AS c ON c.tenant_id = d.tenant_id AND c.id = d.conversation_id "
        "LEFT JOIN messages AS m ON m.tenant_id = d.tenant_id AND m.conversation_id = d.conversation_id AND m.id = d.message_id "
        "WHERE d.tenant_id = :tenant_id AND d.conversation_id = :conversation_id"
    )
)
_drop_docs = Prepared(
    search_docs.delete().where(
        search_docs.c.tenant_id == sa.bindparam("tenant_id"), search_docs.c.conversation_id == sa.bindparam("conversation_id")
    )
)
_find = Prepared(
    sa.text(
        "SELECT d.doc, d.conversation_id, d.message_id, c.title, coalesce(m.content, c.title) AS text "  # noqa: S608
        f"FROM {INDEX} JOIN search_docs AS d ON d.doc = {INDEX}.rowid "
        "JOIN conversations AS c ON c.tenant_id = d.tenant_id AND c.id = d.conversation_id "
        "LEFT JOIN messages AS m ON m.tenant_id = d.tenant_id AND m.conversation_id = d.conversation_id AND m.id = d.message_id "
        f"WHERE {INDEX} MATCH :match AND {INDEX}.rowid <= :start AND d.tenant_id = :tenant_id AND d.user_id = :user_id "
        f"AND c.deleted_at IS NULL ORDER BY {INDEX}.rowid DESC LIMIT :limit"
    )
)
_NEWEST = 2**62


class SqliteIndex:
    def create(self, tx: sa.Connection) -> None:
        columns = "owner, body, short, content = '', columnsize = 0, tokenize = 'trigram'"
        tx.exec_driver_sql(f"CREATE VIRTUAL TABLE {INDEX} USING fts5({columns})")
        statement = f"INSERT INTO {INDEX} ({INDEX}, rank) VALUES ('automerge', {_MERGED_SEGMENTS})"  # noqa: S608
        tx.execute(across_tenants(sa.text(statement), _WHY))

    def add(self, tx: sa.Connection, owner: Owner, conversation_id: ConversationId, texts: Sequence[tuple[MessageId | None, str]]) -> None:
        place = {"tenant_id": owner.tenant_id, "user_id": owner.user_id, "conversation_id": conversation_id}
        _put_doc.run_each(tx, [{**place, "message_id": message_id} for message_id, _ in texts])
        first = _last_doc.run(tx, {}).scalar_one() - len(texts) + 1  # nobody else writes before this transaction ends
        _put.run_each(tx, [entry(owner, doc, text) for doc, (_, text) in enumerate(texts, first)])

    def take(self, tx: sa.Connection, owner: Owner, conversation_id: ConversationId, text: tuple[MessageId | None, str]) -> None:
        message_id, before = text
        place = {"tenant_id": owner.tenant_id, "conversation_id": conversation_id, "message_id": message_id}
        doc = _doc_of.run(tx, place).scalar_one_or_none()
        if doc is not None:
            _take.run(tx, entry(owner, doc, before))
            _drop_doc.run(tx, {"tenant_id": owner.tenant_id, "doc": doc})

    def drop_conversation(self, tx: sa.Connection, owner: Owner, conversation_id: ConversationId) -> None:
        asked = {"tenant_id": owner.tenant_id, "conversation_id": conversation_id}
        for doc, text in _docs_in.run(tx, asked).all():
            _take.run(tx, entry(owner, doc, text))
        _drop_docs.run(tx, asked)

    def find(self, tx: sa.Connection, owner: Owner, terms: Sequence[str], start: int | None) -> list[Candidate]:
        asked = {
            "match": " AND ".join((f'owner : "{_owner_token(owner)}"', *map(_condition, terms))),
            "start": _NEWEST if start is None else start,
            "tenant_id": owner.tenant_id,
            "user_id": owner.user_id,
            "limit": SEARCH_WINDOW,
        }
        return [Candidate(*row) for row in _find.run(tx, asked)]

    def tidy(self, tx: sa.Connection, pages: int) -> bool:
        before = _changes(tx)
        statement = sa.text(f"INSERT INTO {INDEX} ({INDEX}, rank) VALUES ('merge', :pages)").bindparams(pages=pages)  # noqa: S608
        tx.execute(across_tenants(statement, _WHY))
        return _changes(tx) - before >= 2


def _changes(tx: sa.Connection) -> int:
    return _all_changes.run(tx, {}).scalar_one()


def _condition(term: str) -> str:
    """A term as an FTS5 string, which takes any character."""
    column, wanted = ("body", term) if len(term) > 2 else ("short", short_token(term))
    quoted = wanted.replace('"', '""')
    return f'{column} : "{quoted}"'


def entry(owner: Owner, doc: int, text: str) -> dict[str, str | int | bytes | None]:
    """The columns of a document in the index."""
    body = normalised(text)
    return {"doc": doc, "owner": _owner_token(owner), "body": body, "short": short_grams(body)}


@lru_cache(maxsize=4096)
def _owner_token(owner: Owner) -> str:
    digest = hashlib.sha256(f"{owner.tenant_id}/{owner.user_id}".encode()).digest()
    return "".join(chr(_ALPHABET_START + int.from_bytes(digest[place : place + 4]) % _ALPHABET) for place in (0, 4, 8))
