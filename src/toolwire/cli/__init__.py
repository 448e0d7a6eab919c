"""The `toolwire` command: one file for each command, no logic of its own."""
