"""What a record of usage was computed for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("ledger", sa.Column("purpose", sa.Text(), nullable=False, server_default="answer"))
