"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from antiphon.stores.sql.types import NUMBER, TEXT

revision = "0001"
down_revision = None


_FIXED_PARENT_ON_SQLITE = """
CREATE TRIGGER messages_parent_is_fixed BEFORE UPDATE OF tenant_id, conversation_id, id, parent_id ON messages
WHEN (OLD.tenant_id, OLD.conversation_id, OLD.id, OLD.parent_id) IS NOT (NEW.tenant_id, NEW.conversation_id, NEW.id, NEW.parent_id)
BEGIN
    SELECT RAISE(ABORT, 'a message never moves in its tree');
END
"""

_FIXED_PARENT_ON_POSTGRESQL = """
CREATE FUNCTION messages_parent_is_fixed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a message never moves in its tree' USING ERRCODE = 'integrity_constraint_violation';
END $$;
CREATE TRIGGER messages_parent_is_fixed BEFORE UPDATE OF tenant_id, conversation_id, id, parent_id ON messages FOR EACH ROW
WHEN ((OLD.tenant_id, OLD.conversation_id, OLD.id, OLD.parent_id)
    IS DISTINCT FROM (NEW.tenant_id, NEW.conversation_id, NEW.id, NEW.parent_id))
EXECUTE FUNCTION messages_parent_is_fixed()
"""


def upgrade() -> None:
    _make_tenants()
    _make_users()
    _make_sessions()
    _make_links()
    _make_api_keys()
    _make_conversations()
    _make_messages()
    _make_generations()
    _make_idempotency()
    _make_outbox()
    _make_feedback()


