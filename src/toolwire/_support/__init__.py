"""Helpers that know nothing of Claude or MCP: tasks, threads, waiting, logging, secrets, files, words."""
