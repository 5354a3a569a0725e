"""Turn a user's options into a checked plan, and a plan into a run in the ledger."""
