"""An MCP server on the web, passed on as one of this process."""
