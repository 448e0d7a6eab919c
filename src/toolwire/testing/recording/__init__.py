"""Recordings of conversations with the real CLI, without secrets, and their replay."""
