"""Fail the Nth statement of an act, for every N: the database is as before until the act succeeds whole."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from antiphon.core.errors import StoreUnavailable
from antiphon.core.ids import MessageId
from antiphon.core.tenancy import Tenant, UserRole
from antiphon.stores.conversations.base import ConversationPatch, Feedback
from antiphon.stores.generations.base import ContinueMessage, RegenerateUnder
from antiphon.stores.sql.database import SqliteDatabase
from antiphon.stores.sql.tables import metadata
from tests.contracts.scene import Scene

Act = Callable[[], Awaitable[object]]


@contextmanager
def failing_at(number: int) -> Iterator[None]:
    """The ``number``-th statement, counted from 1 and ``BEGIN`` included, is refused."""
    count = 0

    def refuse(*_: object) -> None:
        nonlocal count
        count += 1
        if count == number:
            raise StoreUnavailable

    event.listen(sa.Engine, "before_cursor_execute", refuse)
    try:
        yield
    finally:
        event.remove(sa.Engine, "before_cursor_execute", refuse)


async def contents(db: SqliteDatabase) -> dict[str, list[tuple[object, ...]]]:
    def dump(tx: sa.Connection) -> dict[str, list[tuple[object, ...]]]:
        return {name: [tuple(row) for row in tx.execute(sa.select(table))] for name, table in metadata.tables.items()}

    return await db.read(dump)


async def acts(scene: Scene) -> dict[str, Act]:
    """One of each act that writes, ready to run."""
    owner, now = scene.owner(), scene.clock.now()
    later = now + timedelta(hours=1)
    head, other = await scene.conversation(owner), await scene.conversation(owner)
    done = await scene.exchange(owner, head.id)
    cut = await scene.send(owner, other.id)
    await scene.finish(cut, "half", finish_reason="length")
    running = await scene.send(owner, head.id, parent=None)
    await scene.generations.claim(running.generation_id, now=now, lease_until=later)
    tenant = await scene.tenant()
    user = await scene.user(tenant)
    await scene.accounts.create_link(b"link", user.id, expires_at=later)
    home = Tenant(tenant.id, "home", now)
    turns = {
        "send": scene.turn(owner, head.id, scene.text(parent=done.message_id), scene.key()),
        "regenerate": scene.turn(owner, head.id, RegenerateUnder(done.user_message_id or MessageId(""))),
        "continue": scene.turn(owner, other.id, ContinueMessage(cut.message_id)),
    }
    patch = ConversationPatch(title="new", current_leaf_id=done.message_id)
    return {
        **{name: lambda turn=turn: scene.generations.accept(turn) for name, turn in turns.items()},
        "finalise": lambda: scene.generations.finalise(scene.end(running, 1)),
        "update": lambda: scene.conversations.update(owner, head.id, patch, now=now),
        "delete": lambda: scene.conversations.delete(owner, head.id, now=now),
        "feedback": lambda: scene.conversations.put_feedback(owner, done.message_id, Feedback(1), now=now),
        "redeem": lambda: scene.accounts.redeem_link(b"link", b"session", now=now, expires_at=later),
        "owner": lambda: scene.accounts.ensure_owner(home, scene.new_user(tenant, "boss", UserRole.OWNER)),
    }


@pytest.mark.parametrize("name", ["send", "regenerate", "continue", "finalise", "update", "delete", "feedback", "redeem", "owner"])
async def test_an_act_happens_whole_or_not_at_all(db: SqliteDatabase, scene: Scene, name: str) -> None:
    act = (await acts(scene))[name]
    before = await contents(db)
    for number in range(1, 40):
        with failing_at(number):
            try:
                await act()
            except StoreUnavailable:
                pass
            else:
                break
        assert await contents(db) == before
    else:
        pytest.fail("the act has more statements than this test expects")
    assert number > 2
    assert await contents(db) != before
