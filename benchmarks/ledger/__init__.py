"""How fast the ledger answers, and what it costs in Redis, for a long run and a large fleet of simulated workers."""
