"""Keys with a band of their own, and what was asked with them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("band", sa.Integer()))
    op.add_column("generations", sa.Column("band", sa.Integer()))
