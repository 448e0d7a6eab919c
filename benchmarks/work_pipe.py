"""Counts the write system calls of a tool call on a real pipe, with 64 calls in flight.

The peer sends 64 calls at once and waits for 64 responses. A pipe transfers so few bytes in one piece, so the count
is the same in every run.
"""

import asyncio
import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any

import toolwire
from benchmarks.work_paths import SERVER, make_tool_call, make_typed_server

NAME = "64 calls in a real pipe"
DEPTH = 64

_PEER = """
import json, os, sys
def read_line():
    rest = b""
    while not rest.endswith(b"\\n"):
        rest += os.read(0, 1 << 20)
    return rest
request = json.loads(read_line())
response = {"subtype": "success", "request_id": request["request_id"], "response": {}}
os.write(1, json.dumps({"type": "control_response", "response": response}).encode() + b"\\n")
for _ in range(ROUNDS):
    os.write(1, BLOCK)
    left = BLOCK.count(b"\\n")
    while left > 0:
        left -= os.read(0, 1 << 20).count(b"\\n")
"""


def measure_writes() -> dict[str, float]:
    """Return the number of writes for one call, from the difference of a short and a long run."""
    few, many = (asyncio.run(_count_writes(rounds)) for rounds in (4, 8))
    return {"writes": round((many - few) / 4 / DEPTH, 3)}


async def _count_writes(rounds: int) -> int:
    """Count the writes of a session whose peer sends that many rounds of 64 calls."""
    block = b"".join(map(make_tool_call, range(DEPTH)))
    seen, write = 0, os.write

    def count_write(*args: Any) -> int:
        nonlocal seen
        seen += 1
        return write(*args)

    with tempfile.TemporaryDirectory(prefix="work-") as folder:
        program = Path(folder) / "peer"
        program.write_text(f"#!{sys.executable} -IS\nROUNDS, BLOCK = {rounds}, {block!r}\n{_PEER}")
        program.chmod(stat.S_IRWXU)
        options = toolwire.ClaudeAgentOptions(cli_path=program, mcp_servers={SERVER: make_typed_server()})
        os.write = count_write
        try:
            async with toolwire.ClaudeSDKClient(options) as client:
                async for _message in client.receive_messages():
                    pass
        finally:
            os.write = write
    return seen
