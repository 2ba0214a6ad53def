"""Every statement names its tenant, but for a few that are listed here."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from antiphon.core.clock import ManualClock
from antiphon.core.errors import Conflict
from antiphon.core.ids import IdKind, ShareId
from antiphon.core.tenancy import UserRole
from antiphon.stores.conversations.base import ConversationFilter, ConversationPatch, Conversations, Feedback
from antiphon.stores.sql.postgres import PostgresDatabase
from antiphon.stores.sql.sqlite import SqliteDatabase
from antiphon.stores.transfers.sql import SqlTransfers
from tests.contracts.scene import Scene, sql_scene
from tests.ids import CountingIds
from tests.stores.acts import PORTS, acts_of

ACROSS_TENANTS = {
    "abuse": "what is held against accounts, for the limits of all tenants",
    "count_open": "how busy the server is",
    "delete_user": "whether an owner is left",
    "due": "what the sweeper may claim",
    "end_session": "a secret",
    "ensure_owner": "the first start",
    "find_replay": "the key's scope names the tenant",
    "identities": "one user, who has asked for it",
    "ledger": "an account of all tenants, for the server's owner and for limits at a start",
    "outbox": "the relay carries every tenant's records",
    "key": "a secret",
    "open_usage": "what servers that died left open, whosever it is",
    "password_of": "a name, at the door: whose it is shows only then",
    "purge": "what is due, whosever it is",
    "redeem_link": "a secret",
    "retire": "the tenants that keep things for a time only",
    "search_index": "a document's number, made or found under its tenant",
    "session": "a secret",
    "user_of_identity": "an identity, which says whose it is",
    "share": "a secret",
    "tenant_of_generation": "the tenant behind an id that only runners hold",
    "now": "the store's clock",
    "tenants": "the list of tenants itself",
    "user": "the tenant behind an id",
    "user_by_name": "a command of the server's owner",
    "users": "a command of the server's owner",
}


def names_its_tenant(statement: str) -> bool:
    """Whether rows are bound to a tenant: by the condition of a select, update or delete, by the columns of an insert."""
    if statement.startswith("INSERT"):
        return "tenant_id" in statement.partition("VALUES")[0]
    return re.search(r"\btenant_id = (\?|%\()", statement.partition("WHERE")[2]) is not None


@contextmanager
def statements_watched(used: set[str], refused: list[str]) -> Iterator[None]:
    def look(_connection: object, _cursor: object, statement: str, _values: object, context: object, _many: bool) -> None:
        options = getattr(context, "execution_options", {})
        why = options.get("across_tenants")
        if why is not None:
            used.add(why)
        elif statement.startswith(("SELECT", "INSERT", "UPDATE", "DELETE")) and not names_its_tenant(statement):
            refused.append(statement)

    event.listen(sa.Engine, "before_cursor_execute", look)
    try:
        yield
    finally:
        event.remove(sa.Engine, "before_cursor_execute", look)


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("SELECT tenant_id FROM messages", False),
        ("SELECT tenant_id FROM messages WHERE id = ?", False),
        ("SELECT id FROM messages WHERE messages.tenant_id = ? AND id = ?", True),
        ("UPDATE messages SET tenant_id = ? WHERE id = ?", False),
        ("DELETE FROM messages", False),
        ("INSERT INTO messages (tenant_id, id) VALUES (?, ?)", True),
        ("INSERT INTO messages (id) VALUES (?)", False),
    ],
)
def test_the_inspection_itself(statement: str, named: bool) -> None:
    assert names_its_tenant(statement) is named


async def test_every_statement_names_its_tenant(tmp_path: Path, migrated_file: Path, clock: ManualClock, ids: CountingIds) -> None:
    used: set[str] = set()
    refused: list[str] = []
    for port in PORTS:
        (tmp_path / port.__name__).mkdir()
        db = SqliteDatabase(Path(shutil.copy(migrated_file, tmp_path / port.__name__)))
        await db.open()
        scene = sql_scene(db, clock, ids)
        with statements_watched(used, refused):
            for act in (await acts_of(scene, SqlTransfers(db), port)).values():
                await act()
            if port is Conversations:
                await go_further(scene)
        await db.close()
    assert refused == []
    assert used == set(ACROSS_TENANTS)


@pytest.mark.slow
@pytest.mark.parametrize("port", PORTS)
async def test_nor_does_one_on_postgresql_go_without(postgres: PostgresDatabase, clock: ManualClock, ids: CountingIds, port: type) -> None:
    used: set[str] = set()
    refused: list[str] = []
    scene = sql_scene(postgres, clock, ids)
    with statements_watched(used, refused):
        for act in (await acts_of(scene, SqlTransfers(postgres), port)).values():
            await act()
        if port is Conversations:
            await go_further(scene)
    assert refused == []
    assert used <= set(ACROSS_TENANTS)


async def go_further(scene: Scene) -> None:
    """Where a method has statements for another question too."""
    tenant, owner, now = await scene.tenant("further"), scene.owner(user="further"), scene.clock.now()
    head = await scene.conversation(owner)
    first = await scene.exchange(owner, head.id)
    await scene.exchange(owner, head.id, "an edit", parent=None)
    leaf = ConversationPatch(current_leaf_id=first.user_message_id, folder="work")
    await scene.conversations.update(owner, head.id, leaf, now=now)
    await scene.exchange(owner, head.id, "under the newest leaf below the current one")
    await scene.conversations.path(owner, head.id, leaf=None, limit=1, before=first.message_id)
    await scene.conversation(owner)
    page = await scene.conversations.page(owner, limit=1, after=None)
    assert page.next_cursor is not None
    only = ConversationFilter(pinned=False, archived=False, folder="work")
    await scene.conversations.page(owner, limit=1, after=page.next_cursor, only=only)
    for number in range(2):
        await scene.shares.create(owner, head.id, share_id=ShareId(scene.ids.new(IdKind.SHARE)), token=f"f{number}", now=now)
    listed = await scene.shares.page(owner, limit=1, after=None)
    await scene.shares.page(owner, limit=1, after=listed.next_cursor)
    entries = await scene.custody.audit_page(owner.tenant_id, limit=1, after=None)
    await scene.custody.audit_page(owner.tenant_id, limit=1, after=entries.next_cursor)
    for turn in (first, await scene.exchange(owner, head.id)):
        await scene.conversations.put_feedback(owner, turn.message_id, Feedback(1), now=now)
    given = await scene.custody.feedback_page(owner.tenant_id, limit=1, after=None)
    await scene.custody.feedback_page(owner.tenant_id, limit=1, after=given.next_cursor)
    user = await scene.user(tenant, "further")
    await scene.accounts.users(None)
    await scene.accounts.keys(tenant.id, user.id)
    await scene.accounts.password_of("further", "further")
    await scene.accounts.set_password(user.id, "hash", keep=b"this session")
    owners = await scene.accounts.ensure_owner(tenant, scene.new_user(tenant, "boss", UserRole.OWNER))
    with contextlib.suppress(Conflict):  # the last one
        await scene.accounts.delete_user(owners.id)
