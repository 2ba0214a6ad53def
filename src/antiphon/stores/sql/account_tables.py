"""How people prove who they are: sessions, links, passwords, identities at providers, API keys. Of secrets only hashes are kept."""

from __future__ import annotations

import sqlalchemy as sa

from antiphon.stores.sql.tables import metadata

_Moment = sa.BigInteger().with_variant(sa.Integer, "sqlite")

sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("token_sha256", sa.LargeBinary, primary_key=True),
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("created_at", _Moment, nullable=False),
    sa.Column("expires_at", _Moment, nullable=False),
    sa.Column("agent", sa.Text, nullable=False, server_default=""),
    sa.ForeignKeyConstraint(["tenant_id", "user_id"], ["users.tenant_id", "users.id"]),
    sqlite_strict=True,
)
sa.Index("sessions_by_user", sessions.c.tenant_id, sessions.c.user_id, sessions.c.expires_at)

links = sa.Table(
    "links",
    metadata,
    sa.Column("token_sha256", sa.LargeBinary, primary_key=True),
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("expires_at", _Moment, nullable=False),
    sa.ForeignKeyConstraint(["tenant_id", "user_id"], ["users.tenant_id", "users.id"]),
    sqlite_strict=True,
)
sa.Index("links_by_user", links.c.tenant_id, links.c.user_id)

passwords = sa.Table(
    "passwords",
    metadata,
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("encoded", sa.Text, nullable=False),
    sa.PrimaryKeyConstraint("tenant_id", "user_id"),
    sa.ForeignKeyConstraint(["tenant_id", "user_id"], ["users.tenant_id", "users.id"]),
    sqlite_strict=True,
)

identities = sa.Table(
    "identities",
    metadata,
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("issuer", sa.Text, nullable=False),
    sa.Column("subject", sa.Text, nullable=False),
    sa.PrimaryKeyConstraint("tenant_id", "user_id", "issuer", "subject"),
    sa.UniqueConstraint("issuer", "subject", name="identities_subject"),
    sa.ForeignKeyConstraint(["tenant_id", "user_id"], ["users.tenant_id", "users.id"]),
    sqlite_strict=True,
)

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("id", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("scopes", sa.Text, nullable=False),
    sa.Column("last4", sa.Text, nullable=False),
    sa.Column("secret_sha256", sa.LargeBinary, nullable=False),
    sa.Column("created_at", _Moment, nullable=False),
    sa.Column("revoked_at", _Moment),
    sa.Column("band", sa.Integer),
    sa.PrimaryKeyConstraint("tenant_id", "id"),
    sa.UniqueConstraint("id", name="api_keys_id"),
    sa.ForeignKeyConstraint(["tenant_id", "user_id"], ["users.tenant_id", "users.id"]),
    sqlite_strict=True,
)

sa.Index("api_keys_by_secret", api_keys.c.secret_sha256)
