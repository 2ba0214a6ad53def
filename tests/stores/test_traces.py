"""After a purge no byte of what was deleted is left in any file of the store."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from antiphon.core.clock import ManualClock
from antiphon.core.events import Delta, Done, LogEntry
from antiphon.core.generation import Usage
from antiphon.core.ids import IdKind, MessageId, ShareId
from antiphon.core.messages import PromptRecord, Role, Snippet
from antiphon.core.prompts import Preamble, Summary
from antiphon.orchestrator.upkeep import Upkeep
from antiphon.stores.conversations.base import ConversationPatch, Feedback, Owner
from antiphon.stores.log.base import GenerationLog
from antiphon.stores.log.journal import JournalLog
from antiphon.stores.sql.sqlite import SqliteDatabase
from tests.contracts.scene import Scene

CANARY = "zq7canary"


def traces(folder: Path) -> list[str]:
    """Files that hold the canary or a part of it that an index could keep."""
    parts = (CANARY.encode(), CANARY.upper().encode(), CANARY.encode("utf-16-le"))
    return [path.name for path in folder.rglob("*") if path.is_file() and any(part in path.read_bytes() for part in parts)]


async def plant(scene: Scene, log: GenerationLog, owner: Owner) -> None:
    """The canary in every place that a person's text can reach."""
    head = await scene.conversation(owner, title=f"title {CANARY}")
    now = scene.clock.now()
    for number in range(30):
        accepted = await scene.generations.accept(
            replace(
                scene.turn(owner, head.id, scene.text(f"{CANARY} asks {number} " * 40), scene.key(f"{CANARY}{number}")),
                preamble=Preamble("d", f"{CANARY} instructs", f"- {CANARY}"),
                prompt=PromptRecord("smol", MessageId(""), snippets=(Snippet(MessageId(""), Role.USER, CANARY),)),
            )
        )
        summary = Summary(head.id, accepted.message_id, f"they spoke of {CANARY}", "extract", now)
        await scene.prompts.add_summary(owner, summary)
        await scene.prompts.add_counts(owner, head.id, CANARY, {accepted.message_id: 3})
        claimed = await scene.generations.claim(accepted.generation_id, now=now, lease_until=now + scene.leases)
        assert claimed is not None
        await log.open(accepted.generation_id, 1)
        await log.append(accepted.generation_id, [LogEntry(1, 1, Delta(f"{CANARY} answers"), (1, 2))])
        await scene.generations.checkpoint(accepted.generation_id, 1, text=f"{CANARY} half " * 50, seq=1, usage=Usage(9, 0, 4))
        done = Done("stop", 1, 0, 2, 0, 1, 1, None, "smol", "small")
        await scene.generations.finalise(scene.end(accepted, 1, f"{CANARY} answers {number} " * 40))
        await log.append(accepted.generation_id, [LogEntry(1, 2, done, ())])
        await scene.conversations.put_feedback(owner, accepted.message_id, Feedback(-1, (), f"{CANARY} is wrong"), now=now)
    await scene.conversations.update(owner, head.id, ConversationPatch(title=f"renamed {CANARY}", folder=CANARY), now=now)
    await scene.shares.create(owner, head.id, share_id=ShareId(scene.ids.new(IdKind.SHARE)), token="t", now=now)
    await scene.conversations.delete(owner, head.id, now=now)


async def test_a_purge_leaves_no_trace(db: SqliteDatabase, scene: Scene, clock: ManualClock, tmp_path: Path) -> None:
    owner = scene.owner()
    kept = await scene.conversation(owner, title="kept")
    for number in range(20):
        await scene.exchange(owner, kept.id, f"an honest question number {number} " * 20)
    log = await JournalLog.open_folder(tmp_path / "log", clock, 900)
    await plant(scene, log, owner)
    for number in range(20):
        await scene.exchange(owner, kept.id, f"another honest question number {number} " * 20)
    assert await asyncio.to_thread(traces, tmp_path) != []
    clock.advance(3601)
    assert await Upkeep(scene.custody, log, clock, purge_seconds=3600).once() == 1
    assert await asyncio.to_thread(traces, tmp_path) == []
    page = await scene.conversations.search(owner, "honest", limit=100, after=None)
    assert len(page.hits) == 40
    await log.close()
    check = await db.read(lambda tx: tx.exec_driver_sql("PRAGMA integrity_check").scalar_one())
    assert check == "ok"
    await db.write(lambda tx: tx.exec_driver_sql("INSERT INTO search_index (search_index) VALUES ('integrity-check')"))
