"""Custody of stored data: purge, retention, audit, and what the operator may see."""
