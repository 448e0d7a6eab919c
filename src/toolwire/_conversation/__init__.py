"""One live conversation with a CLI: its session, the handlers of its requests, and what wires them together."""
