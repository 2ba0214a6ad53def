"""Accounts: tenants, users, sign-in links, sessions, API keys."""
