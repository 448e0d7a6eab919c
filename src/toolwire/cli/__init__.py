"""The `toolwire` command: one file for each command; parts of one command begin with its name."""
