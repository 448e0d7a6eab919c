"""Carries bytes to and from the CLI: a process on asyncio or trio, or the user's own transport."""
