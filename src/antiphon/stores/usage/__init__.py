"""Usage on its way from the outbox to the ledger, and the ledger itself."""
