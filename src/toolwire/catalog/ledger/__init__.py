"""The ledger: decides what may be spent, and books the outcome of every call."""
