"""Serves the tools with FastMCP, through its `run` method: `serve_fastmcp.py CASE`, where CASE is a JSON object."""

import json
import sys
from typing import Any

from fastmcp import FastMCP

from benchmarks.served_tools import register


def main(case: dict[str, Any]) -> None:
    """Serve until the process is terminated or its input ends."""
    server: Any = FastMCP("bench")
    # Without output schemas, with which its lists and results would contain more than those of the others.
    register(lambda name: server.tool(name=name, output_schema=None), case["tools"])
    if case["carrier"] == "stdio":
        server.run("stdio", show_banner=False, log_level="WARNING")
        return
    server.run(
        "http",
        show_banner=False,
        host="127.0.0.1",
        port=case["port"],
        log_level="WARNING",
        json_response=case.get("json", False),
        uvicorn_config={"access_log": False, "log_level": "warning"},
    )


main(json.loads(sys.argv[1]))
