"""A catalogue as a client sees it: its tools, the results of calls, and its errors when the API fails."""

import json
import logging
from dataclasses import replace

import anyio
import pytest

from shared.market import BROKEN, KEYS, PaidApi, profile_for
from shared.till import ULM, environ, ledger_in, opened, states
from toolwire.catalog.ledger.types import Limits
from toolwire.catalog.money import micros
from toolwire.catalog.server import Catalog
from toolwire.errors import CatalogError, McpError, UsageError
from toolwire.testing import connect

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
async def limit(anyio_backend):
    with anyio.fail_after(20):
        yield


@pytest.fixture
def shop():
    with PaidApi() as running:
        yield running


async def test_a_call_costs_and_says_so(shop, tmp_path):
    """One cent is charged, and text and structured content have the cost and the balance."""
    async with opened(shop, tmp_path) as (_, client):
        result = await client.call("weather", city="Ulm")
    assert not result.is_error
    assert result.text.splitlines()[1:] == ["Cost: $0.0100", "Remaining Balance: $9.99"]
    assert json.loads(result.text.splitlines()[0]) == {"city": "Ulm", "sky": "clear, 21 degrees"}
    assert result.structured == {
        "result": {"city": "Ulm", "sky": "clear, 21 degrees"},
        "cost": 0.01,
        "balance": 9.99,
    }
    assert str(shop.balance) == "9.99"
    assert states(tmp_path) == [("settled", 10_000)]


async def test_all_pages_become_tools(tmp_path, caplog):
    """298 entries of three pages become 297 tools and one warning; descriptions have the prices."""
    caplog.set_level(logging.INFO, "toolwire.catalog")
    with PaidApi(entries=298, broken=True) as shop:
        async with opened(shop, tmp_path) as (catalog, client):
            listed = {each.name: each for each in await client.list_tools()}
            status = catalog.status
            made_up = await client.call("made_up_297", value="last")
            catalog.refresh()
            await catalog.loaded(10)
        pages = [path for method, path, _ in shop.requests if method == "GET"]
    assert [path.partition("?")[2] for path in pages[:3]] == [f"page={n}&page_size=100" for n in (1, 2, 3)]
    assert (status.state, status.fetched, status.registered, len(listed)) == ("live", 298, 297, 297)
    assert listed["weather"].description.endswith("Costs $0.0100 a call.")
    assert "Costs" not in listed["no_schema"].description
    assert made_up.text.startswith("last\nCost: $0.0010")
    (skipped,) = status.skipped
    assert skipped.name == BROKEN[-1].id or "beyond" in skipped.name
    assert (
        len([each for each in caplog.records if "is left out" in each.message]) == 1
    )  # loaded twice, logged once
    assert "298 entries fetched" in caplog.text


async def test_broken_entries_are_mended(tmp_path):
    """Entries with a boolean `required`, wrong defaults or no schema still become tools."""
    with PaidApi(entries=12, broken=True) as shop:
        async with opened(shop, tmp_path) as (_, client):
            listed = {each.name: each for each in await client.list_tools()}
            texts = [(await client.call(name)).text for name in ("odd_default", "no_schema")]
            found = await client.call("odd_required", q="x")
            with pytest.raises(McpError, match="Validation failed"):
                await client.call("odd_required")
    assert listed["odd_required"].input_schema["required"] == ["q"]
    assert listed["no_schema"].input_schema["type"] == "object"
    assert all("Cost: " in text for text in texts)
    assert '"q":"x"' in found.text
    assert "beyond_repair" not in listed


async def test_two_entries_of_one_name_buy_the_right_thing(tmp_path):
    """Both get a suffix, and each buys its own product."""
    with PaidApi(entries=12, broken=True) as shop:
        async with opened(shop, tmp_path) as (catalog, client):
            names = [each.name for each in await client.list_tools() if each.name.startswith("same_name")]
            texts = {(await client.call(name)).text.splitlines()[0] for name in names}
            ids = {catalog.definitions[name].id for name in names}
        assert len(names) == 2
        assert texts == {"first", "second"}
        assert ids == {each.product_id for each in shop.purchases}


