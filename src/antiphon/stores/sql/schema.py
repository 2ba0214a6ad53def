"""Which schema a database has, and bringing it up to date. Alembic is imported only when there is something to do."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import sqlalchemy as sa

from antiphon.core.errors import ConfigErrors

_MIGRATIONS = Path(__file__).with_name("migrations")


@cache
def versions() -> tuple[str, ...]:
    """The numbers of all migrations, oldest first. Reads a folder."""
    return tuple(sorted(path.name[:4] for path in (_MIGRATIONS / "versions").glob("[0-9][0-9][0-9][0-9]_*.py")))


def version_of(connection: sa.Connection) -> str | None:
    """The number of the last migration this database has seen; ``None`` for an empty one."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    version = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one_or_none()
    return None if version is None else str(version)


def is_current(connection: sa.Connection) -> bool:
    """Whether there is nothing to migrate. Raises ``ConfigErrors`` for a schema that only a newer Antiphon knows."""
    version, known = version_of(connection), versions()
    if version is not None and version not in known:
        raise ConfigErrors([("store.url", f"the database has schema {version}; this Antiphon knows up to {known[-1]}")])
    return version == known[-1]


def upgrade(connection: sa.Connection) -> None:
    """Run the missing migrations in the caller's transaction; does nothing when another process was faster."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
