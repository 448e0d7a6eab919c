"""The protocols without I/O: lines of JSON, control requests, messages, runs, JSON-RPC. Time is an argument."""
