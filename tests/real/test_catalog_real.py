"""A catalogue in process with the real CLI: what the model gets to see of tools, costs and changes."""

import json

import anyio
import pytest

from shared.market import PaidApi, Product, takes
from shared.waiting import eventually
from toolwire import ClaudeSDKClient
from toolwire.catalog.server import Catalog
from toolwire.testing import call, say, turn

pytestmark = [pytest.mark.anyio, pytest.mark.real]

LIMIT = 60
KEY, BUDGET = "Kq7/api+Xw2-key_Zz9", "Bd4-budget_Yy8-Tt6"


@pytest.fixture
def api():
    with PaidApi() as running:
        yield running


def shop_for(api, folder, **more):
    """Return AgentPMT's catalogue, aimed at the sample API, with files of its own."""
    environ = {
        "AGENT_PAYMENT_API_KEY": KEY,
        "AGENT_PAYMENT_BUDGET_KEY": BUDGET,
        "AGENT_PAYMENT_BASE_URL": api.url,
    }
    given = {"ledger": folder / "ledger.db", "cache": False, "environ": environ, **more}
    return Catalog("agentpmt", **given)


async def asked(client, text):
    """Send a prompt and return the messages of its turn."""
    await client.query(text)
    return [message async for message in client.receive_response()]


async def test_a_paid_call_tells_its_cost_and_balance(scripted, api, tmp_path):
    """The model's next request has the result, the cent that it cost and what is left; the API took one cent."""
    shop = shop_for(api, tmp_path)
    script = [call("mcp__shop__weather", city="Ulm"), call("mcp__shop__echo"), say("Clear.")]
    given = {"mcp_servers": {"shop": shop}, "allowed_tools": ["mcp__shop"]}
    async with scripted(script, **given) as (model, options):
        with anyio.fail_after(LIMIT):
            async with ClaudeSDKClient(options) as client:
                await shop.loaded()
                await asked(client, "The weather in Ulm?")
        offered = {each["name"]: each for each in model.requests[0].body["tools"]}
        paid, echoed = (request.tool_results[0] for request in model.requests[1:])
        seen = json.dumps([request.body for request in model.requests])
    assert "Tell the weather of a city" in offered["mcp__shop__weather"]["description"]
    assert offered["mcp__shop__weather"]["input_schema"]["required"] == ["city"]
    assert json.loads(paid.text) == {
        "result": {"city": "Ulm", "sky": "clear, 21 degrees"},
        "cost": 0.01,
        "balance": 9.99,
    }
    assert "[redacted]" in echoed.text
    assert KEY not in seen
    assert BUDGET not in seen
    assert [purchase.cost for purchase in api.purchases] == [0.01, 0.01]


async def test_the_budget_stops_the_model_and_not_the_conversation(scripted, api, tmp_path):
    """A budget of 1.5 cents lets one of three concurrent calls through; the model gets the reason for the rest."""
    shop = shop_for(api, tmp_path, budget="0.015")
    cities = ("Ulm", "Oslo", "Lima")
    script = [turn(*(call("mcp__shop__weather", city=city) for city in cities)), say("One.")]
    given = {"mcp_servers": {"shop": shop}, "allowed_tools": ["mcp__shop"]}
    async with scripted(script, **given) as (model, options):
        with anyio.fail_after(LIMIT):
            async with ClaudeSDKClient(options) as client:
                await shop.loaded()
                messages = await asked(client, "The weather everywhere?")
        results = model.requests[1].tool_results
    assert sorted(bool(each.is_error) for each in results) == [False, True, True]
    assert all("nothing was spent" in each.text for each in results if each.is_error)
    assert messages[-1].result == "One."
    assert len(api.purchases) == 1


@pytest.mark.parametrize("way", ["interval", "asked"])
async def test_what_changes_at_the_api_reaches_the_model(scripted, api, tmp_path, way):
    """A tool that was added there is in the model's next request; one that was removed can be called no more.

    The CLI knows at once that it is gone, but goes on showing the model what it has shown it in this session.
    """
    shop = shop_for(api, tmp_path, refresh=1.0 if way == "interval" else None)
    script = [say("Hello."), call("mcp__shop__news"), call("mcp__shop__stock", symbol="A"), say("Bye.")]
    given = {"mcp_servers": {"shop": shop}, "allowed_tools": ["mcp__shop"]}
    async with scripted(script, **given) as (model, options):
        with anyio.fail_after(LIMIT):
            async with ClaudeSDKClient(options) as client:
                await shop.loaded()
                await asked(client, "Hello?")
                changed(api)
                if way == "asked":
                    shop.refresh()
                await eventually(lambda: "news" in shop.definitions)
                await listed(client, "news", "stock")
                await asked(client, "The news?")
        before, after, bought, refused = model.requests
    assert "mcp__shop__stock" in before.tools
    assert "mcp__shop__news" not in before.tools
    assert "mcp__shop__news" in after.tools
    assert "nothing new" in bought.tool_results[0].text
    assert "No such tool available" in refused.tool_results[0].text
    assert [each.name for each in api.purchases] == ["news"]


async def test_a_change_before_the_first_request_is_all_the_model_sees(scripted, api, tmp_path):
    """After a change between connecting and the first prompt, the model gets the new tool and not the old one."""
    shop = shop_for(api, tmp_path, refresh=None)
    async with scripted([say("Hello.")], mcp_servers={"shop": shop}, allowed_tools=["mcp__shop"]) as (
        model,
        options,
    ):
        with anyio.fail_after(LIMIT):
            async with ClaudeSDKClient(options) as client:
                await shop.loaded()
                await listed(client, "stock", "news")
                changed(api)
                shop.refresh()
                await listed(client, "news", "stock")
                await asked(client, "Hello?")
        (request,) = model.requests
    assert "mcp__shop__news" in request.tools
    assert "mcp__shop__stock" not in request.tools


def changed(api):
    """Take one product off sale, and put another on."""
    del api.products[api.id_of("stock")]
    new = Product("news", "Tell the news", takes(), 0.02, lambda: "nothing new")
    api.products[new.id] = new


async def listed(client, there, gone):
    """Wait until the CLI has the one tool and not the other."""
    while True:
        status = await client.get_mcp_status()
        names = {tool["name"] for server in status["mcpServers"] for tool in server.get("tools", [])}
        if there in names and gone not in names:
            return
        await anyio.sleep(0.02)
