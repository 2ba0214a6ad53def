"""Alembic: numbered migrations, run by ``schema.upgrade``."""