@pytest.mark.parametrize(
    ("shape", "told"),
    [("flat", True), ("output", False), ("nested", False)],
)
async def test_every_shape_of_a_reply_is_read(shop, tmp_path, shape, told):
    """Result and cost are shown; the balance only if the reply has it."""
    shop.shape = shape
    async with opened(shop, tmp_path) as (_, client):
        result = await client.call("weather", ULM)
    assert not result.is_error
    assert "clear, 21 degrees" in result.text
    assert "Cost: $0.0100" in result.text
    assert ("Remaining Balance: $9.99" in result.text) is told
    assert states(tmp_path) == [("settled", 10_000)]


async def test_a_nested_failure_is_a_failure(shop, tmp_path):
    """HTTP 200 with a failure inside is an error result that counts as paid, and the connection stays open."""
    shop.shape = "nested_failure"
    async with opened(shop, tmp_path) as (_, client):
        result = await client.call("weather", ULM)
        shop.shape = "flat"
        after = await client.call("weather", city="Oslo")
    assert result.is_error
    assert result.text.startswith("Tool execution failed: ")
    assert "$0.0100 counts as spent" in result.text
    assert not after.is_error
    assert len(shop.purchases) == 2
    assert states(tmp_path) == [("settled", 10_000), ("settled", 10_000)]


async def test_a_refusal_is_an_error_result(tmp_path):
    """The API's message about an empty account is shown, the money released, and the connection stays open."""
    with PaidApi(balance="0.01") as shop:
        async with opened(shop, tmp_path) as (_, client):
            assert not (await client.call("weather", ULM)).is_error
            result = await client.call("weather", city="Oslo")
            assert len(await client.list_tools()) == 6
    assert result.is_error
    assert result.text.startswith("Tool execution failed: HTTP 402")
    assert "Insufficient balance" in result.text
    assert result.text.endswith("Nothing was bought.")
    assert states(tmp_path) == [("settled", 10_000), ("released", 0)]


async def test_wrong_arguments_reach_nobody(shop, tmp_path):
    """Arguments are validated before anything is reserved or sent, and the error says what is wrong."""
    async with opened(shop, tmp_path) as (_, client):
        for arguments in ({}, {"city": 7}):
            with pytest.raises(McpError, match="Validation failed: .*city"):
                await client.call("weather", arguments)
        with pytest.raises(McpError, match="Validation failed"):
            await client.call("translate", text="hello", to="en")
        with pytest.raises(McpError, match="Unknown tool: 'wether'. Did you mean 'weather'"):
            await client.call("wether", ULM)
    assert [method for method, _, _ in shop.requests] == ["GET"]
    assert states(tmp_path) == []


async def test_our_keys_come_out_nowhere(shop, tmp_path, caplog):
    """If a tool echoes the request's headers, the keys are redacted in result, log and audit file."""
    caplog.set_level(logging.DEBUG)
    async with opened(shop, tmp_path) as (_, client):
        result = await client.call("echo")
    assert "[redacted]" in result.text
    seen = json.dumps(result.raw) + caplog.text + (tmp_path / "audit.jsonl").read_text()
    for key in KEYS.values():
        assert key not in seen


async def test_settings_come_from_the_environment(shop, tmp_path):
    """Address, budget and filter can be set there; of two budgets the smaller one counts."""
    profile = profile_for("https://unused.example.com")
    variables = {
        "AGENT_PAYMENT_BASE_URL": shop.url,
        "AGENT_PAYMENT_BUDGET": "0.03",
        "AGENT_PAYMENT_TOOLS_FILTER": "weather, Stock",
    }
    catalog = Catalog(profile, budget=5, environ=environ(tmp_path, **variables))
    async with connect(catalog) as client:
        await catalog.loaded(10)
        assert [each.name for each in await client.list_tools()] == ["stock", "weather"]
        assert not (await client.call("stock", symbol="X")).is_error
        refused = await client.call("stock", symbol="Y")
    assert catalog.limits.per_session == 30_000
    assert "$0.0100 is left" in refused.text
    given = Limits(per_session=micros(1), per_day=7)
    assert Catalog(profile, budget=given, environ=environ(tmp_path, **variables)).limits == replace(
        given, per_session=30_000
    )


