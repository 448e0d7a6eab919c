"""Times two turns with the real CLI and a session store that is slow, fails or hangs during the first turn.

The same code for both SDKs. At the end, the stored entries are compared with those on disk.
"""

import asyncio
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

SLOW = 4.0  # seconds that a slow store takes for each append
HANGING = 20.0  # seconds after which a hanging store continues
LIMIT = 2_000  # milliseconds that toolwire waits for the store; the official SDK has no such setting
QUICKER = 20  # all of these are divided by this number in a quick run


class Store:
    """A session store in memory. `way` says how it behaves: "there", "slow", "failing" or "hanging"."""

    def __init__(self, way: str, pace: float) -> None:
        self.way = way
        self.pace = pace
        self.entries: dict[str, list[Any]] = {}
        self.began = asyncio.Event()

    async def append(self, key: Any, entries: list[Any]) -> None:
        """Add entries, late or not at all."""
        self.began.set()
        match self.way:
            case "slow":
                await asyncio.sleep(SLOW / self.pace)
            case "failing":
                raise ConnectionError("the store is unavailable")
            case "hanging":
                await asyncio.sleep(HANGING / self.pace)
        known = self.entries.setdefault(key["session_id"] + "/" + key.get("subpath", ""), [])
        names = {each.get("uuid") for each in known} - {None}
        known += [each for each in entries if each.get("uuid") not in names]

    async def load(self, key: Any) -> list[Any] | None:
        """Return entries."""
        return self.entries.get(key["session_id"] + "/" + key.get("subpath", ""))


async def converse(sdk: Any, options: Any, store: Store) -> dict[str, float]:
    """Run two turns, with a request during the first append. Returns times in milliseconds, and what was stored."""
    seen: dict[str, float] = {}

    async def request() -> None:
        await store.began.wait()
        begun = time.monotonic_ns()
        await client.get_mcp_status()
        seen["request during an append"] = (time.monotonic_ns() - begun) / 1e6

    client = sdk.ClaudeSDKClient(options)
    await client.connect()
    requesting = asyncio.create_task(request())
    for number in (1, 2):
        begun = time.monotonic_ns()
        await client.query(f"prompt {number}")
        async for message in client.receive_response():
            if type(message).__name__ == "ResultMessage":
                seen[f"prompt {number} to result"] = (time.monotonic_ns() - begun) / 1e6
                session_id = message.session_id
        if store.way != "slow":
            store.way = "there"  # from now on it works
    await requesting
    await client.disconnect()
    return {**seen, **judge(session_id, store)}


def judge(session_id: str, store: Store) -> dict[str, float]:
    """Compare the stored entries with those on disk. Returns percentages."""
    [path] = Path(os.environ["HOME"]).rglob(f"{session_id}.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    wanted = [each for each in lines if not each["type"].startswith("api-request")]
    stored = store.entries.get(session_id + "/", [])
    return {
        "entries stored at the end": 100 * sum(each in stored for each in wanted) / len(wanted),
        "cost stored": 100.0 * any(each["type"] == "cost-state" for each in stored),
    }


def main(case: dict[str, Any]) -> None:
    """Run one conversation and print what was measured as JSON."""
    sdk = importlib.import_module(case["sdk"])
    pace = QUICKER if case["quick"] else 1
    store = Store(case["way"], pace)
    own = {"session_store_timeout_ms": LIMIT // pace} if case["sdk"] == "toolwire" else {}
    options = sdk.ClaudeAgentOptions(
        setting_sources=[],
        cwd=case["cwd"],
        cli_path=case["cli"],
        session_store=store,
        session_store_flush=case["flush"],
        **own,
    )
    sys.stdout.write(json.dumps(asyncio.run(converse(sdk, options, store))))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
