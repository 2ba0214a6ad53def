"""What a record of usage was computed for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from antiphon.stores.sql.types import TEXT

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("ledger", sa.Column("purpose", TEXT, nullable=False, server_default="answer"))
