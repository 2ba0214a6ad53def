"""What a PostgreSQL server says of itself, for whoever looks after it."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

from antiphon.stores.sql import schema
from antiphon.stores.sql.postgres import connections_wanted, connector, told_at_start


@dataclass(frozen=True, slots=True)
class PostgresReport:
    """``schema`` is ``None`` in a database that is new. ``clock_ms`` is milliseconds since 1970 there."""

    version: str
    schema: str | None
    newest_schema: str
    encoding: str
    megabytes: float
    commit_ms: float
    free_connections: int
    wanted_connections: int
    durable: bool
    clock_ms: int
    encrypted: bool


def report_of(url: str) -> PostgresReport:
    """Look once; blocking. Raises ``StoreUnavailable`` with the server's words, ``ConfigErrors``."""
    with told_at_start(), connector(url)() as connection:
        connection.autocommit = True
        row = connection.execute(
            "SELECT current_setting('server_version'), to_regclass('alembic_version') IS NOT NULL, current_setting('server_encoding'), "
            "pg_database_size(current_database()), "
            "current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int "
            "- (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'), "
            "current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on' "
            "AND current_setting('synchronous_commit') <> 'off', "
            "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)"
        ).fetchone()
        assert row is not None
        version, migrated, encoding, size, free, durable, clock_ms = row
        found = connection.execute("SELECT version_num FROM alembic_version").fetchone() if migrated else None
        began = perf_counter()
        connection.execute("SELECT pg_logical_emit_message(true, 'antiphon', '')")  # a record of its write-ahead log, synced
        commit_ms = 1000 * (perf_counter() - began)
        return PostgresReport(
            version=str(version).partition(" ")[0],
            schema=None if found is None else str(found[0]),
            newest_schema=schema.versions()[-1],
            encoding=str(encoding),
            megabytes=size / 2**20,
            commit_ms=commit_ms,
            free_connections=free,
            wanted_connections=connections_wanted(),
            durable=durable,
            clock_ms=clock_ms,
            encrypted=connection.pgconn.ssl_in_use,
        )
