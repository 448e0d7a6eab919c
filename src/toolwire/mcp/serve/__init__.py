"""Our servers for any MCP client, over stdio or HTTP."""
