"""How people prove who they are: sessions, links, passwords, identities at providers, API keys. Of secrets only hashes are kept."""

from __future__ import annotations

import sqlalchemy as sa

from antiphon.stores.sql.tables import metadata
from antiphon.stores.sql.types import NUMBER, TEXT

sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("token_sha256", sa.LargeBinary, primary_key=True),
    sa.Column("tenant_id", TEXT, nullable=False),
    sa.Column("user_id", TEXT, nullable=False),
    sa.Column("created_at", NUMBER, nullable=False),
    sa.Column("expires_at", NUMBER, nullable=False),
    sa.Column("agent", TEXT, nullable=False, server_default=""),
    sa.ForeignKeyConstraint(["tenant_id", "user_id"], ["users.tenant_id", "users.id"]),
    sqlite_strict=True,
)
sa.Index("sessions_by_user", sessions.c.tenant_id, sessions.c.user_id, sessions.c.expires_at)

links = sa.Table(
    "links",
    metadata,
    sa.Column("token_sha256", sa.LargeBinary, primary_key=True),
    sa.Column("tenant_id", TEXT, nullable=False),
    sa.Column("user_id", TEXT, nullable=False),
    sa.Column("expires_at", NUMBER, nullable=False),
    sa.ForeignKeyConstraint(["tenant_id", "user_id"], ["users.tenant_id", "users.id"]),
    sqlite_strict=True,
)
sa.Index("links_by_user", links.c.tenant_id, links.c.user_id)

passwords = sa.Table(
    "passwords",
    metadata,
    sa.Column("tenant_id", TEXT, nullable=False),
    sa.Column("user_id", TEXT, nullable=False),
    sa.Column("encoded", TEXT, nullable=False),
    sa.PrimaryKeyConstraint("tenant_id", "user_id"),
    sa.ForeignKeyConstraint(["tenant_id", "user_id"], ["users.tenant_id", "users.id"]),
    sqlite_strict=True,
)

identities = sa.Table(
    "identities",
    metadata,
    sa.Column("tenant_id", TEXT, nullable=False),
    sa.Column("user_id", TEXT, nullable=False),
    sa.Column("issuer", TEXT, nullable=False),
    sa.Column("subject", TEXT, nullable=False),
    sa.PrimaryKeyConstraint("tenant_id", "user_id", "issuer", "subject"),
    sa.UniqueConstraint("issuer", "subject", name="identities_subject"),
    sa.ForeignKeyConstraint(["tenant_id", "user_id"], ["users.tenant_id", "users.id"]),
    sqlite_strict=True,
)

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("tenant_id", TEXT, nullable=False),
    sa.Column("id", TEXT, nullable=False),
    sa.Column("user_id", TEXT, nullable=False),
    sa.Column("name", TEXT, nullable=False),
    sa.Column("scopes", TEXT, nullable=False),
    sa.Column("last4", TEXT, nullable=False),
    sa.Column("secret_sha256", sa.LargeBinary, nullable=False),
    sa.Column("created_at", NUMBER, nullable=False),
    sa.Column("revoked_at", NUMBER),
    sa.Column("band", sa.Integer),
    sa.PrimaryKeyConstraint("tenant_id", "id"),
    sa.UniqueConstraint("id", name="api_keys_id"),
    sa.ForeignKeyConstraint(["tenant_id", "user_id"], ["users.tenant_id", "users.id"]),
    sqlite_strict=True,
)

sa.Index("api_keys_by_secret", api_keys.c.secret_sha256)