def _make_tenants() -> None:
    op.create_table(
        "tenants",
        sa.Column("tenant_id", TEXT, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("created_at", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id"),
        sa.UniqueConstraint("name", name="tenants_name"),
        sqlite_strict=True,
    )


def _make_users() -> None:
    op.create_table(
        "users",
        sa.Column("tenant_id", TEXT, nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("role", TEXT, nullable=False),
        sa.Column("plan", TEXT, nullable=False),
        sa.Column("disabled", sa.Integer(), nullable=False),
        sa.Column("created_at", NUMBER, nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"],
            ["tenants.tenant_id"],
        ),
        sa.PrimaryKeyConstraint("tenant_id", "id"),
        sa.UniqueConstraint("id", name="users_id"),
        sa.UniqueConstraint("tenant_id", "name", name="users_name"),
        sqlite_strict=True,
    )


def _make_sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("token_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("tenant_id", TEXT, nullable=False),
        sa.Column("user_id", TEXT, nullable=False),
        sa.Column("created_at", NUMBER, nullable=False),
        sa.Column("expires_at", NUMBER, nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id", "user_id"],
            ["users.tenant_id", "users.id"],
        ),
        sa.PrimaryKeyConstraint("token_sha256"),
        sqlite_strict=True,
    )
    op.create_index("sessions_by_user", "sessions", ["tenant_id", "user_id", "expires_at"])


def _make_links() -> None:
    op.create_table(
        "links",
        sa.Column("token_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("tenant_id", TEXT, nullable=False),
        sa.Column("user_id", TEXT, nullable=False),
        sa.Column("expires_at", NUMBER, nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id", "user_id"],
            ["users.tenant_id", "users.id"],
        ),
        sa.PrimaryKeyConstraint("token_sha256"),
        sqlite_strict=True,
    )
    op.create_index("links_by_user", "links", ["tenant_id", "user_id"])


def _make_api_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("tenant_id", TEXT, nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("user_id", TEXT, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("scopes", TEXT, nullable=False),
        sa.Column("last4", TEXT, nullable=False),
        sa.Column("secret_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", NUMBER, nullable=False),
        sa.Column("revoked_at", NUMBER),
        sa.ForeignKeyConstraint(
            ["tenant_id", "user_id"],
            ["users.tenant_id", "users.id"],
        ),
        sa.PrimaryKeyConstraint("tenant_id", "id"),
        sa.UniqueConstraint("id", name="api_keys_id"),
        sqlite_strict=True,
    )


def _make_conversations() -> None:
    op.create_table(
        "conversations",
        sa.Column("tenant_id", TEXT, nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("user_id", TEXT, nullable=False),
        sa.Column("title", TEXT, nullable=False),
        sa.Column("model", TEXT),
        sa.Column("current_leaf_id", TEXT),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("pinned", sa.Integer(), nullable=False),
        sa.Column("archived", sa.Integer(), nullable=False),
        sa.Column("temporary", sa.Integer(), nullable=False),
        sa.Column("created_at", NUMBER, nullable=False),
        sa.Column("updated_at", NUMBER, nullable=False),
        sa.Column("deleted_at", NUMBER),
        sa.PrimaryKeyConstraint("tenant_id", "id"),
        sqlite_strict=True,
    )
    op.create_index(
        "conversations_listed",
        "conversations",
        ["tenant_id", "user_id", "updated_at", "id"],
        sqlite_where=sa.text("deleted_at IS NULL AND temporary = 0"),
        postgresql_where=sa.text("deleted_at IS NULL AND temporary = 0"),
    )


def _make_messages() -> None:
    op.create_table(
        "messages",
        sa.Column("tenant_id", TEXT, nullable=False),
        sa.Column("conversation_id", TEXT, nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("parent_id", TEXT),
        sa.Column("role", TEXT, nullable=False),
        sa.Column("status", TEXT, nullable=False),
        sa.Column("created_at", NUMBER, nullable=False),
        sa.Column("model", TEXT),
        sa.Column("requested_model", TEXT),
        sa.Column("finish_reason", TEXT),
        sa.Column("prompt_tokens", sa.Integer()),
        sa.Column("cached_tokens", sa.Integer()),
        sa.Column("output_tokens", sa.Integer()),
        sa.Column("content_tokens", sa.Integer()),
        sa.Column("cost", TEXT),
        sa.Column("generation_id", TEXT),
        sa.Column("error", TEXT),
        sa.Column("content", TEXT, nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id", "conversation_id", "parent_id"],
            ["messages.tenant_id", "messages.conversation_id", "messages.id"],
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id", "conversation_id"],
            ["conversations.tenant_id", "conversations.id"],
        ),
        sa.PrimaryKeyConstraint("tenant_id", "conversation_id", "id"),
        sa.UniqueConstraint("tenant_id", "id", name="messages_id"),
        sqlite_strict=True,
    )
    op.create_index("messages_tree", "messages", ["tenant_id", "conversation_id", "parent_id", "created_at", "id", "role", "status"])
    if op.get_bind().dialect.name == "sqlite":
        op.execute(_FIXED_PARENT_ON_SQLITE)
    else:
        op.execute(_FIXED_PARENT_ON_POSTGRESQL)


def _make_generations() -> None:
    op.create_table(
        "generations",
        sa.Column("tenant_id", TEXT, nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("user_id", TEXT, nullable=False),
        sa.Column("key_id", TEXT),
        sa.Column("conversation_id", TEXT, nullable=False),
        sa.Column("message_id", TEXT, nullable=False),
        sa.Column("user_message_id", TEXT),
        sa.Column("status", TEXT, nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("lease_until", NUMBER),
        sa.Column("cancel_requested_at", NUMBER),
        sa.Column("plan", TEXT, nullable=False),
        sa.Column("pool", TEXT, nullable=False),
        sa.Column("model", TEXT, nullable=False),
        sa.Column("requested_model", TEXT, nullable=False),
        sa.Column("params", TEXT, nullable=False),
        sa.Column("created_at", NUMBER, nullable=False),
        sa.Column("finished_at", NUMBER),
        sa.Column("finish_reason", TEXT),
        sa.Column("usage", TEXT, nullable=False),
        sa.Column("ttft_ms", sa.Integer()),
        sa.Column("duration_ms", sa.Integer()),
        sa.Column("error", TEXT),
        sa.Column("checkpoint_seq", sa.Integer(), nullable=False),
        sa.Column("prior_text", TEXT, nullable=False),
        sa.Column("checkpoint_text", TEXT, nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id", "conversation_id", "message_id"],
            ["messages.tenant_id", "messages.conversation_id", "messages.id"],
        ),
        sa.PrimaryKeyConstraint("tenant_id", "id"),
        sa.UniqueConstraint("id", name="generations_id"),
        sqlite_strict=True,
    )
    op.create_index("generations_by_message", "generations", ["tenant_id", "conversation_id", "message_id"])
    op.create_index(
        "generations_open",
        "generations",
        ["created_at", "id", "status", "lease_until"],
        sqlite_where=sa.text("status IN ('queued', 'running')"),
        postgresql_where=sa.text("status IN ('queued', 'running')"),
    )


def _make_idempotency() -> None:
    op.create_table(
        "idempotency",
        sa.Column("scope", TEXT, nullable=False),
        sa.Column("key", TEXT, nullable=False),
        sa.Column("tenant_id", TEXT, nullable=False),
        sa.Column("fingerprint", TEXT, nullable=False),
        sa.Column("conversation_id", TEXT, nullable=False),
        sa.Column("user_message_id", TEXT),
        sa.Column("message_id", TEXT, nullable=False),
        sa.Column("generation_id", TEXT, nullable=False),
        sa.Column("expires_at", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("scope", "key"),
        sqlite_strict=True,
    )
    op.create_index("idempotency_by_end", "idempotency", ["tenant_id", "expires_at"])


def _make_outbox() -> None:
    op.create_table(
        "outbox",
        sa.Column("id", NUMBER, nullable=False),
        sa.Column("tenant_id", TEXT, nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("dedup_key", TEXT, nullable=False),
        sa.Column("payload", TEXT, nullable=False),
        sa.Column("created_at", NUMBER, nullable=False),
        sa.Column("sent_at", NUMBER),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("tenant_id", "kind", "dedup_key", name="outbox_dedup"),
        sqlite_strict=True,
    )
    op.create_index("outbox_unsent", "outbox", ["id"], sqlite_where=sa.text("sent_at IS NULL"), postgresql_where=sa.text("sent_at IS NULL"))


def _make_feedback() -> None:
    op.create_table(
        "feedback",
        sa.Column("tenant_id", TEXT, nullable=False),
        sa.Column("user_id", TEXT, nullable=False),
        sa.Column("conversation_id", TEXT, nullable=False),
        sa.Column("message_id", TEXT, nullable=False),
        sa.Column("rating", sa.Integer(), nullable=False),
        sa.Column("reasons", TEXT, nullable=False),
        sa.Column("comment", TEXT, nullable=False),
        sa.Column("updated_at", NUMBER, nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id", "conversation_id", "message_id"],
            ["messages.tenant_id", "messages.conversation_id", "messages.id"],
        ),
        sa.PrimaryKeyConstraint("tenant_id", "user_id", "message_id"),
        sqlite_strict=True,
    )
