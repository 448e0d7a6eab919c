"""Helpers that know nothing of Claude or MCP: tasks, threads, logging, secrets, records."""
