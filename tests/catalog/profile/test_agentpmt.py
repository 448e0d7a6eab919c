"""AgentPMT as its vendor documents it, against the sample API: a token, credits, and prices by action."""

import base64
from contextlib import asynccontextmanager

import anyio
import pytest

from shared.market import KEYS, PaidApi
from shared.till import environ, ledger_in, opened, states
from toolwire.catalog.server import Catalog
from toolwire.testing import connect

pytestmark = pytest.mark.anyio

TOKEN = base64.b64encode(":".join(KEYS.values()).encode()).decode()
ACTION = {"type": "object", "properties": {"action": {"enum": ["read", "write"]}}}


@pytest.fixture(autouse=True)
async def limit(anyio_backend):
    with anyio.fail_after(20):
        yield


@pytest.fixture
def shop():
    with PaidApi(keys=tuple(KEYS.values())) as running:
        yield running


@asynccontextmanager
async def agentpmt(shop, folder, variables=None, **settings):
    """Connect a client to a loaded catalogue of the built-in profile at the sample API."""
    given = environ(folder, AGENT_PAYMENT_BASE_URL=shop.url, **(variables or {}))
    catalog = Catalog(environ=given, refresh=None, **settings)
    async with connect(catalog) as client:
        await catalog.loaded(10)
        yield catalog, client


def spent(folder):
    """Return the amount that our ledger has as charged."""
    with ledger_in(folder) as ledger:
        return sum(row.money for row in ledger.rows() if row.state == "settled")


async def test_the_two_keys_make_the_token(shop, tmp_path):
    """The vendor still accepts such a token; the older headers are not sent."""
    async with agentpmt(shop, tmp_path) as (catalog, client):
        assert (catalog.status.state, catalog.status.registered) == ("live", 6)
        result = await client.call("weather", city="Ulm")
    assert "Cost: $0.0100\nRemaining Balance: $9.99" in result.text
    for _, _, headers in shop.requests:
        assert headers["authorization"] == f"Bearer {TOKEN}"
        assert not headers.keys() & KEYS.keys()
    assert (spent(tmp_path), [each.cost for each in shop.purchases]) == (10_000, [0.01])


async def test_a_token_of_its_own_goes_before_them(tmp_path):
    """It is the form that the vendor issues today."""
    token = "tok-" + "x" * 20
    with PaidApi(token=token) as shop:
        async with agentpmt(shop, tmp_path, {"AGENT_PAYMENT_TOKEN": token}) as (_, client):
            assert not (await client.call("weather", city="Ulm")).is_error
        assert shop.requests[-1][2]["authorization"] == f"Bearer {token}"


async def test_both_forms_see_one_account(shop, tmp_path):
    """One shows dollars, the other credits; the ledgers together have what the API charged."""
    first, second = tmp_path / "keys", tmp_path / "token"
    first.mkdir()
    second.mkdir()
    async with opened(shop, first) as (_, client):
        older = await client.call("stock", symbol="A")
    async with agentpmt(shop, second) as (_, client):
        newer = await client.call("stock", symbol="A")
    assert ("$9.98" in older.text, "$9.96" in newer.text) == (True, True)
    assert spent(first) + spent(second) == 40_000 == sum(round(each.cost * 1e6) for each in shop.purchases)


async def test_prices_by_action(shop, tmp_path):
    """Each action costs its own price, and the description shows the range."""
    product = next(iter(shop.products.values()))
    product.actions, product.parameters, product.run = (
        {"read": 0.01, "write": 0.2},
        ACTION,
        lambda action: action,
    )
    async with agentpmt(shop, tmp_path, budget=5) as (catalog, client):
        definition = catalog.definitions["weather"]
        assert (definition.prices, definition.price) == ({"read": 10_000, "write": 200_000}, 200_000)
        (tool,) = [each for each in await client.list_tools() if each.name == "weather"]
        assert "Costs $0.0100 to $0.2000 a call, by action." in tool.description
        read, write = (
            await client.call("weather", action="read"),
            await client.call("weather", action="write"),
        )
    assert ("Cost: $0.0100" in read.text, "Cost: $0.2000" in write.text) == (True, True)
    assert states(tmp_path) == [("settled", 10_000), ("settled", 200_000)]
    assert [each.cost for each in shop.purchases] == [0.01, 0.2]


async def test_prices_by_action_outlive_a_restart(shop, tmp_path):
    """They are cached with the definitions."""
    product = next(iter(shop.products.values()))
    product.actions, product.parameters = {"read": 0.01, "write": 0.2}, ACTION
    async with agentpmt(shop, tmp_path) as (catalog, _):
        before = catalog.definitions["weather"]
    await shop.stop()
    async with agentpmt(shop, tmp_path) as (kept, _):
        assert kept.status.state == "cached"
        assert kept.definitions["weather"] == before


@pytest.mark.parametrize("shape", ["flat", "output", "nested"])
async def test_all_shapes_of_replies(shop, tmp_path, shape):
    """The two older shapes have no cost, so the listed price counts."""
    shop.shape = shape
    async with agentpmt(shop, tmp_path) as (_, client):
        result = await client.call("weather", city="Ulm")
    assert ("clear, 21 degrees" in result.text, "Cost: $0.0100" in result.text) == (True, True)
    assert states(tmp_path) == [("settled", 10_000)]


async def test_a_product_is_found_by_its_slug(shop):
    """Like the vendor's API, the sample API accepts a slug instead of an id."""
    reply = shop.buy({"name": "weather", "parameters": {"city": "Ulm"}}, {"authorization": f"Bearer {TOKEN}"})
    assert (reply["charged_credits"], reply["balance_credits"]) == (1.0, 999.0)
