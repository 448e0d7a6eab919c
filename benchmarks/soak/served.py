"""The server of the HTTP load: `toolwire serve benchmarks/soak/served.py --http`. It exits when its input ends.

The tool `tally` returns what the tools counted, so that clients can compare: each client numbers its calls, so a
repeated number is a call that ran twice. The last thousand numbers of each client are kept.
"""

import os
import signal
import threading
from collections import defaultdict

import anyio

from toolwire import ToolServer

server = ToolServer("soak")
KEPT = 1000
seen: defaultdict[str, dict[int, None]] = defaultdict(dict)
ran = 0
twice = 0
waiting = 0


def note(client: str, number: int) -> None:
    """Record that a call has run."""
    global ran, twice  # noqa: PLW0603 - all tools share these counters
    ran += 1
    own = seen[client]
    twice += number in own
    own[number] = None
    if len(own) > KEPT:
        del own[next(iter(own))]


@server.tool
async def add(client: str, number: int) -> int:
    """Add one to a number."""
    note(client, number)
    return number + 1


@server.tool
def add_in_thread(client: str, number: int) -> int:
    """Add one to a number, in a worker thread."""
    note(client, number)
    return number + 1


@server.tool
async def add_later(client: str, number: int, seconds: float) -> int:
    """Add one to a number, after a while."""
    note(client, number)
    await anyio.sleep(seconds)
    return number + 1


@server.tool
async def text(client: str, number: int, size: int) -> str:
    """Give a long text that ends in the number."""
    note(client, number)
    return "x" * size + f" {number}"


@server.tool
async def wait(client: str, number: int) -> str:
    """Wait until cancelled."""
    global waiting  # noqa: PLW0603
    note(client, number)
    waiting += 1
    try:
        await anyio.sleep(600)
    finally:
        waiting -= 1
    return "never"


@server.tool(structured=True)
async def tally() -> dict[str, int]:
    """Tell what has run so far, what ran twice, and what still waits."""
    return {"ran": ran, "twice": twice, "waiting": waiting}


def _end_with_input() -> None:
    """Terminate this process when its input ends."""
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)


threading.Thread(target=_end_with_input, daemon=True).start()
