"""The column types that are not spelled the same on every database."""

from __future__ import annotations

import sqlalchemy as sa

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
"""Compared by code points everywhere, whatever the locale of a PostgreSQL database."""

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""64 bits; SQLite's integers always have them, and only ``INTEGER`` numbers its rows there."""
