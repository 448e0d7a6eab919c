"""Money is never over the limit, never spent twice and never lost, despite cancels, kills, races and exceptions."""

import os
import subprocess
import threading
from contextlib import ExitStack

import anyio
import pytest

from shared.market import Fault, PaidApi
from shared.till import ULM, ledger_in, opened, states, till_command
from shared.waiting import eventually
from toolwire.catalog.ledger.types import Limits


@pytest.fixture
def shop():
    with PaidApi(balance="100") as running:
        yield running


@pytest.fixture(autouse=True)
async def limit(anyio_backend):
    with anyio.fail_after(30):
        yield


def posts(shop):
    """Return how many orders arrived at the API."""
    return sum(method == "POST" for method, _, _ in shop.requests)


async def asked(client, use, **arguments):
    """Call the tool with this tool-use id of the model, and return the result."""
    meta = {"claudecode/toolUseId": use}
    return await client.request(
        "tools/call", {"name": "weather", "arguments": arguments or ULM, "_meta": meta}
    )


# --- limits ---


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_race_for_the_budget_spends_exactly_that(shop, tmp_path):
    """Of 200 concurrent calls under a budget for 50, 50 are bought and 150 refused; API and ledger agree."""
    results = []

    async def call(client, number):
        results.append(await client.call("weather", city=f"city {number}"))

    async with opened(shop, tmp_path, budget="0.5") as (_, client), anyio.create_task_group() as tasks:
        for number in range(200):
            tasks.start_soon(call, client, number)
    refused = [each for each in results if each.is_error]
    assert (len(results), len(refused), len(shop.purchases)) == (200, 150, 50)
    assert all("the budget of this session is $0.5000" in each.text for each in refused)
    assert states(tmp_path) == [("settled", 10_000)] * 50
    assert str(shop.balance) == "99.50"


@pytest.mark.process
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
def test_two_processes_share_a_budget(anyio_backend, shop, tmp_path):
    """Two processes of one session buy 50 together, under a budget for 50."""
    env = {**os.environ, "TOOLWIRE_SESSION": "shared", "AGENT_PAYMENT_BUDGET": "0.5"}
    command = till_command(shop, tmp_path, "race")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with ExitStack() as stack:
        running = [stack.enter_context(subprocess.Popen(**command, env=env, **pipes)) for _ in range(2)]
        for each in running:
            stack.callback(each.kill)
        assert [each.stdout.readline() for each in running] == ["ready\n"] * 2
        for each in running:
            each.stdin.write("go\n")
            each.stdin.flush()
        done = [int(each.communicate(timeout=60)[0]) for each in running]
    assert sum(done) == 50 == len(shop.purchases)
    assert states(tmp_path) == [("settled", 10_000)] * 50
    with ledger_in(tmp_path) as ledger:
        assert [(each.name, each.money) for each in ledger.totals("session")] == [("shared", 500_000)]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("limits", "words", "bought"),
    [
        (Limits(per_call=9_999), "the limit for one call is $0.009999", 0),
        (Limits(per_session=25_000), "the budget of this session", 2),
        (Limits(per_day=10_000), "the budget of this day", 1),
        (Limits(total=20_000), "the whole budget", 2),
        (Limits(per_tool={"weather": 10_000}), "the budget of this tool", 1),
        (Limits(per_tool={"stock": 0}), "", 3),
        (0, "the budget of this session", 0),
        (None, "", 3),
    ],
)
async def test_every_limit_is_hard(shop, tmp_path, limits, words, bought):
    """A call that exceeds any limit is refused with the limit's name, and nothing is sent."""
    async with opened(shop, tmp_path, budget=limits) as (_, client):
        texts = [(await client.call("weather", city=f"city {number}")).text for number in range(3)]
    assert posts(shop) == len(shop.purchases) == bought
    assert [words in text for text in texts[bought:]] == [True] * (3 - bought)
    assert all("nothing was spent" in text for text in texts[bought:])


# --- prices ---


@pytest.mark.anyio
async def test_a_price_that_rose_is_not_paid(shop, tmp_path):
    """Nothing is sent at a price above the agreed one, until a user accepts it; a lower price needs no consent."""
    weather = shop.products[shop.id_of("weather")]
    async with opened(shop, tmp_path) as (catalog, client):
        await client.call("weather", ULM)
        weather.price = 0.02
        catalog.refresh()
        await catalog.loaded(10)
        refused = await client.call("weather", city="Oslo")
        assert "rose from $0.0100 to $0.0200; nothing was bought" in refused.text
        assert posts(shop) == 1
        with ledger_in(tmp_path) as ledger:
            ledger.accept_price(catalog.entry_id(weather.id), 20_000)
        assert "Cost: $0.0200" in (await client.call("weather", city="Lima")).text
        weather.price = 0.001
        catalog.refresh()
        await catalog.loaded(10)
        assert "Cost: $0.0010" in (await client.call("weather", city="Rome")).text
    assert states(tmp_path) == [("settled", 10_000), ("settled", 20_000), ("settled", 1_000)]


@pytest.mark.anyio
async def test_a_fallen_price_fits_a_small_budget(shop, tmp_path):
    """If the budget has no room for the higher agreed price, today's lower price is reserved instead."""
    weather = shop.products[shop.id_of("weather")]
    async with opened(shop, tmp_path, budget="0.02") as (catalog, client):
        with ledger_in(tmp_path) as ledger:
            ledger.accept_price(catalog.entry_id(weather.id), 5_000_000)
        for city in ("Ulm", "Oslo"):
            assert not (await client.call("weather", city=city)).is_error
        assert "costs $0.0100" in (await client.call("weather", city="Lima")).text
    assert states(tmp_path) == [("settled", 10_000)] * 2


