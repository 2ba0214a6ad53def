"""The rows behind the memory drivers. One state stands for one database; a method without ``await`` is one transaction."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from antiphon.core.abuse import Case
from antiphon.core.generation import Generation
from antiphon.core.ids import ConversationId, GenerationId, KeyId, MessageId, ShareId, TenantId, UserId
from antiphon.core.messages import Conversation, Message
from antiphon.core.prompts import Preamble, Summary
from antiphon.core.tenancy import ApiKey, Identity, Tenant, User
from antiphon.core.usage import UsageRecord
from antiphon.stores.conversations.base import Feedback, Owner
from antiphon.stores.custody.base import AuditEntry
from antiphon.stores.generations.base import Accepted
from antiphon.stores.personal.base import Personal
from antiphon.stores.shares.base import Share


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A session, or a sign-in link."""

    user_id: UserId
    expires_at: datetime
    created_at: datetime | None = None
    agent: str = ""


@dataclass(frozen=True, slots=True)
class StoredKey:
    key: ApiKey
    secret_sha256: bytes


@dataclass(frozen=True, slots=True)
class StoredReplay:
    """What an idempotency key answered."""

    fingerprint: str
    expires_at: datetime
    accepted: Accepted


@dataclass(frozen=True, slots=True)
class StoredFeedback:
    feedback: Feedback
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class StoredOrigin:
    """Where an imported conversation came from, and what it had that we do not know."""

    source: str
    source_id: str
    extra: str


@dataclass(frozen=True, slots=True)
class OutboxRow:
    tenant_id: TenantId
    kind: str
    dedup_key: str
    payload: str
    created_at: datetime
    sent_at: datetime | None = None
    attempts: int = 0


@dataclass(slots=True)
class MemoryState:
    """Every table. ``deleted`` holds when conversations were hidden, ``cancel_requests`` when a cancel was asked for."""

    tenants: dict[TenantId, Tenant] = field(default_factory=dict[TenantId, Tenant])
    users: dict[UserId, User] = field(default_factory=dict[UserId, User])
    sessions: dict[bytes, StoredToken] = field(default_factory=dict[bytes, StoredToken])
    links: dict[bytes, StoredToken] = field(default_factory=dict[bytes, StoredToken])
    passwords: dict[UserId, str] = field(default_factory=dict[UserId, str])
    identities: dict[Identity, UserId] = field(default_factory=dict[Identity, UserId])
    keys: dict[KeyId, StoredKey] = field(default_factory=dict[KeyId, StoredKey])
    conversations: dict[ConversationId, Conversation] = field(default_factory=dict[ConversationId, Conversation])
    deleted: dict[ConversationId, datetime] = field(default_factory=dict[ConversationId, datetime])
    messages: dict[MessageId, Message] = field(default_factory=dict[MessageId, Message])
    message_ids: dict[ConversationId, list[MessageId]] = field(default_factory=dict[ConversationId, list[MessageId]])
    generations: dict[GenerationId, Generation] = field(default_factory=dict[GenerationId, Generation])
    replays: dict[tuple[str, str], StoredReplay] = field(default_factory=dict[tuple[str, str], StoredReplay])
    outbox: list[OutboxRow] = field(default_factory=list[OutboxRow])
    cancel_requests: dict[GenerationId, datetime] = field(default_factory=dict[GenerationId, datetime])
    feedback: dict[tuple[UserId, MessageId], StoredFeedback] = field(default_factory=dict[tuple[UserId, MessageId], StoredFeedback])
    origins: dict[ConversationId, StoredOrigin] = field(default_factory=dict[ConversationId, StoredOrigin])
    extras: dict[MessageId, str] = field(default_factory=dict[MessageId, str])
    docs: dict[tuple[ConversationId, MessageId | None], int] = field(default_factory=dict[tuple[ConversationId, MessageId | None], int])
    last_doc: int = 0
    audit: list[AuditEntry] = field(default_factory=list[AuditEntry])
    shares: dict[ShareId, Share] = field(default_factory=dict[ShareId, Share])
    retention_days: dict[TenantId, int] = field(default_factory=dict[TenantId, int])
    summaries: dict[tuple[ConversationId, MessageId], Summary] = field(default_factory=dict[tuple[ConversationId, MessageId], Summary])
    preambles: dict[tuple[ConversationId, str], Preamble] = field(default_factory=dict[tuple[ConversationId, str], Preamble])
    token_counts: dict[tuple[ConversationId, str], dict[MessageId, int]] = field(
        default_factory=dict[tuple[ConversationId, str], dict[MessageId, int]]
    )
    personal: dict[tuple[TenantId, UserId], Personal] = field(default_factory=dict[tuple[TenantId, UserId], Personal])
    abuse_cases: dict[tuple[TenantId, UserId], Case] = field(default_factory=dict[tuple[TenantId, UserId], Case])
    open_usage: dict[tuple[TenantId, GenerationId], tuple[datetime, UsageRecord]] = field(
        default_factory=dict[tuple[TenantId, GenerationId], tuple[datetime, UsageRecord]]
    )

    def index(self, conversation_id: ConversationId, message_id: MessageId | None) -> None:
        """A title (no message) or a text is new or has changed: searches find it as it is now, as the newest."""
        self.last_doc += 1
        self.docs[conversation_id, message_id] = self.last_doc

    def add_audit(self, owner: Owner, action: str, subject: str, now: datetime, *, by_server: bool = False) -> None:
        actor = None if by_server else owner.user_id
        self.audit.append(AuditEntry(len(self.audit) + 1, owner.tenant_id, actor, action, subject, now))

    def add_message(self, message: Message) -> None:
        self.messages[message.id] = message
        self.message_ids.setdefault(message.conversation_id, []).append(message.id)

    def add_summary(self, summary: Summary) -> None:
        self.summaries.setdefault((summary.conversation_id, summary.through), summary)
