"""Serves the tools with FastMCP, by its own `run`: `serve_fastmcp.py CASE`, a JSON object."""

import json
import sys
from typing import Any

from fastmcp import FastMCP

from benchmarks.served_tools import register


def main(case: dict[str, Any]) -> None:
    server: Any = FastMCP("bench")
    # Without output schemas: with them it lists and answers more than the others do.
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