@pytest.mark.anyio
async def test_a_reply_that_costs_more_stops_its_tool(shop, tmp_path, caplog):
    """The true cost is settled and flagged; once accepted, the tool can be called at that cost."""
    weather = shop.products[shop.id_of("weather")]
    async with opened(shop, tmp_path) as (_, client):
        weather.price = 0.03  # while the list still says 0.01
        assert "Cost: $0.0300" in (await client.call("weather", ULM)).text
        assert "weather is stopped: a call cost $0.0300, but $0.0100 was agreed" in caplog.text
        refused = await client.call("weather", city="Oslo")
        assert refused.is_error
        assert "weather is stopped (a call cost $0.0300, but $0.0100 was reserved)" in refused.text
        assert not (await client.call("stock", symbol="X")).is_error
        with ledger_in(tmp_path) as ledger:
            (row,) = [row for row in ledger.rows() if row.over]
            (price,) = [each for each in ledger.prices() if each.offered > each.price]
            ledger.accept_price(price.entry_id, price.offered)
            ledger.accept(row.entry_id)
        for city in ("Lima", "Rome"):
            assert "Cost: $0.0300" in (await client.call("weather", city=city)).text
    assert (row.reserved, row.actual) == (10_000, 30_000)
    assert posts(shop) == 4


@pytest.mark.anyio
async def test_an_unknown_price_is_learnt_by_one_call(shop, tmp_path):
    """Only one call is sent at a time until a reply has the price; after that, calls run concurrently."""
    weather = shop.products[shop.id_of("weather")]
    first, together = threading.Event(), threading.Barrier(4)
    seen = []

    def run(city):
        seen.append(city)
        if len(seen) == 1:
            assert first.wait(10)
        else:
            together.wait(10)
        return city

    weather.run = run
    async with opened(shop, tmp_path, profile={"price": ""}) as (catalog, client):
        assert catalog.definitions["weather"].price is None
        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(client.call, "weather", {"city": f"city {number}"})
            await eventually(lambda: seen)
            await anyio.sleep(0.1)
            assert len(seen) == posts(shop) == 1
            first.set()
    assert len(seen) == 5
    assert states(tmp_path) == [("settled", 10_000)] * 5
    with ledger_in(tmp_path) as ledger:
        assert [row.reserved for row in reversed(ledger.rows())] == [0, *[10_000] * 4]


@pytest.mark.anyio
async def test_a_lost_answer_of_unknown_price_stops_the_tool(shop, tmp_path):
    """No limit can count an unknown cost, so nothing more is bought until a user has given the amount."""
    shop.faults.append(Fault("reset_after_buying"))
    async with opened(shop, tmp_path, profile={"price": ""}, budget=1) as (_, client):
        assert "its cost is not known" in (await client.call("weather", ULM)).text
        refused = await client.call("weather", city="Oslo")
        assert "the reply to an earlier call of weather" in refused.text
        with ledger_in(tmp_path) as ledger:
            ledger.resolve(ledger.rows()[-1].id, charged=True, amount=10_000)
        assert not (await client.call("weather", city="Lima")).is_error
    assert posts(shop) == 2


# --- no double purchases ---


@pytest.mark.anyio
async def test_one_use_of_a_tool_buys_once(shop, tmp_path):
    """A tool use that is delivered again, before or after the response, is not sent again."""
    replies = []

    async def ask(client, use):
        replies.append(await asked(client, use))

    async with opened(shop, tmp_path) as (_, client), anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(ask, client, "toolu_1")
        await eventually(lambda: len(replies) == 3)
        await ask(client, "toolu_1")
        assert len(shop.purchases) == 1
        assert sorted(each.get("isError", False) for each in replies) == [False, True, True, True]
        assert "was already made" in replies[-1]["content"][0]["text"]
        assert not (await asked(client, "toolu_2")).get("isError")
        assert not (await asked(client, "toolu_1", city="Oslo")).get("isError")
    assert len(shop.purchases) == 3


@pytest.mark.anyio
async def test_a_use_that_bought_nothing_may_be_tried_again(shop, tmp_path):
    """If the API refused the order, the same tool-use id can be used again."""
    shop.faults.append(Fault("status_before_buying", status=400))
    async with opened(shop, tmp_path) as (_, client):
        assert (await asked(client, "toolu_1"))["isError"]
        assert not (await asked(client, "toolu_1")).get("isError")
    assert len(shop.purchases) == 1
    assert states(tmp_path) == [("released", 0), ("settled", 10_000)]


# --- cancelled before the order (later: see test_purchase_faults) ---


@pytest.mark.anyio
async def test_a_call_cancelled_while_it_waits_for_its_turn_books_nothing(shop, tmp_path):
    """While a call waits for the rate limit, nothing is reserved yet."""
    async with opened(shop, tmp_path, rate=0.1) as (_, client):
        await client.call("weather", ULM)
        with anyio.move_on_after(0.1) as scope:
            await client.call("weather", city="Oslo")
        assert scope.cancelled_caught
    assert states(tmp_path) == [("settled", 10_000)]
