"""A store as large as a busy installation's, written in bulk: 100,000 conversations, 2 million messages, one user with half of them."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path

from antiphon.core.clock import to_ms
from antiphon.core.ids import TenantId, UserId
from antiphon.core.tenancy import Tenant, User, UserRole
from antiphon.stores.accounts.sql import SqlAccounts
from antiphon.stores.conversations.base import Owner
from antiphon.stores.sql import schema, search_sqlite
from antiphon.stores.sql.sqlite import SqliteDatabase
from benchmarks.report import progress

RARE, COMMON, CJK = "zyqvex", "water", "銀河"
MESSAGES_EACH = 20
OTHERS = 500
_TENANT = TenantId("tenant_01900000-0000-7000-8000-000000000001")
_BASE_MS = to_ms(datetime(2026, 1, 1, tzinfo=UTC))
_CJK_TEXT = "夜の空に星が見える 銀河の中心には大きな黒い穴がある 我们的太阳系在银河系的边缘 東京の天気は今日も晴れです"
_BATCH = 2000
_MESSAGE = (
    "INSERT INTO messages (tenant_id, conversation_id, id, parent_id, role, status, created_at, model, finish_reason, content_tokens, "
    "content) "
    "VALUES (?, ?, ?, ?, ?, 'complete', ?, ?, ?, 20, ?)"
)
_CONVERSATION = (
    "INSERT INTO conversations (tenant_id, id, user_id, title, current_leaf_id, version, pinned, archived, temporary, created_at, "
    "updated_at) VALUES (?, ?, ?, ?, ?, 1, 0, 0, 0, ?, ?)"
)


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts whose words are as unevenly common as people's are; drawn from a stock, since making them takes longer than storing."""

    stock: tuple[str, ...]

    @staticmethod
    def of(seed: int, size: int = 60_000) -> Texts:
        source = random.Random(seed)
        letters = "etaoinshrdlcumwfgypbvk"
        words = ["".join(source.choice(letters) for _ in range(source.randint(2, 9))) for _ in range(20_000)]
        words[5] = COMMON
        weights = tuple(accumulate(1 / (rank + 3) for rank in range(len(words))))
        stock: list[str] = []
        for number in range(size):
            text = source.choices(words, cum_weights=weights, k=source.randint(6, 24))
            if number % 20 == 0:
                start = source.randrange(len(_CJK_TEXT) - 12)
                text.append(_CJK_TEXT[start : start + 12])
            stock.append(" ".join(text))
        return Texts(tuple(stock))

    def text(self, number: int) -> str:
        text = self.stock[number * 7_919 % len(self.stock)]
        return f"{text} {RARE}" if number % 9_973 == 0 else text


def store_folder(conversations: int) -> Path:
    """Where such a store is kept between runs."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "antiphon-bench" / f"store-{schema.versions()[-1]}-{conversations}"


def ensure_store(conversations: int) -> Path:
    """The folder of a store of that size, made if there is none: some minutes for 100,000."""
    folder = store_folder(conversations)
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob("antiphon.db*"):
            left.unlink()
        began = time.perf_counter()
        users = asyncio.run(_accounts(folder / "antiphon.db"))
        _fill(folder / "antiphon.db", users, conversations)
        (folder / "complete").touch()
        progress(f"store: {conversations} conversations written in {time.perf_counter() - began:.0f} s")
    return folder


async def _accounts(path: Path) -> list[UserId]:
    """The owner, who will have half of everything, and the others."""
    db = SqliteDatabase(path)
    await db.open()
    accounts, now = SqlAccounts(db), datetime.now(UTC)
    users: list[UserId] = []
    made: list[User] = []
    for number in range(OTHERS + 1):
        user_id = UserId(f"user_01900000-0000-7000-8000-{number:012x}")
        role, name = (UserRole.OWNER, "owner") if number == 0 else (UserRole.MEMBER, f"user{number}")
        user = User(user_id, _TENANT, name, role, "free", disabled=False, created_at=now)
        made.append(user)
        users.append(user_id)
    await accounts.ensure_owner(Tenant(_TENANT, "home", now), made[0])
    await asyncio.gather(*(accounts.create_user(user) for user in made[1:]))
    await db.close()
    return users


def _fill(path: Path, users: list[UserId], count: int) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -1000000", "foreign_keys = OFF"):
        db.execute(f"PRAGMA {pragma}")
    indexes = list(db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"))
    for name, _ in indexes:
        db.execute(f"DROP INDEX {name}")
    db.execute(f"INSERT INTO {search_sqlite.INDEX} ({search_sqlite.INDEX}, rank) VALUES ('automerge', 0)")
    db.execute(f"INSERT INTO {search_sqlite.INDEX} ({search_sqlite.INDEX}, rank) VALUES ('hashsize', {256 << 20})")
    texts, doc = Texts.of(1), 0
    for start in range(0, count, _BATCH):
        db.execute("BEGIN")
        for number in range(start, min(start + _BATCH, count)):
            doc = _conversation(db, texts, users, number, doc)
        db.execute("COMMIT")
        if start % 10_000 == 0:
            progress(f"store: {start} conversations")
    db.execute(f"INSERT INTO {search_sqlite.INDEX} ({search_sqlite.INDEX}, rank) VALUES ('automerge', 4)")
    db.execute(f"INSERT INTO {search_sqlite.INDEX} ({search_sqlite.INDEX}, rank) VALUES ('hashsize', {1 << 20})")
    for _, sql in indexes:
        db.execute(sql)
    db.execute("PRAGMA journal_mode = WAL")
    db.close()


def _conversation(db: sqlite3.Connection, texts: Texts, users: list[UserId], number: int, doc: int) -> int:
    """Write one conversation, a path of ``MESSAGES_EACH`` messages, with its documents; returns the last document's number."""
    user = users[0] if number % 2 == 0 else users[1 + number // 2 % OTHERS]
    conversation, at = f"conv_01900000-0000-7000-8000-{number:012x}", _BASE_MS + number * 60_000
    title = " ".join(texts.text(number).split()[:5])
    rows = list(_messages(texts, conversation, number, at))
    db.execute(_CONVERSATION, (_TENANT, conversation, user, title, rows[-1][2], at, at))
    db.executemany(_MESSAGE, rows)
    searched = [(None, title), *((row[2], str(row[-1])) for row in rows)]
    owner = Owner(_TENANT, user)
    documents = [(doc + 1 + place, _TENANT, user, conversation, message) for place, (message, _) in enumerate(searched)]
    db.executemany("INSERT INTO search_docs VALUES (?, ?, ?, ?, ?)", documents)
    entries = [search_sqlite.entry(owner, doc + 1 + place, text) for place, (_, text) in enumerate(searched)]
    db.executemany(f"INSERT INTO {search_sqlite.INDEX} (rowid, owner, body, short) VALUES (:doc, :owner, :body, :short)", entries)
    return doc + len(searched)


def _messages(texts: Texts, conversation: str, number: int, at: int) -> Iterator[tuple[str | int | None, ...]]:
    parent: str | None = None
    for place in range(MESSAGES_EACH):
        counted = number * MESSAGES_EACH + place
        name = f"msg_01900000-0000-7000-8000-{counted:012x}"
        role, model, reason = ("assistant", "smol", "stop") if place % 2 else ("user", None, None)
        yield _TENANT, conversation, name, parent, role, at + place, model, reason, texts.text(counted)
        parent = name
