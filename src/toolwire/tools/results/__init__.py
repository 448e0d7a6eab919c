"""The results of tools: any Python value as the content of an MCP result."""
