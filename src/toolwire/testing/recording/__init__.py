"""Recordings of conversations with the real CLI: written without secrets, played again."""
