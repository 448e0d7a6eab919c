"""Policies for shell commands: reading a line, and deciding about the programs in it."""
