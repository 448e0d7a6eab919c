"""What a tool returns: any Python value as the content of an MCP result."""
