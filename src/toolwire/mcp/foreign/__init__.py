"""MCP servers of other libraries, used in this process like our own."""
