"""Why a generation was not served as it was asked."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("generations", sa.Column("route_rule", sa.Text(), nullable=False, server_default=""))
    op.add_column("generations", sa.Column("route_reason", sa.Text(), nullable=False, server_default=""))
