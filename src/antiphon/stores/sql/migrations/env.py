"""What Alembic runs. The connection, with its transaction, comes from ``schema.upgrade``."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context

from antiphon.stores.sql.tables import metadata

connection = context.config.attributes["connection"]
assert isinstance(connection, sa.Connection)
context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
context.run_migrations()
