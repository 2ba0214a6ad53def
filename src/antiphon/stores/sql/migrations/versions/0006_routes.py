"""Why a generation was not served as it was asked."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from antiphon.stores.sql.types import TEXT

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("generations", sa.Column("route_rule", TEXT, nullable=False, server_default=""))
    op.add_column("generations", sa.Column("route_reason", TEXT, nullable=False, server_default=""))
