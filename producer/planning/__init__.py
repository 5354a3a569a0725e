"""From the options of a user to a checked plan, and from a plan to a run in the ledger."""
