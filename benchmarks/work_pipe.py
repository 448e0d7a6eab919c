"""System calls where the pipe is real: writes of a call when 64 are in flight.

The other side sends 64 calls at once and waits for 64 answers. A pipe takes and gives so few bytes in one piece, so
the count is the same at every run.
"""

import asyncio
import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any

import toolwire
from benchmarks.work_paths import SERVER, tool_call, typed

NAME = "64 calls in a real pipe"
DEPTH = 64

_PEER = """
import json, os, sys
def line():
    rest = b""
    while not rest.endswith(b"\\n"):
        rest += os.read(0, 1 << 20)
    return rest
asked = json.loads(line())
answer = {"subtype": "success", "request_id": asked["request_id"], "response": {}}
os.write(1, json.dumps({"type": "control_response", "response": answer}).encode() + b"\\n")
for _ in range(ROUNDS):
    os.write(1, BLOCK)
    left = BLOCK.count(b"\\n")
    while left > 0:
        left -= os.read(0, 1 << 20).count(b"\\n")
"""


def counted() -> dict[str, float]:
    """Writes of one call."""
    few, many = (asyncio.run(_writes(rounds)) for rounds in (4, 8))
    return {"writes": round((many - few) / 4 / DEPTH, 3)}


async def _writes(rounds: int) -> int:
    """How often was written while such a peer was served."""
    block = b"".join(map(tool_call, range(DEPTH)))
    seen, write = 0, os.write

    def counted_write(*args: Any) -> int:
        nonlocal seen
        seen += 1
        return write(*args)

    with tempfile.TemporaryDirectory(prefix="work-") as folder:
        program = Path(folder) / "peer"
        program.write_text(f"#!{sys.executable} -IS\nROUNDS, BLOCK = {rounds}, {block!r}\n{_PEER}")
        program.chmod(stat.S_IRWXU)
        options = toolwire.ClaudeAgentOptions(cli_path=program, mcp_servers={SERVER: typed()})
        os.write = counted_write
        try:
            async with toolwire.ClaudeSDKClient(options) as client:
                async for _message in client.receive_messages():
                    pass
        finally:
            os.write = write
    return seen
