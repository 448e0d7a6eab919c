"""The list over time: cached, fetched, changed and pinned; and closing leaves nothing behind."""

import logging
from dataclasses import replace
from functools import partial

import anyio
import pytest

from shared.market import Fault, PaidApi
from shared.till import ULM, catalog_for, opened, states
from shared.waiting import eventually
from toolwire.catalog import refresh
from toolwire.catalog.tools.pins import Pins
from toolwire.errors import McpError
from toolwire.testing import connect

pytestmark = pytest.mark.anyio
LIST = "/products/fetch"


@pytest.fixture(autouse=True)
async def limit(anyio_backend):
    with anyio.fail_after(20):
        yield


@pytest.fixture
def shop():
    with PaidApi() as running:
        yield running


def heard(client, method):
    """Return the params of the client's notifications of this method."""
    return [each.params for each in client.notifications if each.method == f"notifications/{method}"]


def changed(client):
    """Return how often the client was notified that the list of tools changed."""
    return len(heard(client, "tools/list_changed"))


async def refreshed(catalog):
    """Fetch the list again, and leave time for notifications."""
    catalog.refresh()
    status = await catalog.loaded(10)
    await anyio.sleep(0.01)
    return status


async def names(client):
    """Return the names of the tools."""
    return [each.name for each in await client.list_tools()]


def takes(**properties):
    """Return a schema in which nothing is required."""
    return {"type": "object", "properties": properties}


def sell(shop, name, price=0.01):
    """Add a product to the API."""
    like = shop.products[shop.id_of("weather")]
    words = {"name": name, "description": f"All about {name}", "parameters": takes(), "category": "demo"}
    product = replace(like, **words, price=price, run=lambda: name)
    shop.products[product.id] = product
    return product


# --- down and up ---


async def test_the_tools_of_last_time_stand_in(shop, tmp_path, caplog):
    """While the API is down, cached tools are listed, and log and client get the reason; later it recovers."""
    async with opened(shop, tmp_path):
        pass
    await shop.stop()
    catalog = catalog_for(shop, tmp_path)
    async with connect(catalog) as client:
        assert len(await names(client)) == 6
        status = await catalog.loaded(10)
        assert status.state == "cached"
        assert "page 1 of the list" in status.error
        await eventually(lambda: heard(client, "message"))
        (told,) = heard(client, "message")
        assert told["level"] == "warning"
        assert "cannot be read" in told["data"]
        assert told["data"].endswith("the previous tools stay")
        await refreshed(catalog)
        assert len(heard(client, "message")) == 1  # reported once, however often it fails
        assert "cannot be read" in caplog.text
        sell(shop, "news")
        await shop.start()
        status = await refreshed(catalog)
        assert (status.state, status.error, status.registered) == ("live", None, 7)
        assert changed(client) == 2  # the cached tools, then the new one
        assert heard(client, "message")[-1] == {
            "level": "notice",
            "logger": catalog.name,
            "data": "the catalogue can be read again",
        }
        assert not (await client.call("news")).is_error


async def test_without_a_cache_there_is_nothing_and_then_all(shop, tmp_path):
    """If the API is down at the first start, the list is empty, and is filled when the API is back."""
    await shop.stop()
    async with opened(shop, tmp_path, cache=False) as (catalog, client):
        assert catalog.status.state == "down"
        assert await names(client) == []
        with pytest.raises(McpError, match="Unknown tool"):
            await client.call("weather", ULM)
        await shop.start()
        assert (await refreshed(catalog)).state == "live"
        assert not (await client.call("weather", ULM)).is_error
    assert not (tmp_path / "cache").exists()


async def test_a_list_that_failed_is_asked_for_again_by_itself(shop, tmp_path):
    """It is retried soon, even without regular refreshes."""
    shop.faults.append(Fault("status_before_buying", path=LIST, status=400))
    async with opened(shop, tmp_path) as (catalog, _):
        assert catalog.status.state == "down"
        await eventually(lambda: catalog.status.state == "live")


async def test_half_a_list_changes_nothing(tmp_path):
    """If one page cannot be fetched, the previous list stays."""
    with PaidApi(entries=150) as shop:
        async with opened(shop, tmp_path) as (catalog, client):
            real = shop.page
            shop.page = lambda page=1, page_size=50: (
                real(page, page_size) if page == 1 else {"success": False}
            )
            status = await refreshed(catalog)
            assert (status.state, len(await names(client)), changed(client)) == ("cached", 150, 1)


