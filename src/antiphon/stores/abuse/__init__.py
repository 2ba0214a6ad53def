"""Cases of accounts under suspicion."""
