"""Policies for shell commands: parses a line, and decides about the programs in it."""
