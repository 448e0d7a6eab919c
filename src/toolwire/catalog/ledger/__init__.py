"""The ledger: books who may spend how much, and the outcome of every call."""
