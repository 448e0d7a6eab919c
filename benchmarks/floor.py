"""The least that any program can do over the same pipes: read a line, write a line, nothing else.

It starts the peer as an SDK would and answers by ready-made bytes. It blocks, parses nothing, and allocates next to
nothing: no SDK can be faster, so it is what the others are measured against.
"""

import json
import os
import subprocess
import sys
import time
from typing import Any

_CHUNK = 1 << 16  # what a pipe holds
# As long as the answer to a small call.
_TEXT = b'{"jsonrpc":"2.0","id":10,"result":{"content":[{"type":"text","text":"42.0"}]}}'
_ANSWER = (
    b'{"type":"control_response","response":{"subtype":"success","request_id":"peer_10","response":{"mcp_response":'
    + _TEXT
    + b"}}}\n"
)


def answer(come: int, go: int) -> None:
    """Line for line, until the peer has gone."""
    while lines := os.read(come, _CHUNK).count(b"\n"):
        os.write(go, _ANSWER * lines)


def listen(come: int) -> dict[str, int]:
    """Read only, and say what a driver says of a stream."""
    count, last = 0, 0
    while chunk := os.read(come, _CHUNK):
        count += chunk.count(b"\n")
        last = time.monotonic_ns()
    return {"messages": count, "last": last, "cpu": time.process_time_ns()}


def main(program: str, case: dict[str, Any]) -> None:
    if "core" in case:
        os.sched_setaffinity(0, {case["core"]})
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as peer:  # noqa: S603
        assert peer.stdin is not None  # noqa: S101
        assert peer.stdout is not None  # noqa: S101
        come, go = peer.stdout.fileno(), peer.stdin.fileno()
        os.write(go, b'{"type":"user"}\n')
        if case.get("listen"):
            sys.stdout.write(json.dumps(listen(come)))
        else:
            answer(come, go)


main(sys.argv[1], json.loads(sys.argv[2]))
