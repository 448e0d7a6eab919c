"""JSON-RPC requests to a `ToolServer`: a table of methods, calls while they run, errors."""
