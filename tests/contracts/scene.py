"""A tenant, its users, and the few steps that tests of stores repeat."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from antiphon.core.clock import ManualClock
from antiphon.core.generation import GenerationStatus, TurnParams, Usage
from antiphon.core.ids import ConversationId, GenerationId, IdKind, MessageId, TenantId, UserId
from antiphon.core.messages import Conversation, MessageError
from antiphon.core.tenancy import Band, Tenant, User, UserRole
from antiphon.stores.abuse.base import AbuseCases
from antiphon.stores.abuse.memory import MemoryAbuseCases
from antiphon.stores.abuse.sql import SqlAbuseCases
from antiphon.stores.accounts.base import Accounts
from antiphon.stores.accounts.memory import MemoryAccounts
from antiphon.stores.accounts.sql import SqlAccounts
from antiphon.stores.conversations.base import Conversations, Owner
from antiphon.stores.conversations.memory import MemoryConversations
from antiphon.stores.conversations.sql import SqlConversations
from antiphon.stores.custody.base import Custody
from antiphon.stores.custody.memory import MemoryCustody
from antiphon.stores.custody.sql import SqlCustody
from antiphon.stores.generations.base import (
    Accepted,
    ContinueMessage,
    CurrentLeaf,
    FinishedGeneration,
    Generations,
    IdempotencyKey,
    NewUserMessage,
    RegenerateUnder,
    TurnToAccept,
)
from antiphon.stores.generations.memory import MemoryGenerations
from antiphon.stores.generations.sql import SqlGenerations
from antiphon.stores.memory import MemoryState
from antiphon.stores.personal.base import PersonalTexts
from antiphon.stores.personal.memory import MemoryPersonalTexts
from antiphon.stores.personal.sql import SqlPersonalTexts
from antiphon.stores.prompts.base import Prompts
from antiphon.stores.prompts.memory import MemoryPrompts
from antiphon.stores.prompts.sql import SqlPrompts
from antiphon.stores.shares.base import Shares
from antiphon.stores.shares.memory import MemoryShares
from antiphon.stores.shares.sql import SqlShares
from antiphon.stores.sql.database import SqlDatabase
from antiphon.stores.sql.sqlite import SqliteDatabase
from antiphon.stores.usage.base import Ledger, Outbox
from antiphon.stores.usage.memory import MemoryLedger, MemoryOutbox
from antiphon.stores.usage.sql import SqlLedger, SqlOutbox
from tests.ids import CountingIds


def make_migrated_file(folder: Path) -> Path:
    """An empty database with the current schema, made once and copied by each test: migrating takes its time."""

    async def make() -> None:
        db = SqliteDatabase(folder / "antiphon.db")
        await db.open()
        await db.close()

    asyncio.run(make())
    return folder / "antiphon.db"


def memory_scene(state: MemoryState, clock: ManualClock, ids: CountingIds) -> Scene:
    """A scene on the memory drivers."""
    conversations, generations = MemoryConversations(state), MemoryGenerations(state, clock)
    return Scene(
        MemoryAccounts(state),
        conversations,
        generations,
        clock,
        ids,
        MemoryShares(state),
        MemoryCustody(state),
        MemoryPrompts(state),
        MemoryPersonalTexts(state),
        MemoryOutbox(state),
        MemoryLedger(),
        MemoryAbuseCases(state),
    )


def sql_scene(db: SqlDatabase, clock: ManualClock, ids: CountingIds) -> Scene:
    """A scene on the SQL drivers."""
    return Scene(
        SqlAccounts(db),
        SqlConversations(db),
        SqlGenerations(db),
        clock,
        ids,
        SqlShares(db),
        SqlCustody(db),
        SqlPrompts(db),
        SqlPersonalTexts(db),
        SqlOutbox(db),
        SqlLedger(db),
        SqlAbuseCases(db),
    )


@dataclass
class Scene:
    accounts: Accounts
    conversations: Conversations
    generations: Generations
    clock: ManualClock
    ids: CountingIds
    shares: Shares
    custody: Custody
    prompts: Prompts
    personal: PersonalTexts
    outbox: Outbox
    ledger: Ledger
    cases: AbuseCases
    leases: timedelta = field(default=timedelta(seconds=10))

    async def tenant(self, name: str = "acme") -> Tenant:
        tenant = Tenant(TenantId(self.ids.new(IdKind.TENANT)), name, self.clock.now())
        await self.accounts.create_tenant(tenant)
        return tenant

    def new_user(self, tenant: Tenant, name: str, role: UserRole = UserRole.MEMBER) -> User:
        return User(UserId(self.ids.new(IdKind.USER)), tenant.id, name, role, "free", False, self.clock.now())

    async def user(self, tenant: Tenant, name: str = "ann", role: UserRole = UserRole.MEMBER) -> User:
        user = self.new_user(tenant, name, role)
        await self.accounts.create_user(user)
        return user

    def owner(self, tenant: str = "t1", user: str = "u1") -> Owner:
        return Owner(TenantId(f"tenant_{tenant}"), UserId(f"user_{user}"))

    async def conversation(self, owner: Owner, *, title: str = "", temporary: bool = False) -> Conversation:
        head = Conversation(
            id=ConversationId(self.ids.new(IdKind.CONVERSATION)),
            tenant_id=owner.tenant_id,
            user_id=owner.user_id,
            title=title,
            model=None,
            current_leaf_id=None,
            version=1,
            pinned=False,
            archived=False,
            temporary=temporary,
            created_at=self.clock.now(),
            updated_at=self.clock.now(),
        )
        await self.conversations.create(head)
        return head

    def text(self, content: str = "hello", parent: MessageId | None | CurrentLeaf = CurrentLeaf()) -> NewUserMessage:
        return NewUserMessage(MessageId(self.ids.new(IdKind.MESSAGE)), parent, content, content_tokens=len(content))

    def key(self, key: str = "k1", fingerprint: str = "f1", scope: str = "t1/u1/POST/messages") -> IdempotencyKey:
        return IdempotencyKey(scope, key, fingerprint, self.clock.now() + timedelta(hours=24))

    def turn(
        self,
        owner: Owner,
        conversation_id: ConversationId,
        what: NewUserMessage | RegenerateUnder | ContinueMessage,
        idempotency: IdempotencyKey | None = None,
    ) -> TurnToAccept:
        return TurnToAccept(
            owner=owner,
            conversation_id=conversation_id,
            what=what,
            message_id=MessageId(self.ids.new(IdKind.MESSAGE)),
            generation_id=GenerationId(self.ids.new(IdKind.GENERATION)),
            model="smol",
            requested_model="small",
            params=TurnParams(max_tokens=7, temperature=0.5, seed=3, stop=("x", "y")),
            plan="free",
            key_id=None,
            idempotency=idempotency,
            now=self.clock.now(),
            pool="small",
            band=Band.LOW,
        )

    async def send(
        self, owner: Owner, conversation_id: ConversationId, content: str = "hello", parent: MessageId | None | CurrentLeaf = CurrentLeaf()
    ) -> Accepted:
        return await self.generations.accept(self.turn(owner, conversation_id, self.text(content, parent)))

    async def finish(
        self,
        accepted: Accepted,
        text: str = "an answer",
        status: GenerationStatus = GenerationStatus.COMPLETE,
        finish_reason: str | None = "stop",
        error: MessageError | None = None,
    ) -> None:
        """Claim the turn's generation and end it."""
        claimed = await self.generations.claim(accepted.generation_id, now=self.clock.now(), lease_until=self.clock.now() + self.leases)
        assert claimed is not None
        await self.generations.finalise(self.end(accepted, claimed.epoch, text, status, finish_reason, error))

    def end(
        self,
        accepted: Accepted,
        epoch: int,
        text: str = "an answer",
        status: GenerationStatus = GenerationStatus.COMPLETE,
        finish_reason: str | None = "stop",
        error: MessageError | None = None,
    ) -> FinishedGeneration:
        return FinishedGeneration(
            generation_id=accepted.generation_id,
            epoch=epoch,
            status=status,
            text=text,
            finish_reason=finish_reason,
            usage=Usage(prompt_tokens=5, cached_tokens=2, output_tokens=3, decode_ms=30),
            ttft_ms=12,
            duration_ms=50,
            error=error,
            outbox_payload='{"generation_id":"' + accepted.generation_id + '"}',
            now=self.clock.now(),
            content_tokens=3,
        )

    async def exchange(
        self, owner: Owner, conversation_id: ConversationId, content: str = "hello", parent: MessageId | None | CurrentLeaf = CurrentLeaf()
    ) -> Accepted:
        """A whole turn, answered; a second passes."""
        accepted = await self.send(owner, conversation_id, content, parent)
        await self.finish(accepted)
        self.clock.advance(1)
        return accepted