def test_what_is_missing_is_told_when_it_is_made(tmp_path):
    """Missing keys, an invalid budget, an unsafe address and unreadable pins are errors at construction."""
    with pytest.raises(
        (UsageError, CatalogError),
        match="TOKEN is not set: set it .or AGENT_PAYMENT_API_KEY and AGENT_PAYMENT_BUDGET_KEY",
    ):
        Catalog(environ={})
    with pytest.raises(UsageError, match="budget is not an amount of dollars"):
        Catalog(budget="five", environ=environ(tmp_path))
    with pytest.raises(UsageError, match="AGENT_PAYMENT_BASE_URL"):
        Catalog(environ=environ(tmp_path, AGENT_PAYMENT_BASE_URL="http://example.com"))
    broken = tmp_path / "pins.json"
    broken.write_text("{")
    with pytest.raises(UsageError, match="does not contain valid pins"):
        Catalog(environ=environ(tmp_path), pins=broken)


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"include": ["w*", "stock"]}, ["stock", "weather"]),
        ({"include": ["data"]}, ["stock", "weather"]),
        ({"exclude": ["data", "big"]}, ["echo", "slow", "translate"]),
        ({"include": ["weather"], "rename": {"weather": "sky"}}, []),
        ({"include": ["sky"], "rename": {"weather": "sky"}}, ["sky"]),
        ({"include": ["data"], "namespace": "shop"}, ["shop_stock", "shop_weather"]),
        ({"include": ["data"], "group": True, "namespace": "shop"}, ["shop_data_stock", "shop_data_weather"]),
    ],
)
async def test_tools_are_chosen_and_named(shop, tmp_path, settings, names):
    """Tools can be selected, renamed, prefixed and grouped; a renamed tool buys the same product."""
    async with opened(shop, tmp_path, **settings) as (_, client):
        assert [each.name for each in await client.list_tools()] == names
        for name in names:
            if name.endswith(("weather", "sky")):
                assert "clear" in (await client.call(name, ULM)).text


async def test_a_ledger_that_cannot_be_used_stops_all_calls(shop, tmp_path):
    """No paid call is sent without a ledger, and the error says why, at once."""
    async with opened(shop, tmp_path):
        pass
    (tmp_path / "ledger.db").write_text("no database, but long enough to look like one " * 20)
    async with opened(shop, tmp_path) as (catalog, client):
        assert catalog.status.state == "down"
        assert str(tmp_path / "ledger.db") in catalog.status.error
        with pytest.raises(McpError, match="The catalogue is down: the ledger"):
            await client.call("weather", ULM)
    assert [each for each in shop.requests if each[0] == "POST"] == []


async def test_a_ledger_that_is_lost_during_a_call_costs_nobody_the_answer(shop, tmp_path, caplog):
    """The result was paid for, so the model gets it, and the log says that it could not be booked."""
    async with opened(shop, tmp_path, audit=False) as (_, client):
        weather = shop.products[shop.id_of("weather")]
        before = weather.run
        ledger = tmp_path / "ledger.db"
        weather.run = lambda city: ledger.rename(tmp_path / "gone.db") and before(city)
        result = await client.call("weather", ULM)
        again = await client.call("weather", city="Oslo")
    assert "clear, 21 degrees" in result.text
    assert not result.is_error
    assert "the ledger could not book the outcome of a call" in caplog.text
    assert again.is_error
    assert "was moved, deleted or replaced" in again.text
    assert len(shop.purchases) == 1


async def test_a_ledger_object_is_taken_as_it_is(shop, tmp_path):
    """The caller's own ledger is used, and not closed."""
    with ledger_in(tmp_path) as ledger:
        async with opened(shop, tmp_path, ledger=ledger) as (_, client):
            await client.call("weather", ULM)
        assert [row.state for row in ledger.rows()] == ["settled"]
    assert not (tmp_path / "audit.jsonl").exists()
