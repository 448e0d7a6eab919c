"""Session stores: in memory, in SQLite, in servers, and wrappers around any of them."""
