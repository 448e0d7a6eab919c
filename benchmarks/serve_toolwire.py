"""Serves the tools as `toolwire serve` does: `serve_toolwire.py CASE`, where CASE is a JSON object."""

import json
import sys
from functools import partial
from typing import Any

import anyio

from benchmarks.served_tools import register
from toolwire import ToolServer, serve_http, serve_stdio


def main(case: dict[str, Any]) -> None:
    """Serve until the process is terminated or its input ends."""
    server = ToolServer("bench")
    register(lambda name: server.tool(name=name), case["tools"])
    if case["carrier"] == "stdio":
        work = partial(serve_stdio, server)
    else:
        work = partial(serve_http, server, port=case["port"])
    anyio.run(work, backend_options={"use_uvloop": case.get("loop") == "uvloop"})


main(json.loads(sys.argv[1]))
