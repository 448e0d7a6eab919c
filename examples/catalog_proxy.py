"""A catalogue of paid tools: every product of a REST API is a tool of its own, and the budget is a hard limit.

The API is the sample API of `paid_api.py`, on this machine. For AgentPMT's own API only the token is needed:

    AGENT_PAYMENT_TOKEN=... toolwire serve catalog:agentpmt --budget 5
"""

import tempfile
import time
from pathlib import Path

from offline import claude, main, show
from paid_api import PaidApi

from toolwire import ClaudeSDKClient
from toolwire.catalog.ledger.sqlite import SqliteLedger
from toolwire.catalog.money import dollars
from toolwire.catalog.server import Catalog
from toolwire.testing import call, say

PROMPT = "What is the weather in Ulm, and in Oslo?"
SCRIPT = [
    call("mcp__shop__weather", city="Ulm"),
    call("mcp__shop__weather", city="Oslo"),  # costs another cent, which is more than the budget has left
    say("Ulm is clear, at 21 degrees. For Oslo the budget does not reach."),
]


async def shopping(folder: Path) -> None:
    """Buy once, be stopped once, and show the ledger."""
    async with PaidApi() as api:
        environ = {"AGENT_PAYMENT_TOKEN": "any token will do", "AGENT_PAYMENT_BASE_URL": api.url}
        ledger = folder / "ledger.db"
        shop = Catalog(
            "agentpmt", budget="0.015", ledger=ledger, cache=folder / "tools.json", environ=environ
        )
        async with (
            claude(SCRIPT, mcp_servers={"shop": shop}, allowed_tools=["mcp__shop"]) as options,
            ClaudeSDKClient(options) as client,
        ):
            status = await shop.loaded()  # the tools are loaded after the handshake
            print(f"{status.fetched} entries fetched, {status.registered} tools registered")
            print(f"You: {PROMPT}")
            since = time.monotonic()
            await client.query(PROMPT)
            async for message in client.receive_response():
                show(message, since)
        print(f"\nThe API sold {len(api.purchases)}; ${api.balance} is left there. The ledger says:")
        with SqliteLedger(ledger) as books:
            for each in books.totals("tool"):
                print(f"  {each.name}: {dollars(each.settled)} in {each.calls} call")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(shopping(Path(made)))
