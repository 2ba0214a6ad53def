"""Titles, folders, shares, deletion, purge, retention, audit, feedback: both drivers alike."""

from __future__ import annotations

from datetime import timedelta

import pytest

from antiphon.core.errors import BadCursor, Conflict, InvalidRequest, NotFound
from antiphon.core.ids import IdKind, MessageId, ShareId
from antiphon.core.messages import TitleSource
from antiphon.core.tenancy import UserRole
from antiphon.stores.conversations.base import ConversationFilter, ConversationPatch, Feedback, Folder, Owner
from antiphon.stores.shares.base import Share
from tests.contracts.scene import Scene

DAY = timedelta(days=1)


async def owner_of_a_tenant(scene: Scene) -> Owner:
    tenant = await scene.tenant()
    return Owner(tenant.id, (await scene.user(tenant)).id)


async def share(scene: Scene, owner: Owner, conversation_id: object, token: str = "secret") -> Share:
    name = ShareId(scene.ids.new(IdKind.SHARE))
    return await scene.shares.create(owner, conversation_id, share_id=name, token=token, now=scene.clock.now())  # type: ignore[arg-type]


async def test_a_persons_title_wins_whenever_it_comes(scene: Scene) -> None:
    owner, now = scene.owner(), scene.clock.now()
    head = await scene.conversation(owner)
    await scene.send(owner, head.id, "first words")
    assert (await scene.conversations.suggest_title(owner, head.id, "suggested")).title == "suggested"
    renamed = await scene.conversations.update(owner, head.id, ConversationPatch(title="mine"), now=now)
    assert renamed.title_source is TitleSource.USER
    assert (await scene.conversations.suggest_title(owner, head.id, "late")) == renamed
    assert (await scene.conversations.get(owner, head.id)).title == "mine"
    with pytest.raises(NotFound):
        await scene.conversations.suggest_title(scene.owner(user="u2"), head.id, "x")


async def test_pages_choose_by_pin_archive_and_folder(scene: Scene) -> None:
    owner, now = scene.owner(), scene.clock.now()
    plain, pinned, archived, filed = [await scene.conversation(owner) for _ in range(4)]
    for head, patch in (
        (pinned, ConversationPatch(pinned=True)),
        (archived, ConversationPatch(archived=True)),
        (filed, ConversationPatch(folder="work")),
    ):
        await scene.conversations.update(owner, head.id, patch, now=now)

    async def ids(**chosen: bool | str) -> set[str]:
        page = await scene.conversations.page(owner, limit=9, after=None, only=ConversationFilter(**chosen))  # type: ignore[arg-type]
        return {head.id for head in page.conversations}

    assert await ids() == {plain.id, pinned.id, archived.id, filed.id}
    assert await ids(pinned=True) == {pinned.id}
    assert await ids(archived=True) == {archived.id}
    assert await ids(archived=False, pinned=False) == {plain.id, filed.id}
    assert await ids(folder="work") == {filed.id}
    assert await scene.conversations.folders(owner) == (Folder("work", 1),)
    assert (await scene.conversations.update(owner, filed.id, ConversationPatch(folder=""), now=now)).folder is None
    assert await scene.conversations.folders(owner) == ()


async def test_a_share_is_frozen_listed_and_gone_when_revoked(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner, title="shared")
    with pytest.raises(InvalidRequest):
        await share(scene, owner, head.id)
    await scene.exchange(owner, head.id, "question")
    made = await share(scene, owner, head.id)
    assert [message.content for message in made.messages] == ["question", "an answer"]
    await scene.exchange(owner, head.id, "later")
    await scene.conversations.update(owner, head.id, ConversationPatch(title="renamed"), now=scene.clock.now())
    assert await scene.shares.read("secret") == made
    second = await share(scene, owner, head.id, "other")
    first_page = await scene.shares.page(owner, limit=1, after=None)
    assert [one.id for one in first_page.shares] == [second.id]
    assert [one.id for one in (await scene.shares.page(owner, limit=1, after=first_page.next_cursor)).shares] == [made.id]
    for stranger in (scene.owner(user="u2"), scene.owner("t2")):
        with pytest.raises(NotFound):
            await scene.shares.revoke(stranger, made.id, now=scene.clock.now())
        with pytest.raises(NotFound):
            await share(scene, stranger, head.id, "x")
        assert (await scene.shares.page(stranger, limit=9, after=None)).shares == ()
    await scene.shares.revoke(owner, made.id, now=scene.clock.now())
    for token in ("secret", "", "never"):
        with pytest.raises(NotFound):
            await scene.shares.read(token)
    with pytest.raises(BadCursor):
        await scene.shares.page(owner, limit=9, after="x")


