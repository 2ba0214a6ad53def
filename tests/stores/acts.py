"""Every method of every port of the store, ready to be called once: what a test must do to all of them, it does to these."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from antiphon.core.abuse import Case, CaseState, Signal
from antiphon.core.generation import Usage
from antiphon.core.ids import ConversationId, IdKind, KeyId, MemoryId, MessageId, ShareId
from antiphon.core.messages import Conversation, Message, MessageStatus, Role
from antiphon.core.prompts import Memory, Preamble, Summary
from antiphon.core.tenancy import ApiKey, Identity, Scope, Tenant, UserRole
from antiphon.stores.abuse.base import AbuseCases
from antiphon.stores.accounts.base import Accounts, Session, UserChange
from antiphon.stores.conversations.base import ConversationPatch, Conversations, Feedback, Owner
from antiphon.stores.custody.base import Custody
from antiphon.stores.generations.base import ContinueMessage, Generations, RegenerateUnder
from antiphon.stores.personal.base import PersonalTexts
from antiphon.stores.prompts.base import Prompts
from antiphon.stores.shares.base import Shares
from antiphon.stores.transfers.base import Origin, Transfers, WholeConversation
from antiphon.stores.usage.base import Ledger, Outbox, TotalsQuestion
from tests.contracts.scene import Scene
from tests.contracts.test_usage import record

Act = Callable[[], Awaitable[object]]

PORTS = (AbuseCases, Accounts, Conversations, Custody, Generations, Ledger, Outbox, PersonalTexts, Prompts, Shares, Transfers)
LEAVES_ROWS_ALONE = frozenset({"Custody.expire_copies", "Custody.scrub"})
"""What looks after files; it may be called again and again."""
READS = frozenset(
    {
        *(f"AbuseCases.{name}" for name in ("get", "of_tenant", "open")),
        *(
            f"Accounts.{name}"
            for name in ("key", "keys", "password", "password_of", "session", "sessions", "tenants", "user", "user_of_identity")
        ),
        *(f"Accounts.{name}" for name in ("identities", "user_by_name", "users")),
        *(f"Conversations.{name}" for name in ("branch", "branch_ids", "folders", "get", "message", "page", "path", "search")),
        *(f"Conversations.{name}" for name in ("texts", "tree")),
        *(f"Custody.{name}" for name in ("audit_page", "feedback_page", "retention")),
        *(f"Generations.{name}" for name in ("count_open", "due", "find_replay", "get", "left_usage", "now", "opened")),
        *(f"Ledger.{name}" for name in ("recent", "records", "totals")),
        *(f"Outbox.{name}" for name in ("unsent", "waiting")),
        *(f"Prompts.{name}" for name in ("counts", "preamble", "summaries")),
        *(f"Shares.{name}" for name in ("page", "read")),
        *("PersonalTexts.get", "Transfers.whole"),
    }
)


def methods_of(port: type) -> set[str]:
    """``Port.method`` for all it has."""
    return {f"{port.__name__}.{name}" for name, _ in inspect.getmembers(port, inspect.isfunction) if name[0] != "_"}


async def acts_of(scene: Scene, transfers: Transfers, port: type) -> dict[str, Act]:
    """The acts of one port by name; no two touch the same rows. Prepares what they need, so ask for one port of a store."""
    makers: Mapping[type, Callable[[], Awaitable[dict[str, Act]]]] = {
        AbuseCases: lambda: _abuse_cases(scene),
        Accounts: lambda: _accounts(scene),
        Conversations: lambda: _conversations(scene),
        Custody: lambda: _custody(scene),
        Generations: lambda: _generations(scene),
        Ledger: lambda: _ledger(scene),
        Outbox: lambda: _outbox(scene),
        PersonalTexts: lambda: _personal(scene),
        Prompts: lambda: _prompts(scene),
        Shares: lambda: _shares(scene),
        Transfers: lambda: _transfers(scene, transfers),
    }
    return {f"{port.__name__}.{name}": act for name, act in (await makers[port]()).items()}


async def _abuse_cases(scene: Scene) -> dict[str, Act]:
    cases, now, tenant = scene.cases, scene.clock.now(), await scene.tenant()
    first, second = await scene.user(tenant, "ann"), await scene.user(tenant, "bob")
    by = Owner(tenant.id, first.id)
    known = Case(tenant.id, first.id, CaseState.FLAGGED, 0.5, (Signal("fan_out", 1.0),), now)
    await cases.put(known, by, "abuse.flag", now=now)
    changed, fresh = replace(known, state=CaseState.CLEAR, version=2), replace(known, user_id=second.id)
    return {
        "open": cases.open,
        "of_tenant": lambda: cases.of_tenant(tenant.id),
        "get": lambda: cases.get(tenant.id, first.id),
        "put": lambda: cases.put(changed, by, "abuse.clear", now=now),
        "put, the first": lambda: cases.put(fresh, by, "abuse.flag", now=now, by_server=True),
    }


async def _accounts(scene: Scene) -> dict[str, Act]:
    accounts, now = scene.accounts, scene.clock.now()
    later = now + timedelta(hours=1)
    tenant = await scene.tenant()
    users = {name: await scene.user(tenant, name) for name in ("ann", "disabled", "changed", "deleted", "renewed")}
    ann = users["ann"]
    new_tenant = Tenant(tenant.id.replace("tenant_", "tenant_new_"), "new", now)  # type: ignore[arg-type]
    home = Tenant(tenant.id.replace("tenant_", "tenant_home_"), "home", now)  # type: ignore[arg-type]
    boss = scene.new_user(home, "boss", UserRole.OWNER)
    bob, carl = scene.new_user(tenant, "bob"), scene.new_user(tenant, "carl")
    keys = [ApiKey(KeyId(scene.ids.new(IdKind.KEY)), tenant.id, ann.id, "k", frozenset({Scope.CHAT}), "wxyz", now) for _ in range(3)]
    await accounts.create_key(keys[0], b"key 0")
    await accounts.create_key(keys[1], b"key 1")
    await accounts.create_link(b"link", ann.id, expires_at=later)
    for token, name in ((b"open", "ann"), (b"ended", "ann"), (b"of the renewed", "renewed"), (b"of the deleted", "deleted")):
        await accounts.open_session(Session(token, users[name].id, now, later))
    await accounts.set_password(ann.id, "hash", keep=b"open")
    await accounts.create_link(b"link 2", ann.id, expires_at=later)
    await accounts.open_session(Session(b"ended", ann.id, now, later))
    return {
        "ensure_owner": lambda: accounts.ensure_owner(home, boss),
        "create_tenant": lambda: accounts.create_tenant(new_tenant),
        "tenants": accounts.tenants,
        "create_user": lambda: accounts.create_user(bob),
        "create_user_of_identity": lambda: accounts.create_user_of_identity(carl, Identity("https://id", "carl")),
        "user_of_identity": lambda: accounts.user_of_identity(Identity("https://id", "nobody")),
        "identities": lambda: accounts.identities(ann.id),
        "users": lambda: accounts.users(tenant.id),
        "user": lambda: accounts.user(ann.id),
        "user_by_name": lambda: accounts.user_by_name("ann"),
        "disable_user": lambda: accounts.disable_user(users["disabled"].id),
        "change_user": lambda: accounts.change_user(tenant.id, users["changed"].id, UserChange(role=UserRole.ADMIN, disabled=True)),
        "delete_user": lambda: accounts.delete_user(users["deleted"].id),
        "create_link": lambda: accounts.create_link(b"link 3", ann.id, expires_at=later),
        "set_password": lambda: accounts.set_password(users["renewed"].id, "new hash", keep=None),
        "password": lambda: accounts.password(ann.id),
        "password_of": lambda: accounts.password_of("ann", None),
        "open_session": lambda: accounts.open_session(Session(b"new", ann.id, now, later)),
        "sessions": lambda: accounts.sessions(ann.id, now=now),
        "redeem_link": lambda: accounts.redeem_link(b"link 2", b"by link", now=now, expires_at=later),
        "session": lambda: accounts.session(b"open", now=now),
        "end_session": lambda: accounts.end_session(b"ended"),
        "create_key": lambda: accounts.create_key(keys[2], b"key 2"),
        "key": lambda: accounts.key(b"key 0"),
        "keys": lambda: accounts.keys(tenant.id, None),
        "revoke_key": lambda: accounts.revoke_key(tenant.id, keys[1].id, now=now),
    }


async def _conversations(scene: Scene) -> dict[str, Act]:
    conversations, owner, now = scene.conversations, scene.owner(), scene.clock.now()
    heads = [(await scene.conversation(owner, title=f"herons {number}")).id for number in range(4)]
    turns = [await scene.exchange(owner, head, "where do herons nest?") for head in heads]
    await scene.send(owner, heads[3])
    other = Owner(owner.tenant_id, scene.owner(user="u2").user_id)
    for _ in range(2):
        await scene.send(other, (await scene.conversation(other)).id)
    unnamed = (await scene.conversation(owner)).id
    new = replace(await conversations.get(owner, heads[0]), id=ConversationId(scene.ids.new(IdKind.CONVERSATION)))
    path = {"leaf": None, "limit": 9, "before": None}
    patch = ConversationPatch(title="cranes", pinned=True, folder="birds", current_leaf_id=turns[1].user_message_id)
    return {
        "create": lambda: conversations.create(new),
        "get": lambda: conversations.get(owner, heads[0]),
        "page": lambda: conversations.page(owner, limit=2, after=None),
        "folders": lambda: conversations.folders(owner),
        "search": lambda: conversations.search(owner, "herons", limit=3, after=None),
        "update": lambda: conversations.update(owner, heads[1], patch, now=now),
        "suggest_title": lambda: conversations.suggest_title(owner, unnamed, "Herons"),
        "path": lambda: conversations.path(owner, heads[0], **path),  # type: ignore[arg-type]
        "branch": lambda: conversations.branch(owner, heads[0], turns[0].message_id, last=9),
        "branch_ids": lambda: conversations.branch_ids(owner, heads[0], turns[0].message_id),
        "texts": lambda: conversations.texts(owner, heads[0], [turns[0].message_id]),
        "tree": lambda: conversations.tree(owner, heads[0]),
        "message": lambda: conversations.message(owner, turns[0].message_id),
        "put_feedback": lambda: conversations.put_feedback(owner, turns[0].message_id, Feedback(1, ("good",), "yes"), now=now),
        "delete": lambda: conversations.delete(owner, heads[3], now=now),
        "delete_all": lambda: conversations.delete_all(other, now=now),
    }


async def _custody(scene: Scene) -> dict[str, Act]:
    custody, now = scene.custody, scene.clock.now()
    owner = Owner((await scene.tenant()).id, scene.owner().user_id)
    heads = [(await scene.conversation(owner)).id for _ in range(3)]
    turns = [await scene.exchange(owner, head) for head in heads]
    await scene.conversations.put_feedback(owner, turns[0].message_id, Feedback(-1), now=now)
    await custody.set_retention(owner, 1, now=now)
    await scene.conversations.delete(owner, heads[1], now=now)
    much_later = now + timedelta(days=2)
    return {
        "purge": lambda: custody.purge(deleted_before=much_later, limit=5),
        "scrub": custody.scrub,
        "expire_copies": lambda: custody.expire_copies(now=now),
        "feedback_page": lambda: custody.feedback_page(owner.tenant_id, limit=1, after=None),
        "retire": lambda: custody.retire(now=much_later, limit=5),
        "set_retention": lambda: custody.set_retention(owner, 2, now=now),
        "retention": lambda: custody.retention(owner.tenant_id),
        "audit_page": lambda: custody.audit_page(owner.tenant_id, limit=1, after=None),
        "record": lambda: custody.record(owner, "key.create", "key_1", now=now),
    }


async def _generations(scene: Scene) -> dict[str, Act]:
    generations, owner, now = scene.generations, scene.owner(), scene.clock.now()
    later = now + timedelta(hours=1)
    heads = [(await scene.conversation(owner)).id for _ in range(8)]
    done = await scene.exchange(owner, heads[0])
    cut = await scene.send(owner, heads[1])
    await scene.finish(cut, "half", finish_reason="length")
    queued = await scene.send(owner, heads[2])
    running = [await scene.send(owner, head) for head in heads[3:7]]
    for turn in running:
        await generations.claim(turn.generation_id, now=now, lease_until=later)
    preamble = Preamble("d", "be brief", "- tea")
    summary = Summary(heads[0], done.message_id, "they spoke", "extract", now)
    keyed = scene.turn(owner, heads[7], scene.text(), scene.key())
    await generations.accept(keyed)
    send = replace(scene.turn(owner, heads[0], scene.text(parent=done.message_id), scene.key("k2")), preamble=preamble, summary=summary)
    again = scene.turn(owner, heads[0], RegenerateUnder(done.user_message_id or MessageId("")))
    more = scene.turn(owner, heads[1], ContinueMessage(cut.message_id))

    return {
        "find_replay": lambda: generations.find_replay(scene.key(), now=now),
        "accept": lambda: generations.accept(send),
        "accept, regenerate": lambda: generations.accept(again),
        "accept, continue": lambda: generations.accept(more),
        "now": generations.now,
        "get": lambda: generations.get(owner, done.generation_id),
        "claim": lambda: generations.claim(queued.generation_id, now=now, lease_until=later),
        "heartbeat": lambda: generations.heartbeat(running[0].generation_id, 1, lease_until=later + timedelta(hours=1)),
        "checkpoint": lambda: generations.checkpoint(running[1].generation_id, 1, text="half", seq=2, usage=Usage(9, 0, 4)),
        "finalise": lambda: generations.finalise(scene.end(running[2], 1)),
        "request_cancel": lambda: generations.request_cancel(owner, running[3].generation_id, now=now),
        "add_usage": lambda: generations.add_usage(owner.tenant_id, "gen_elsewhere", "{}", now=now),  # type: ignore[arg-type]
        "keep_usage": lambda: generations.keep_usage([record(1), record(2)], now=now),
        "left_usage": lambda: generations.left_usage(before=later, limit=3),
        "due": lambda: generations.due(now=now, limit=3),
        "opened": lambda: generations.opened(limit=3),
        "count_open": generations.count_open,
    }


async def _ledger(scene: Scene) -> dict[str, Act]:
    ledger, now = scene.ledger, record(1).finished_at
    await ledger.put([record(1)])
    question = TotalsQuestion(now, now + timedelta(days=1), ("user", "day"), record(1).tenant_id, record(1).user_id)
    return {
        "put": lambda: ledger.put([record(2), record(3, tenant="t2"), record(2)]),
        "totals": lambda: ledger.totals(question),
        "totals, of all": lambda: ledger.totals(replace(question, by=(), tenant_id=None, user_id=None)),
        "recent": lambda: ledger.recent(since=now),
        "records": lambda: ledger.records(record(1).tenant_id, since=now, limit=3),
    }


async def _outbox(scene: Scene) -> dict[str, Act]:
    outbox, now = scene.outbox, scene.clock.now()
    for number in range(3):
        one = record(number)
        await scene.generations.add_usage(one.tenant_id, one.generation_id, "{}", now=now)
    numbers = [entry.number for entry in await outbox.unsent(limit=3)]
    return {
        "unsent": lambda: outbox.unsent(limit=3),
        "waiting": outbox.waiting,
        "mark_refused": lambda: outbox.mark_refused(numbers[1:]),
        "unsent, refused": lambda: outbox.unsent(limit=3),
        "mark_sent": lambda: outbox.mark_sent(numbers[:2], now=now),
        "drop_sent": lambda: outbox.drop_sent(before=now + timedelta(hours=1), limit=3),
    }


async def _personal(scene: Scene) -> dict[str, Act]:
    personal, owner, other, now = scene.personal, scene.owner(), scene.owner(user="u2"), scene.clock.now()
    memories = [Memory(MemoryId(f"mem_{number}"), "tea", now) for number in range(4)]
    for memory in memories[:2]:
        await personal.add_memory(owner, memory, at_most=9)
    await personal.put_instructions(other, "be brief")
    await personal.add_memory(other, memories[2], at_most=9)
    return {
        "get": lambda: personal.get(other),
        "put_instructions": lambda: personal.put_instructions(owner, "be kind"),
        "add_memory": lambda: personal.add_memory(owner, memories[3], at_most=9),
        "change_memory": lambda: personal.change_memory(owner, memories[0].id, "coffee"),
        "forget_memory": lambda: personal.forget_memory(owner, memories[1].id),
        "forget": lambda: personal.forget(other),
    }


async def _prompts(scene: Scene) -> dict[str, Act]:
    prompts, owner, now = scene.prompts, scene.owner(), scene.clock.now()
    head = (await scene.conversation(owner)).id
    turn = await scene.exchange(owner, head)
    summary = Summary(head, turn.message_id, "they spoke", "extract", now)
    return {
        "summaries": lambda: prompts.summaries(owner, head),
        "add_summary": lambda: prompts.add_summary(owner, summary),
        "preamble": lambda: prompts.preamble(owner, head, "d"),
        "counts": lambda: prompts.counts(owner, head, "smol"),
        "add_counts": lambda: prompts.add_counts(owner, head, "smol", {turn.message_id: 3}),
    }


async def _shares(scene: Scene) -> dict[str, Act]:
    shares, owner, now = scene.shares, scene.owner(), scene.clock.now()
    head = (await scene.conversation(owner)).id
    await scene.exchange(owner, head)
    ids = [ShareId(scene.ids.new(IdKind.SHARE)) for _ in range(3)]
    for number in range(2):
        await shares.create(owner, head, share_id=ids[number], token=f"t{number}", now=now)
    return {
        "create": lambda: shares.create(owner, head, share_id=ids[2], token="t2", now=now),
        "page": lambda: shares.page(owner, limit=1, after=None),
        "read": lambda: shares.read("t0"),
        "revoke": lambda: shares.revoke(owner, ids[1], now=now),
    }


async def _transfers(scene: Scene, transfers: Transfers) -> dict[str, Act]:
    owner, now = scene.owner(), scene.clock.now()
    head = (await scene.conversation(owner)).id
    await scene.exchange(owner, head)
    new = whole_conversation(scene, owner, now)
    return {
        "import_conversation": lambda: transfers.import_conversation(new),
        "whole": lambda: transfers.whole(owner, head),
    }


def whole_conversation(scene: Scene, owner: Owner, now: datetime) -> WholeConversation:
    """One with everything that a file can bring."""
    head = ConversationId(scene.ids.new(IdKind.CONVERSATION))
    asked, answered = (MessageId(scene.ids.new(IdKind.MESSAGE)) for _ in range(2))
    messages = (
        Message(asked, head, None, Role.USER, "a question", MessageStatus.COMPLETE, now),
        Message(answered, head, asked, Role.ASSISTANT, "an answer", MessageStatus.COMPLETE, now, model="gpt-4"),
    )
    listed = Conversation(head, owner.tenant_id, owner.user_id, "A title", None, answered, 1, False, False, False, now, now)
    return WholeConversation(listed, messages, Origin("elsewhere", "1"), '{"x":1}', {answered: '{"y":2}'}, {answered: Feedback(-1)})
