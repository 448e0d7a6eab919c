"""Tools: functions, values and results as MCP wants them, and the server that offers them."""
