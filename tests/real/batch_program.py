"""A worker of a batch with the real CLI, which the test kills; its tool writes to a journal in the test."""

import asyncio
import json
import os

from shared.journal import JournalLine
from toolwire import ClaudeAgentOptions, PostgresSessionStore, ToolServer
from toolwire.batch import Batch, Run

SETTINGS = json.loads(os.environ["BATCH_SETTINGS"])
JOURNAL = JournalLine(SETTINGS["journal"])
shop = ToolServer("shop")


@shop.tool
def buy(key: str) -> str:
    """Buy something, which costs money each time."""
    JOURNAL.write(event="bought", key=key)
    return f"bought {key}"


BATCH = Batch(
    "real",
    ClaudeAgentOptions(
        **SETTINGS["options"],
        mcp_servers={"shop": shop},
        allowed_tools=["mcp__shop__buy"],
        setting_sources=[],
        strict_mcp_config=True,
        **({"session_store": PostgresSessionStore(SETTINGS["store"])} if "store" in SETTINGS else {}),
    ),
    concurrency=2,
    per_run="0.5",
    on_lost="resume",
)


@BATCH.task
def prepare(key: str) -> Run:
    return Run(f"This is task {key}.")


async def work():
    async with BATCH.open(SETTINGS["at"], poll=0.1, beat=0.5, stale=20) as batch:
        JOURNAL.write(event="worker")
        await batch.work(until_done=SETTINGS["until_done"])


if __name__ == "__main__":
    asyncio.run(work())