async def test_the_handshake_does_not_wait(shop, tmp_path, monkeypatch):
    """While the list hangs, the client connects, gets an error that it is being loaded, and can leave at once."""
    monkeypatch.setattr(refresh, "LIST_WAIT", 0.05)
    shop.faults.append(Fault("hang_before_buying", path=LIST))
    catalog = catalog_for(shop, tmp_path)
    with anyio.fail_after(30):  # the API hangs for 60
        async with connect(catalog) as client:
            assert await names(client) == []  # after LIST_WAIT, as the list does not arrive
            await eventually(lambda: catalog.status.state == "loading")
            with pytest.raises(McpError, match="The catalogue is still being loaded"):
                await client.call("weather", ULM)
            assert (await catalog.loaded(0.05)).state == "loading"


# --- changes ---


async def test_changes_are_registered_and_told_once(shop, tmp_path, caplog):
    """Several changes of one refresh cause one list_changed, and each is reported once."""
    async with opened(shop, tmp_path) as (catalog, client):
        await eventually(lambda: changed(client) == 1)
        await refreshed(catalog)
        assert changed(client) == 1  # nothing changed, so no notification
        sell(shop, "news")
        del shop.products[shop.id_of("stock")]
        shop.products[shop.id_of("weather")].price = 0.005
        shop.products[shop.id_of("echo")].parameters = takes(loud={"type": "boolean"})
        caplog.clear()
        status = await refreshed(catalog)
        assert changed(client) == 2
        assert [(each.kind, each.name) for each in status.changes] == [
            ("changed", "echo"),
            ("added", "news"),
            ("removed", "stock"),
            ("price_down", "weather"),
        ]
        listed = {each.name: each for each in await client.list_tools()}
        assert "loud" in listed["echo"].input_schema["properties"]
        assert listed["weather"].description.endswith("Costs $0.0050 a call.")
        assert "stock" not in listed
        assert "Cost: $0.0050" in (await client.call("weather", ULM)).text
        assert (await client.call("news")).text.startswith("news")
        assert caplog.text.count("catalogue: weather price down\nprice: $0.010000 -> $0.005000") == 1
        assert (await refreshed(catalog)).changes == ()


async def test_the_list_is_fetched_every_so_often(shop, tmp_path):
    """A new product is listed after the interval."""
    async with opened(shop, tmp_path, refresh=1.0) as (catalog, client):
        sell(shop, "news")
        await eventually(lambda: "news" in catalog.tools)
        await eventually(lambda: changed(client) == 2)


async def test_a_refresh_during_a_fetch_is_not_lost(shop, tmp_path):
    """A change during a fetch is found by another fetch after it."""
    async with opened(shop, tmp_path) as (catalog, _):
        shop.faults.append(Fault("hang_after_buying", path=LIST, seconds=0.15))
        before = len(shop.requests)
        catalog.refresh()
        await eventually(lambda: len(shop.requests) > before)
        sell(shop, "news")  # too late for the response that hangs
        catalog.refresh()
        status = await catalog.loaded(10)
        assert status.registered == 7
        assert len(shop.requests) == before + 2


# --- pins ---


def pinned(catalog, folder):
    """Save pins of all tools to a file, and return its path."""
    path = folder / "pins.json"
    Pins.of(catalog.definitions.values()).save(path)
    return path


async def test_what_differs_from_the_pins_is_not_offered(shop, tmp_path, caplog):
    """Changed, added and dearer tools are blocked, with a readable diff; a cheaper one is allowed."""
    async with opened(shop, tmp_path) as (catalog, _):
        pins = pinned(catalog, tmp_path)
    sell(shop, "news")
    shop.products[shop.id_of("weather")].price = 0.02
    shop.products[shop.id_of("stock")].price = 0.01
    shop.products[shop.id_of("echo")].parameters = takes(password={"type": "string"})
    async with opened(shop, tmp_path, pins=pins) as (catalog, client):
        assert await names(client) == ["big", "slow", "stock", "translate"]
        kinds = {each.name: each.kind for each in catalog.status.changes}
        assert kinds == {"weather": "price_up", "stock": "price_down", "echo": "changed", "news": "added"}
        assert "catalogue: weather price up\nprice: $0.010000 -> $0.020000" in caplog.text
        assert "password" in next(each.diff for each in catalog.status.changes if each.name == "echo")
        with pytest.raises(McpError, match="Unknown tool"):
            await client.call("weather", ULM)
        agreed = Pins.load(pins)
        async with opened(shop, tmp_path) as (open_to_all, _):
            agreed.accept([open_to_all.definitions["weather"]]).save(pins)
        await refreshed(catalog)
        assert "weather" in await names(client)


async def test_a_namesake_cannot_push_a_pinned_tool_aside(shop, tmp_path):
    """A new tool of the same name gets a suffix and is blocked; the pinned one keeps its name after a restart."""
    async with opened(shop, tmp_path) as (catalog, _):
        pins = pinned(catalog, tmp_path)
    sell(shop, "weather!")
    async with opened(shop, tmp_path, pins=pins, cache=False) as (catalog, client):
        assert "weather" in await names(client)
        assert [each.kind for each in catalog.status.changes] == ["added"]
        assert "clear" in (await client.call("weather", ULM)).text