async def test_a_share_ends_with_its_conversation(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    await scene.exchange(owner, head.id)
    await share(scene, owner, head.id)
    await scene.conversations.delete(owner, head.id, now=scene.clock.now())
    with pytest.raises(NotFound):
        await scene.shares.read("secret")


async def test_a_purge_waits_for_its_time_and_for_what_runs(scene: Scene) -> None:
    owner = scene.owner()
    done, running, kept = [await scene.conversation(owner, title=f"t{number}") for number in range(3)]
    finished = await scene.exchange(owner, done.id)
    turn = await scene.send(owner, running.id)
    await scene.exchange(owner, kept.id)
    await scene.conversations.put_feedback(owner, finished.message_id, Feedback(1), now=scene.clock.now())
    deleted_at = scene.clock.now()
    for head in (done, running):
        await scene.conversations.delete(owner, head.id, now=deleted_at)
    assert (await scene.custody.purge(deleted_before=deleted_at, limit=9)).conversations == 0
    purged = await scene.custody.purge(deleted_before=deleted_at + DAY, limit=9)
    assert (purged.conversations, purged.generation_ids, purged.more) == (1, (finished.generation_id,), False)
    await scene.finish(turn)
    assert (await scene.custody.purge(deleted_before=deleted_at + DAY, limit=9)).conversations == 1
    await scene.custody.scrub()
    page = await scene.conversations.page(owner, limit=9, after=None)
    assert [head.id for head in page.conversations] == [kept.id]
    with pytest.raises(NotFound):
        await scene.conversations.message(owner, MessageId(finished.message_id))


async def test_retention_hides_what_nobody_uses_and_spares_other_tenants(scene: Scene) -> None:
    owner, other = await owner_of_a_tenant(scene), scene.owner()
    old, others = await scene.conversation(owner), await scene.conversation(other)
    scene.clock.advance(3 * 86_400)
    new = await scene.conversation(owner)
    assert await scene.custody.retire(now=scene.clock.now(), limit=9) == 0
    await scene.custody.set_retention(owner, 2, now=scene.clock.now())
    assert await scene.custody.retention(owner.tenant_id) == 2
    assert await scene.custody.retire(now=scene.clock.now(), limit=9) == 1
    assert [head.id for head in (await scene.conversations.page(owner, limit=9, after=None)).conversations] == [new.id]
    assert (await scene.conversations.get(other, others.id)).id == others.id
    await scene.custody.set_retention(owner, None, now=scene.clock.now())
    assert await scene.custody.retention(owner.tenant_id) is None
    with pytest.raises(NotFound):
        await scene.conversations.get(owner, old.id)
    with pytest.raises(NotFound):
        await scene.custody.set_retention(scene.owner("unknown"), 2, now=scene.clock.now())


async def test_the_audit_tells_who_did_what(scene: Scene) -> None:
    owner = await owner_of_a_tenant(scene)
    head = await scene.conversation(owner)
    await scene.exchange(owner, head.id)
    made = await share(scene, owner, head.id)
    await scene.conversations.delete(owner, head.id, now=scene.clock.now())
    await scene.custody.purge(deleted_before=scene.clock.now() + DAY, limit=9)
    page = await scene.custody.audit_page(owner.tenant_id, limit=2, after=None)
    rest = await scene.custody.audit_page(owner.tenant_id, limit=9, after=page.next_cursor)
    told = [(entry.user_id, entry.action, entry.subject) for entry in (*page.entries, *rest.entries)]
    assert told == [
        (None, "conversation.purge", head.id),
        (owner.user_id, "conversation.delete", head.id),
        (owner.user_id, "share.create", made.id),
    ]
    assert (await scene.custody.audit_page(scene.owner().tenant_id, limit=9, after=None)).entries == ()


async def test_feedback_is_listed_newest_first_for_its_tenant(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    turns = [await scene.exchange(owner, head.id) for _ in range(3)]
    for turn in turns:
        scene.clock.advance(1)
        await scene.conversations.put_feedback(owner, turn.message_id, Feedback(-1, ("wrong",), "no"), now=scene.clock.now())
    page = await scene.custody.feedback_page(owner.tenant_id, limit=2, after=None)
    rest = await scene.custody.feedback_page(owner.tenant_id, limit=2, after=page.next_cursor)
    listed = [*page.feedback, *rest.feedback]
    assert [given.message_id for given in listed] == [turn.message_id for turn in reversed(turns)]
    assert listed[0].model == "smol"
    assert listed[0].feedback == Feedback(-1, ("wrong",), "no")
    assert (await scene.custody.feedback_page(scene.owner("t2").tenant_id, limit=2, after=None)).feedback == ()
    await scene.conversations.delete(owner, head.id, now=scene.clock.now())
    assert (await scene.custody.feedback_page(owner.tenant_id, limit=2, after=None)).feedback == ()


async def test_everything_of_a_user_goes_at_once(scene: Scene) -> None:
    owner = await owner_of_a_tenant(scene)
    heads = [await scene.conversation(owner) for _ in range(2)]
    running = await scene.send(owner, heads[0].id)
    assert await scene.conversations.delete_all(owner, now=scene.clock.now()) == (running.generation_id,)
    assert (await scene.conversations.page(owner, limit=9, after=None)).conversations == ()
    await scene.accounts.delete_user(owner.user_id)
    gone = await scene.accounts.user(owner.user_id)
    assert (gone.name, gone.disabled) == (owner.user_id, True)
    tenant = await scene.tenant("other")
    boss = await scene.user(tenant, "boss", UserRole.OWNER)
    with pytest.raises(Conflict):
        await scene.accounts.delete_user(boss.id)
    await scene.user(tenant, "second", UserRole.OWNER)
    await scene.accounts.delete_user(boss.id)
