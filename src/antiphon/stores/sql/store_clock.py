"""The database's own clock, which all servers share."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


class StoreClock(FunctionElement[int]):
    """Milliseconds since 1970 (UTC), now."""

    type = sa.BigInteger()
    inherit_cache = True


@compiles(StoreClock, "sqlite")
def _on_sqlite(_element: StoreClock, _compiler: Any, **_named: Any) -> str:
    return "CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)"


@compiles(StoreClock, "postgresql")
def _on_postgresql(_element: StoreClock, _compiler: Any, **_named: Any) -> str:
    return "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)"
