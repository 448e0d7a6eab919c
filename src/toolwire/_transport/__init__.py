"""How bytes reach the CLI: a process on asyncio or trio, or a transport of the user's own."""
