"""The lower bound for any SDK: a program that reads a line from the peer, writes a prepared line, and nothing else.

It starts the peer as an SDK would. It blocks, parses nothing, and allocates next to nothing: no SDK can be faster,
so the SDKs are compared with it.
"""

import json
import os
import subprocess
import sys
import time
from typing import Any

_CHUNK = 1 << 16  # the capacity of a pipe
# As long as the response to a small tool call.
_TEXT = b'{"jsonrpc":"2.0","id":10,"result":{"content":[{"type":"text","text":"42.0"}]}}'
_RESPONSE = (
    b'{"type":"control_response","response":{"subtype":"success","request_id":"peer_10","response":{"mcp_response":'
    + _TEXT
    + b"}}}\n"
)


def respond(incoming: int, outgoing: int) -> None:
    """Write a response for each line that is read, until the peer closes its end."""
    while lines := os.read(incoming, _CHUNK).count(b"\n"):
        os.write(outgoing, _RESPONSE * lines)


def listen(incoming: int) -> dict[str, int]:
    """Read a stream of messages without responding. Returns the figures that a driver reports of a stream."""
    count, last = 0, 0
    while chunk := os.read(incoming, _CHUNK):
        count += chunk.count(b"\n")
        last = time.monotonic_ns()
    return {"messages": count, "last": last, "cpu": time.process_time_ns()}


def main(program: str, case: dict[str, Any]) -> None:
    """Start the peer, and respond to it or, with `listen`, only read from it."""
    if "core" in case:
        os.sched_setaffinity(0, {case["core"]})
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as peer:  # noqa: S603
        assert peer.stdin is not None  # noqa: S101
        assert peer.stdout is not None  # noqa: S101
        incoming, outgoing = peer.stdout.fileno(), peer.stdin.fileno()
        os.write(outgoing, b'{"type":"user"}\n')
        if case.get("listen"):
            sys.stdout.write(json.dumps(listen(incoming)))
        else:
            respond(incoming, outgoing)


main(sys.argv[1], json.loads(sys.argv[2]))
