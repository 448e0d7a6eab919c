"""MCP beyond our own tools: servers of other libraries, and our servers for other clients."""
