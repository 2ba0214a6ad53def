"""A person in two tabs and a runner do anything to a few conversations, and the server is killed now and then.

SQLite and PostgreSQL answer as the memory driver does, step by step, on SQLite also where two acts share a transaction.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from antiphon.core.clock import ManualClock
from antiphon.core.errors import AntiphonError
from antiphon.core.generation import GenerationStatus, Usage
from antiphon.core.ids import ConversationId, GenerationId, MessageId
from antiphon.core.messages import Conversation, MessageStatus, TreeNode
from antiphon.orchestrator.transfer import own
from antiphon.orchestrator.transfer.planting import plant
from antiphon.orchestrator.transfer.values import parse_object
from antiphon.stores.conversations.base import ConversationPatch, Feedback
from antiphon.stores.generations.base import (
    Accepted,
    ContinueMessage,
    CurrentLeaf,
    NewUserMessage,
    RegenerateUnder,
    TurnToAccept,
)
from antiphon.stores.generations.memory import MemoryGenerations
from antiphon.stores.memory import MemoryState
from antiphon.stores.sql.database import SqlDatabase
from antiphon.stores.sql.postgres import PostgresDatabase
from antiphon.stores.sql.sqlite import SqliteDatabase
from antiphon.stores.transfers.memory import MemoryTransfers
from antiphon.stores.transfers.sql import SqlTransfers
from tests.contracts.scene import Scene, memory_scene, sql_scene
from tests.ids import CountingIds
from tests.orchestrator.transfer.uploads import tree_of
from tests.postgres_server import Emptier, PostgresServer

T = TypeVar("T")
UNKNOWN = MessageId("msg_unknown")
ENDS = [
    (GenerationStatus.COMPLETE, "stop"),
    (GenerationStatus.COMPLETE, "length"),
    (GenerationStatus.CANCELLED, "cancelled"),
    (GenerationStatus.FAILED, None),
    (GenerationStatus.INTERRUPTED, None),
]


TAB_ACTS = ["send", "edit", "regenerate", "continue", "rename", "rate", "delete"]


async def answer_of(act: Coroutine[object, object, T]) -> tuple[T | None, object]:
    """What it gives, or how it refuses."""
    try:
        return await act, None
    except AntiphonError as error:
        return None, (type(error), str(error))


class TreeMachine(RuleBasedStateMachine):
    """Draws acts by position in lists of what exists, so that shrunk examples stay readable."""

    migrated_file: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.runner = asyncio.Runner()
        self.db: SqlDatabase
        self.clock, self.ids = ManualClock(), CountingIds()
        state = MemoryState()
        self.model = memory_scene(state, self.clock, self.ids)
        self.model_transfers = MemoryTransfers(state)
        self.begin()
        self.owner = self.model.owner()
        self.heads: list[ConversationId] = []
        self.messages: list[MessageId] = [UNKNOWN]
        self.turns: list[Accepted] = []
        self.nodes: dict[MessageId, TreeNode] = {}
        self.versions: dict[ConversationId, int] = {}

    def begin(self) -> None:
        """Open a database without rows."""
        self.path = Path(shutil.copy(self.migrated_file, self.folder))
        self.open(SqliteDatabase(self.path))

    def open(self, db: SqlDatabase) -> None:
        self.db = db
        self.runner.run(self.db.open())
        self.real = sql_scene(self.db, self.clock, self.ids)
        self.transfers = (self.model_transfers, SqlTransfers(self.db))

    def teardown(self) -> None:
        self.runner.run(self.db.close())
        self.runner.close()
        shutil.rmtree(self.folder)

    def both(self, act: Callable[[Scene], Coroutine[object, object, T]]) -> T | None:
        """The equal answer of both drivers; ``None`` for an equal refusal."""
        answers = [self.answer(act(scene)) for scene in (self.model, self.real)]
        assert answers[0] == answers[1]
        value, refusal = answers[0]
        return value if refusal is None else None

    def answer(self, act: Coroutine[object, object, T]) -> tuple[T | None, object]:
        return self.runner.run(answer_of(act))

    @initialize()
    def first_conversation(self) -> None:
        self.new_conversation()

    @precondition(lambda self: len(self.heads) < 3)
    @rule()
    def new_conversation(self) -> None:
        made = self.ids.made
        heads: list[Conversation] = []
        for scene in (self.model, self.real):
            self.ids.made = made
            heads.append(self.runner.run(scene.conversation(self.owner)))
        assert heads[0] == heads[1]
        self.heads.append(heads[0].id)

    def accept(self, head: int, what: NewUserMessage | RegenerateUnder | ContinueMessage, key: str | None = None) -> None:
        turn = self.turn(head, what, key)
        self.note(self.both(lambda scene: scene.generations.accept(turn)))

    def turn(self, head: int, what: NewUserMessage | RegenerateUnder | ContinueMessage, key: str | None = None) -> TurnToAccept:
        idempotency = None if key is None else self.model.key(key, fingerprint=key)
        return self.model.turn(self.owner, self.heads[head % len(self.heads)], what, idempotency)

    def note(self, accepted: object) -> None:
        if isinstance(accepted, Accepted) and not accepted.replayed:
            self.turns.append(accepted)
            self.messages += [one for one in (accepted.user_message_id, accepted.message_id) if one and one not in self.messages]

    @rule(head=st.integers(0, 2), key=st.sampled_from([None, None, "k1", "k2"]), words=st.text(max_size=70))
    def send(self, head: int, key: str | None, words: str) -> None:
        text = words.encode(errors="ignore").decode().replace("\0", "") or "hello"
        self.accept(head, self.model.text(text, CurrentLeaf()), key)

    @rule(head=st.integers(0, 2), parent=st.integers(0, 30))
    def edit(self, head: int, parent: int) -> None:
        self.accept(head, self.model.text("elsewhere", self.messages[parent % len(self.messages)]))

    @rule(head=st.integers(0, 2))
    def new_root(self, head: int) -> None:
        self.accept(head, self.model.text("again", None))

    @rule(head=st.integers(0, 2), message=st.integers(0, 30))
    def regenerate(self, head: int, message: int) -> None:
        self.accept(head, RegenerateUnder(self.messages[message % len(self.messages)]))

    @rule(head=st.integers(0, 2), message=st.integers(0, 30))
    def continue_message(self, head: int, message: int) -> None:
        self.accept(head, ContinueMessage(self.messages[message % len(self.messages)]))

    def chosen(self, turn: int) -> Accepted:
        return self.turns[-1 - turn % len(self.turns)]

    @precondition(lambda self: self.turns)
    @rule(turn=st.integers(0, 9))
    def claim(self, turn: int) -> None:
        name, now = self.chosen(turn).generation_id, self.clock.now()
        self.both(lambda scene: scene.generations.claim(name, now=now, lease_until=now + scene.leases))

    @precondition(lambda self: self.turns)
    @rule(turn=st.integers(0, 3), epoch=st.integers(0, 2), end=st.sampled_from(ENDS), text=st.sampled_from(["", "half", "an answer"]))
    def finalise(self, turn: int, epoch: int, end: tuple[GenerationStatus, str | None], text: str) -> None:
        finished = self.model.end(self.chosen(turn), epoch, text, *end)
        self.both(lambda scene: scene.generations.finalise(finished))

    @precondition(lambda self: self.turns)
    @rule(turn=st.integers(0, 3), end=st.sampled_from(ENDS))
    def run_to_the_end(self, turn: int, end: tuple[GenerationStatus, str | None]) -> None:
        accepted, now = self.chosen(turn), self.clock.now()
        claimed = self.both(lambda scene: scene.generations.claim(accepted.generation_id, now=now, lease_until=now + scene.leases))
        if claimed is not None:
            finished = self.model.end(accepted, claimed.epoch, f"{claimed.prior_text}more", *end)
            self.both(lambda scene: scene.generations.finalise(finished))

    @precondition(lambda self: self.turns)
    @rule(turn=st.integers(0, 9), epoch=st.integers(0, 2), act=st.sampled_from(["heartbeat", "checkpoint", "cancel"]))
    def touch(self, turn: int, epoch: int, act: str) -> None:
        name, now = self.chosen(turn).generation_id, self.clock.now()

        async def touch(scene: Scene) -> object:
            if act == "heartbeat":
                return await scene.generations.heartbeat(name, epoch, lease_until=now + scene.leases)
            if act == "checkpoint":
                return await scene.generations.checkpoint(name, epoch, text="so far", seq=3, usage=Usage(9, 0, 4))
            return await scene.generations.request_cancel(self.owner, name, now=now)

        self.both(touch)

    @precondition(lambda self: self.turns)
    @rule(turn=st.integers(0, 3), text=st.sampled_from(["", "half"]))
    def stop(self, turn: int, text: str) -> None:
        accepted, now = self.chosen(turn), self.clock.now()
        flagged = self.both(lambda scene: scene.generations.request_cancel(self.owner, accepted.generation_id, now=now))
        if flagged is not None and not flagged.status.terminal:
            finished = self.model.end(accepted, flagged.epoch, text, GenerationStatus.CANCELLED, "cancelled")
            self.both(lambda scene: scene.generations.finalise(finished))

    @rule(message=st.integers(0, 30), rating=st.sampled_from([-1, 0, 1]))
    def rate(self, message: int, rating: int) -> None:
        name, now = self.messages[message % len(self.messages)], self.clock.now()
        self.both(lambda scene: scene.conversations.put_feedback(self.owner, name, Feedback(rating), now=now))

    @rule(question=st.sampled_from(["elsewhere", "an answer", "half", "new title", "hello"]))
    def look_for(self, question: str) -> None:
        self.both(lambda scene: scene.conversations.search(self.owner, question, limit=9, after=None))

    @rule(head=st.integers(0, 2), acts=st.lists(st.sampled_from(TAB_ACTS), min_size=2, max_size=4), place=st.integers(0, 30))
    def two_tabs(self, head: int, acts: list[str], place: int) -> None:
        """Tabs that see the conversation as it was act at one moment; nobody's act is another's, and none is half done."""
        asked = [self.in_a_tab(act, head, place) for act in acts]
        expected = [self.answer(ask(self.model)) for ask in asked]

        async def at_once() -> list[tuple[object, object]]:
            return await asyncio.gather(*(answer_of(ask(self.real)) for ask in asked))

        assert self.runner.run(at_once()) == expected
        for accepted, _ in expected:
            self.note(accepted)

    def in_a_tab(self, act: str, head: int, place: int) -> Callable[[Scene], Coroutine[object, object, object]]:
        name, message = self.heads[head % len(self.heads)], self.messages[place % len(self.messages)]
        now, version = self.clock.now(), self.versions.get(name, 1)
        if act == "rename":
            patch = ConversationPatch(title="from a tab", if_version=version)
            return lambda scene: scene.conversations.update(self.owner, name, patch, now=now)
        if act == "rate":
            return lambda scene: scene.conversations.put_feedback(self.owner, message, Feedback(1), now=now)
        if act == "delete" and len(self.turns) > 5:
            return lambda scene: scene.conversations.delete(self.owner, name, now=now)
        what = {
            "send": lambda: self.model.text("at once", CurrentLeaf()),
            "edit": lambda: self.model.text("at once elsewhere", message),
            "continue": lambda: ContinueMessage(message),
        }.get(act, lambda: RegenerateUnder(message))()
        turn = self.turn(head, what, "the same" if act == "send" else None)
        return lambda scene: scene.generations.accept(turn)

    @rule()
    def crash(self) -> None:
        """The server is killed: the next one has the files as they are, a log beside the database included."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        for file in self.path.parent.glob("antiphon.db*"):
            if not file.name.endswith("-shm"):
                shutil.copy(file, folder)
        self.runner.run(self.db.close())
        self.path = folder / self.path.name
        self.open(SqliteDatabase(self.path))

    @rule(head=st.integers(0, 2), leaf=st.integers(0, 30), version=st.sampled_from([None, 1, 3, 5]))
    def switch_leaf(self, head: int, leaf: int, version: int | None) -> None:
        patch = ConversationPatch(current_leaf_id=self.messages[leaf % len(self.messages)], if_version=version)
        self.update(head, patch)

    @rule(head=st.integers(0, 2), title=st.sampled_from(["", "new title"]), pinned=st.sampled_from([None, True, False]))
    def rename(self, head: int, title: str, pinned: bool | None) -> None:
        self.update(head, ConversationPatch(title=title, pinned=pinned))

    def update(self, head: int, patch: ConversationPatch) -> None:
        name, now = self.heads[head % len(self.heads)], self.clock.now()
        self.both(lambda scene: scene.conversations.update(self.owner, name, patch, now=now))

    @precondition(lambda self: len(self.turns) > 5)
    @rule(head=st.integers(0, 2))
    def delete(self, head: int) -> None:
        name, now = self.heads[head % len(self.heads)], self.clock.now()
        self.both(lambda scene: scene.conversations.delete(self.owner, name, now=now))

    @precondition(lambda self: len(self.heads) < 5)
    @rule(head=st.integers(0, 2))
    def export_and_import(self, head: int) -> None:
        """A copy of a conversation by way of a file; it is the same tree, and the copy lives on like any other."""
        name = self.heads[head % len(self.heads)]
        wholes = [self.answer(transfers.whole(self.owner, name)) for transfers in self.transfers]
        assert wholes[0] == wholes[1]
        given = wholes[0][0]
        if given is None:
            return
        source = replace(own.read(parse_object(own.line_of(given).encode())[0]), source="copy", source_id=str(self.ids.made))
        copy = plant(source, self.owner, self.ids, now=self.clock.now()).whole
        for transfers in self.transfers:
            assert self.runner.run(transfers.import_conversation(copy)) is None
            assert self.runner.run(transfers.import_conversation(copy)) == copy.head.id
            assert self.runner.run(transfers.whole(self.owner, copy.head.id)) == copy
        assert tree_of(copy) == tree_of(given)
        self.heads.append(copy.head.id)
        self.messages += [message.id for message in copy.messages]

    @rule(seconds=st.sampled_from([0.001, 1, 11]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @invariant()
    def both_show_the_same(self) -> None:
        now = self.clock.now()
        for name in self.heads:
            head = self.both(lambda scene, name=name: scene.conversations.get(self.owner, name))
            if head is None:
                continue
            nodes = self.both(lambda scene, name=name: scene.conversations.tree(self.owner, name)) or ()
            page = self.both(lambda scene, name=name: scene.conversations.path(self.owner, name, leaf=None, limit=4, before=None))
            assert page is not None
            assert head.version >= self.versions.get(name, 0)
            self.versions[name] = head.version
            self.check_tree(head, nodes)
        self.both(lambda scene: scene.conversations.page(self.owner, limit=2, after=None))
        self.both(lambda scene: scene.generations.due(now=now, limit=50))
        assert self.both(lambda scene: scene.generations.count_open()) == len({turn.generation_id for turn in self.turns}) - self.ended()

    def ended(self) -> int:
        names: set[GenerationId] = {turn.generation_id for turn in self.turns}
        state = self.model.generations
        assert isinstance(state, MemoryGenerations)
        return sum(state._state.generations[name].status.terminal for name in names)

    def check_tree(self, head: Conversation, nodes: tuple[TreeNode, ...]) -> None:
        """Nothing is lost or moved; parents are older; every answer that streams has a living generation."""
        seen: set[MessageId] = set()
        for node in nodes:
            assert node.parent_id is None or node.parent_id in seen
            seen.add(node.id)
            known = self.nodes.setdefault(node.id, node)
            assert (known.parent_id, known.role, known.created_at) == (node.parent_id, node.role, node.created_at)
            if node.status is MessageStatus.STREAMING:
                message = self.both(lambda scene, node=node: scene.conversations.message(self.owner, node.id))
                assert message is not None
                assert message.generation_id is not None
                name = message.generation_id
                generation = self.both(lambda scene, name=name: scene.generations.get(self.owner, name))
                assert generation is not None
                assert not generation.status.terminal
        assert head.current_leaf_id is None or head.current_leaf_id in seen


@pytest.mark.timeout(120)
def test_sqlite_answers_as_memory_does(migrated_file: Path) -> None:
    TreeMachine.migrated_file = migrated_file
    run_state_machine_as_test(
        TreeMachine,
        settings=settings(max_examples=12, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)),
    )


class PostgresTreeMachine(TreeMachine):
    """On PostgreSQL acts at one moment have no order of their own, so the tabs take turns here."""

    url: ClassVar[str]
    emptier: ClassVar[Emptier]

    def begin(self) -> None:
        self.emptier.empty()
        self.open(PostgresDatabase(self.url))

    @rule(head=st.integers(0, 2), acts=st.lists(st.sampled_from(TAB_ACTS), min_size=2, max_size=4), place=st.integers(0, 30))
    def two_tabs(self, head: int, acts: list[str], place: int) -> None:
        for ask in [self.in_a_tab(act, head, place) for act in acts]:
            self.note(self.both(ask))

    @rule()
    def crash(self) -> None:
        self.runner.run(self.db.close())
        self.open(PostgresDatabase(self.url))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_postgresql_answers_as_memory_does(postgres_server: PostgresServer) -> None:
    PostgresTreeMachine.url = postgres_server.create_database("trees")
    with asyncio.Runner() as runner:
        database = PostgresDatabase(PostgresTreeMachine.url)
        runner.run(database.open())
        runner.run(database.close())
    PostgresTreeMachine.emptier = Emptier(PostgresTreeMachine.url)
    run_state_machine_as_test(
        PostgresTreeMachine,
        settings=settings(max_examples=12, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)),
    )
    PostgresTreeMachine.emptier.close()
