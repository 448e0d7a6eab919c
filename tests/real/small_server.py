"""A small MCP server over stdio that the CLI starts. Given a named pipe, it waits there before it begins."""

import json
import os
import sys

INITIALIZED = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}, "resources": {}},
    "serverInfo": {"name": "small", "version": "1"},
}
TOOLS = {"tools": [{"name": "say", "description": "Say it.", "inputSchema": {"type": "object"}}]}


def answer(method, params):
    """Return the result of a request."""
    match method:
        case "initialize":
            return INITIALIZED
        case "tools/list":
            return TOOLS
        case "tools/call":
            return {"content": [{"type": "text", "text": json.dumps(params.get("arguments"))}]}
        case "resources/read":
            return {"contents": [{"uri": params["uri"], "mimeType": "text/html", "text": "<p>"}]}
        case _:
            return {}


def main():
    """Answer the requests that come on stdin."""
    if sys.argv[1:]:
        os.read(os.open(sys.argv[1], os.O_RDONLY), 1)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            result = answer(message["method"], message.get("params") or {})
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