async def test_a_tool_that_is_not_wanted_was_not_removed(shop, tmp_path):
    """Tools that a filter leaves out are not reported as removed; a tool that is gone is."""
    async with opened(shop, tmp_path) as (catalog, _):
        pins = pinned(catalog, tmp_path)
    async with opened(shop, tmp_path, pins=pins, include=["weather", "stock"]) as (catalog, client):
        assert catalog.status.changes == ()
        del shop.products[shop.id_of("stock")]
        status = await refreshed(catalog)
        assert [(each.kind, each.name) for each in status.changes] == [("removed", "stock")]
        assert await names(client) == ["weather"]


async def test_pins_that_break_keep_the_list(shop, tmp_path):
    """If the pin file becomes unreadable, the error is reported, and no tool is added or removed meanwhile."""
    async with opened(shop, tmp_path) as (catalog, _):
        pins = pinned(catalog, tmp_path)
    good = pins.read_bytes()
    async with opened(shop, tmp_path, pins=pins) as (catalog, client):
        pins.write_text("{")
        sell(shop, "news")
        status = await refreshed(catalog)
        assert (status.state, len(await names(client))) == ("cached", 6)
        assert "does not contain valid pins" in status.error
        pins.write_bytes(good)
        assert (await refreshed(catalog)).state == "live"


async def test_what_nobody_thought_of_does_not_end_the_refresh(shop, tmp_path, caplog):
    """An unexpected exception is logged, and the next fetch works normally."""
    async with opened(shop, tmp_path) as (catalog, _):
        good, catalog._selection = catalog._selection, None
        sell(shop, "news")
        status = await refreshed(catalog)
        assert (status.state, status.error) == ("cached", "AttributeError, see the log")
        assert "failed unexpectedly" in caplog.text
        catalog._selection = good
        assert (await refreshed(catalog)).state == "live"


async def test_a_tool_added_by_hand_keeps_its_name(shop, tmp_path):
    """An entry with the same name gets a suffix, and both can be called."""
    catalog = catalog_for(shop, tmp_path)

    @catalog.tool
    def weather() -> str:
        """Be there already."""
        return "mine"

    async with connect(catalog) as client:
        await catalog.loaded(10)
        await refreshed(catalog)
        assert (await client.call("weather")).text == "mine"
        (other,) = [name for name in await names(client) if name.startswith("weather_")]
        assert "clear" in (await client.call(other, ULM)).text


# --- the end ---


@pytest.mark.parametrize("ledger", [None, ":memory:"])
async def test_a_second_client_after_the_last_finds_all_there(shop, tmp_path, ledger):
    """The catalogue can be opened again, and the ledger still counts the same session."""
    catalog = catalog_for(shop, tmp_path, budget="0.03", ledger=ledger)
    for city in ("Ulm", "Oslo"):
        async with connect(catalog) as client:
            assert (await catalog.loaded(10)).state == "live"
            assert not (await client.call("weather", city=city)).is_error
    async with connect(catalog) as client:
        await catalog.loaded(10)
        assert not (await client.call("weather", city="Lima")).is_error
        assert "budget" in (await client.call("weather", city="Rome")).text
    assert sum(path.startswith(LIST) for _, path, _ in shop.requests) == 3


async def test_a_catalogue_serves_one_event_loop_after_another(shop, tmp_path):
    """Nothing of one event loop is used in the next."""
    catalog = catalog_for(shop, tmp_path)

    async def visit(city):
        async with connect(catalog) as client:
            await catalog.loaded(10)
            await refreshed(catalog)
            return (await client.call("weather", city=city)).is_error

    for city, backend in (("Ulm", "asyncio"), ("Oslo", "trio"), ("Lima", "asyncio")):
        assert not await anyio.to_thread.run_sync(partial(anyio.run, visit, city, backend=backend))


async def test_closing_during_a_call_is_bounded_and_booked(shop, tmp_path, caplog):
    """If the client leaves while an order is in flight, closing is quick and the call becomes unknown."""
    caplog.set_level(logging.WARNING)
    shop.faults.append(Fault("hang_after_buying"))
    catalog = catalog_for(shop, tmp_path)
    ended = []

    async def call(client):
        try:
            await client.call("weather", ULM)
        except McpError as error:
            ended.append(error)

    with anyio.fail_after(30):  # the API hangs for 60
        async with anyio.create_task_group() as tasks, connect(catalog) as client:
            await catalog.loaded(10)
            tasks.start_soon(call, client)
            await eventually(lambda: shop.purchases)
    assert len(ended) == 1
    assert states(tmp_path) == [("unknown", 10_000)]
    assert [each.message for each in caplog.records if each.levelno >= logging.ERROR] == []
