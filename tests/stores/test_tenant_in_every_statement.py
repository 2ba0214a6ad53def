"""Every statement names its tenant, but for a few that are listed here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from antiphon.core.errors import Conflict
from antiphon.core.ids import IdKind, KeyId, MemoryId, MessageId, ShareId, TenantId
from antiphon.core.prompts import Memory, Preamble, Summary
from antiphon.core.tenancy import ApiKey, Scope, Tenant, UserRole
from antiphon.stores.accounts.base import Session, UserChange
from antiphon.stores.conversations.base import ConversationFilter, ConversationPatch, Feedback, Owner
from antiphon.stores.generations.base import ContinueMessage, RegenerateUnder
from antiphon.stores.usage.base import TotalsQuestion
from tests.contracts.scene import Scene
from tests.contracts.test_usage import record

ACROSS_TENANTS = {
    "count_open": "how busy the server is",
    "delete_user": "whether an owner is left",
    "due": "what the sweeper may claim",
    "end_session": "a secret",
    "ensure_owner": "the first start",
    "find_replay": "the key's scope names the tenant",
    "ledger": "an account of all tenants, for the server's owner and for limits at a start",
    "outbox": "the relay carries every tenant's records",
    "key": "a secret",
    "password_of": "a name, at the door: whose it is shows only then",
    "purge": "what is due, whosever it is",
    "redeem_link": "a secret",
    "retire": "the tenants that keep things for a time only",
    "search_index": "a document's number, made or found under its tenant",
    "session": "a secret",
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
    return re.search(r"\btenant_id = \?", statement.partition("WHERE")[2]) is not None


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


async def test_every_statement_names_its_tenant(scene: Scene) -> None:
    used: set[str] = set()
    refused: list[str] = []
    with statements_watched(used, refused):
        await use_accounts(scene)
        await use_conversations_and_generations(scene)
        await use_prompts_and_personal_texts(scene)
        await use_shares_and_custody(scene)
        await use_outbox_and_ledger(scene)
    assert refused == []
    assert used == set(ACROSS_TENANTS)


async def use_outbox_and_ledger(scene: Scene) -> None:
    entries = await scene.outbox.unsent(limit=10)
    await scene.outbox.mark_refused([entry.number for entry in entries])
    await scene.outbox.mark_sent([entry.number for entry in entries], now=scene.clock.now())
    await scene.outbox.drop_sent(before=scene.clock.now(), limit=10)
    await scene.outbox.waiting()
    now, tenant_id = scene.clock.now(), TenantId("tenant_1")
    await scene.ledger.put([record(1), record(2)])
    await scene.ledger.recent(since=now)
    await scene.ledger.records(tenant_id, since=now, limit=3)
    for whose in (None, tenant_id):
        await scene.ledger.totals(TotalsQuestion(now, now, ("user", "day"), whose))


async def use_accounts(scene: Scene) -> None:
    accounts, now = scene.accounts, scene.clock.now()
    later = now + timedelta(hours=1)
    tenant = Tenant(TenantId("tenant_1"), "home", now)
    user = await accounts.ensure_owner(tenant, scene.new_user(tenant, "me", UserRole.OWNER))
    await scene.user(await scene.tenant("other"), "you")
    await accounts.tenants()
    await accounts.users(tenant.id)
    await accounts.users(None)
    await accounts.user_by_name("you")
    await accounts.create_link(b"link", user.id, expires_at=later)
    await accounts.redeem_link(b"link", b"session", now=now, expires_at=later)
    await accounts.session(b"session", now=now)
    await accounts.end_session(b"session")
    key = ApiKey(KeyId(scene.ids.new(IdKind.KEY)), tenant.id, user.id, "k", frozenset({Scope.CHAT}), "wxyz", now)
    await accounts.create_key(key, b"secret")
    await accounts.key(b"secret")
    await accounts.open_session(Session(b"other", user.id, now, later))
    await accounts.sessions(user.id, now=now)
    await accounts.set_password(user.id, "hash", keep=b"other")
    await accounts.password(user.id)
    await accounts.password_of("me", "home")
    await accounts.change_user(tenant.id, user.id, UserChange(plan="pro"))
    await accounts.keys(tenant.id, user.id)
    await accounts.revoke_key(tenant.id, key.id, now=now)
    await accounts.disable_user((await accounts.user_by_name("you")).id)
    other = await scene.user(tenant, "boss", UserRole.OWNER)
    await accounts.delete_user(other.id)
    with pytest.raises(Conflict):
        await accounts.delete_user(user.id)


async def use_conversations_and_generations(scene: Scene) -> None:
    conversations, generations, now = scene.conversations, scene.generations, scene.clock.now()
    owner = scene.owner()
    head = await scene.conversation(owner)
    turn = await generations.accept(scene.turn(owner, head.id, scene.text(), scene.key()))
    await generations.find_replay(scene.key(), now=now)
    await generations.due(now=now, limit=5)
    await generations.claim(turn.generation_id, now=now, lease_until=now + scene.leases)
    await generations.heartbeat(turn.generation_id, 1, lease_until=now + scene.leases)
    await generations.checkpoint(turn.generation_id, 1, text="half", seq=2)
    await generations.request_cancel(owner, turn.generation_id, now=now)
    await generations.finalise(scene.end(turn, 1, "half", finish_reason="length"))
    await generations.get(owner, turn.generation_id)
    await generations.count_open()
    await generations.opened(limit=5)
    await generations.now()
    more = await generations.accept(scene.turn(owner, head.id, ContinueMessage(turn.message_id)))
    await scene.finish(more)
    await scene.exchange(owner, head.id)
    await conversations.update(owner, head.id, ConversationPatch(title="t", current_leaf_id=turn.message_id), now=now)
    await scene.exchange(owner, head.id)
    await generations.accept(scene.turn(owner, head.id, RegenerateUnder(turn.user_message_id or MessageId(""))))
    first = await conversations.page(owner, limit=1, after=None)
    await scene.conversation(owner)
    first = await conversations.page(owner, limit=1, after=None)
    await conversations.page(owner, limit=1, after=first.next_cursor)
    await conversations.get(owner, head.id)
    await conversations.path(owner, head.id, leaf=None, limit=9, before=None)
    await conversations.branch(owner, head.id, turn.message_id, last=9)
    await conversations.branch_ids(owner, head.id, turn.message_id)
    await conversations.texts(owner, head.id, [turn.message_id])
    await conversations.tree(owner, head.id)
    await conversations.message(owner, turn.message_id)
    await conversations.put_feedback(owner, turn.message_id, Feedback(1, ("good",), "yes"), now=now)
    await conversations.update(owner, head.id, ConversationPatch(folder="work"), now=now)
    await conversations.page(owner, limit=1, after=None, only=ConversationFilter(pinned=False, archived=False, folder="work"))
    await conversations.folders(owner)
    await conversations.search(owner, "hello it", limit=5, after=None)
    await conversations.suggest_title(owner, (await scene.conversation(owner)).id, "a title")
    await conversations.delete(owner, head.id, now=now)


async def use_prompts_and_personal_texts(scene: Scene) -> None:
    owner, now = scene.owner(), scene.clock.now()
    head = await scene.conversation(owner)
    preamble = Preamble("d", "be brief", "- tea")
    turn = await scene.generations.accept(replace(scene.turn(owner, head.id, scene.text()), preamble=preamble))
    await scene.prompts.add_summary(owner, Summary(head.id, turn.message_id, "they spoke", "extract", now))
    await scene.prompts.summaries(owner, head.id)
    await scene.prompts.preamble(owner, head.id, "d")
    await scene.prompts.add_counts(owner, head.id, "smol", {turn.message_id: 3})
    await scene.prompts.counts(owner, head.id, "smol")
    memory = Memory(MemoryId("mem_1"), "tea", now)
    await scene.personal.put_instructions(owner, "be brief")
    await scene.personal.add_memory(owner, memory, at_most=3)
    await scene.personal.change_memory(owner, memory.id, "coffee")
    await scene.personal.get(owner)
    await scene.personal.forget_memory(owner, memory.id)
    await scene.personal.forget(owner)


async def use_shares_and_custody(scene: Scene) -> None:
    owner, now = scene.owner(), scene.clock.now()
    owner = Owner((await scene.tenant("keeps")).id, owner.user_id)
    head = await scene.conversation(owner)
    await scene.exchange(owner, head.id)
    for number in range(2):
        await scene.shares.create(owner, head.id, share_id=ShareId(scene.ids.new(IdKind.SHARE)), token=f"t{number}", now=now)
    listed = await scene.shares.page(owner, limit=1, after=None)
    await scene.shares.page(owner, limit=1, after=listed.next_cursor)
    await scene.shares.read("t0")
    await scene.shares.revoke(owner, listed.shares[0].id, now=now)
    await scene.custody.set_retention(owner, 1, now=now)
    await scene.custody.retention(owner.tenant_id)
    await scene.custody.retire(now=now + timedelta(days=2), limit=5)
    await scene.custody.record(owner, "key.create", "key_1", now=now)
    await scene.custody.audit_page(owner.tenant_id, limit=1, after=None)
    await scene.custody.feedback_page(owner.tenant_id, limit=1, after=None)
    await scene.custody.purge(deleted_before=now + timedelta(days=3), limit=5)
    await scene.conversations.delete_all(owner, now=now)
