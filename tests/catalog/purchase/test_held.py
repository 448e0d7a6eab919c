"""The money of a chain is reserved before its first step, spent by its steps, and otherwise released."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from shared.chain_till import ARGUMENTS, PRICES, TRIP, opened_chain
from shared.market import Fault, PaidApi, takes
from shared.shark import Shark
from shared.till import Watched, catalog_for, ledger_in, states
from shared.waiting import eventually
from toolwire.catalog.ledger.opening import recover
from toolwire.catalog.ledger.sqlite import SqliteLedger
from toolwire.catalog.ledger.types import HELD, Limits
from toolwire.testing import connect
from toolwire.tools.chain import chain, step
from toolwire.wrap import combine, prefix, searchable, with_chains

pytestmark = pytest.mark.anyio
TESTS = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
async def limit(anyio_backend):
    with anyio.fail_after(60):
        yield


@pytest.fixture
def shop():
    with PaidApi() as running:
        yield running


def bought(shop):
    return [each.name for each in shop.purchases]


async def test_every_step_is_booked_under_its_own_product(shop, tmp_path):
    """Three steps make three rows with their own costs; no row that only held money is left."""
    async with opened_chain(shop, tmp_path, budget="0.035") as (_, client):
        result = await client.call("trip", ARGUMENTS)
        assert not result.is_error, result.text
    assert result.structured["result"] == {"symbol": "TW", "price": 102}
    assert result.meta["toolwire/chain"]["reserved_micros"] == sum(PRICES)
    assert states(tmp_path) == [("settled", price) for price in PRICES]
    with ledger_in(tmp_path) as ledger:
        assert [row.tool for row in reversed(ledger.rows())] == ["weather", "translate", "stock"]
        assert [row.why for row in ledger.rows()] == ["", "", ""]


async def test_the_price_of_a_chain_is_told(shop, tmp_path):
    """Like a tool's, its description has the price, which follows changes of the list."""
    async with opened_chain(shop, tmp_path) as (catalog, client):
        first = (await client.list_tools())[0]
        assert (first.name, first.description.splitlines()[-1]) == ("trip", "Costs up to $0.0350 a call.")
        shop.products[shop.id_of("stock")].price = 0.05
        catalog.refresh()
        await catalog.loaded(10)
        assert (await client.list_tools())[0].description.endswith("Costs up to $0.0650 a call.")
        shop.products[shop.id_of("stock")].price = None
        catalog.refresh()
        await catalog.loaded(10)
        assert "Costs" not in (await client.list_tools())[0].description


async def test_the_whole_price_must_fit_before_the_first_step(shop, tmp_path):
    """If the budget is only enough for two of three steps, none is bought."""
    async with opened_chain(shop, tmp_path, budget="0.034") as (_, client):
        result = await client.call("trip", ARGUMENTS)
        assert result.is_error
        assert "The chain was not started: stock costs $0.0200" in result.text
        assert "$0.0190 is left" in result.text
        assert (await client.call("weather", city="Ulm")).is_error is False  # the budget is unchanged
    assert bought(shop) == ["weather"]
    assert states(tmp_path) == [("settled", 10_000)]


async def test_while_a_chain_runs_others_cannot_take_its_money(shop, tmp_path):
    """At every step exactly the money of the remaining steps is held."""
    seen = []

    def look(*_):
        seen.append(read(tmp_path, "SELECT tool, money FROM spending WHERE why = ? ORDER BY tool", HELD))

    ledger = Watched(tmp_path / "ledger.db")
    ledger.before["begin"] = look
    async with opened_chain(shop, tmp_path, ledger=ledger, budget="1") as (_, client):
        result = await client.call("trip", ARGUMENTS)
        assert not result.is_error, result.text
    assert seen == [
        [("stock", 20_000), ("translate", 5_000), ("weather", 10_000)],
        [("stock", 20_000), ("translate", 5_000)],
        [("stock", 20_000)],
    ]


@pytest.mark.parametrize("chains", [1, 4])
async def test_chains_that_race_spend_what_they_may(shop, tmp_path, chains):
    """Under a budget for two chains, two run to their end, and any others buy nothing at all."""
    results = []

    async def run(client, number):
        results.append(await client.call("trip", {"city": f"c{number}", "symbol": f"s{number}"}))

    async with opened_chain(shop, tmp_path, budget="0.07") as (_, client), anyio.create_task_group() as tasks:
        for number in range(2 * chains):
            tasks.start_soon(run, client, number)
    good = [each for each in results if not each.is_error]
    assert len(good) == min(2, 2 * chains)
    assert len(bought(shop)) == 3 * len(good)
    assert all("was not started" in each.text for each in results if each.is_error)
    assert sum(money for _, money in states(tmp_path)) == sum(PRICES) * len(good)


async def test_a_step_that_fails_gives_back_the_rest(shop, tmp_path):
    """The money of steps that were not reached is released at once; what was bought stays booked."""
    bad = chain("bad", "", [step("weather", {"city": "Ulm"}), step("translate", {"text": "${weather/none}", "to": "fr"}), step("stock", {"symbol": "A"})])  # fmt: skip # noqa: E501
    async with opened_chain(shop, tmp_path, bad, budget="1") as (_, client):
        result = await client.call("bad")
        assert result.is_error
        assert "Done before it: weather." in result.text
    assert bought(shop) == ["weather"]
    assert states(tmp_path) == [("settled", 10_000)]


@pytest.mark.parametrize(
    ("fault", "state", "sold"),
    [
        ("reset_after_buying", ("unknown", 5_000), 2),
        ("half_reply", ("unknown", 5_000), 2),
        ("status_before_buying", None, 1),
    ],
)
async def test_a_lost_reply_leaves_only_its_step_unknown(shop, tmp_path, fault, state, sold):
    """The steps after it are not bought, and their money is released."""
    async with opened_chain(shop, tmp_path, budget="1") as (_, client):
        await client.call("translate", text="x", to="fr")  # its price is confirmed
        await client.call("stock", symbol="A")
        await client.call("weather", city="Ulm")
        shop.purchases.clear()
        spoiler = Fault(fault, status=402)
        ledger_rows = len(states(tmp_path))
        # A fault before an order strikes the next one, a fault after it the one whose product runs.
        at = shop.products[shop.id_of("weather" if "before" in fault else "translate")]
        run = at.run
        at.run = lambda **given: shop.faults.append(spoiler) or run(**given)
        result = await client.call("trip", ARGUMENTS)
        assert result.is_error
        assert "at step 'translate'" in result.text
        if state is not None:
            assert "UNKNOWN whether translate was bought" in result.text
    assert len(bought(shop)) == sold
    rows = states(tmp_path)[ledger_rows:]
    assert rows[0] == ("settled", 10_000)
    if state is not None:
        assert rows[1] == state
    assert sum(money for _, money in rows) == 10_000 + (state or ("", 0))[1]


@pytest.mark.process
@pytest.mark.parametrize(
    ("where", "left", "sold"),
    [
        ("between", [("settled", 10_000)], 1),
        ("translate", [("settled", 10_000), ("unknown", 5_000)], 1),
        ("stock", [("settled", 10_000), ("settled", 5_000), ("unknown", 20_000)], 2),
    ],
)
async def test_a_crash_leaves_no_money_behind(shop, tmp_path, where, left, sold):
    """After a kill, the next start releases the money of unsent steps and marks a sent one as unknown."""
    if where != "between":  # the order of that step arrives, but gets no reply
        before = shop.products[shop.id_of("weather" if where == "translate" else "translate")]
        run = before.run
        before.run = lambda **given: shop.faults.append(Fault("hang_before_buying")) or run(**given)
    command = [sys.executable, "-m", "shared.chain_till", shop.url, str(tmp_path), where]
    with subprocess.Popen(command, cwd=TESTS, stdout=subprocess.PIPE) as process:
        try:
            said = await anyio.to_thread.run_sync(process.stdout.readline)
            assert said.strip() == b"here"
            expected = ["settled" if state == "settled" else "sent" for state, _ in left]
            await eventually(lambda: booked(tmp_path) == expected and len(orders(shop)) == len(left))
            held = read(tmp_path, "SELECT coalesce(sum(money), 0) FROM spending WHERE why = ?", HELD)
            assert held == [(sum(PRICES[len(left) :]),)]
        finally:
            process.kill()
    with SqliteLedger(tmp_path / "ledger.db") as ledger:
        recover(ledger)
    assert states(tmp_path) == left
    assert len(bought(shop)) == sold
    shop.faults.clear()
    async with opened_chain(shop, tmp_path, budget="1") as (_, client):
        assert not (await client.call("stock", symbol="A")).is_error


def orders(shop):
    return [path for method, path, _ in shop.requests if method == "POST"]


def booked(folder):
    """Return the states of the calls, without rows that only hold money."""
    return [
        state for (state,) in read(folder, "SELECT state FROM spending WHERE why <> ? ORDER BY number", HELD)
    ]


def read(folder, query, *values):
    """Run a query on the committed state of the ledger, while another connection may write."""
    with closing(sqlite3.connect(f"file:{folder / 'ledger.db'}?mode=ro", uri=True)) as database:
        return database.execute(query, values).fetchall()


async def test_a_cancelled_chain_gives_back_the_rest(shop, tmp_path):
    """The step in flight becomes unknown, as it does without a chain; the money of the others is released."""
    slow = chain("slow_trip", "", [step("slow", {"seconds": 5}), step("stock", {"symbol": "A"})])
    async with opened_chain(shop, tmp_path, slow, budget="1") as (_, client):
        with anyio.move_on_after(0.5):
            await client.call("slow_trip")
    assert read(tmp_path, "SELECT tool FROM spending") == [("slow",)]
    assert states(tmp_path) == [("unknown", 10_000)]


async def test_a_stopped_step_or_a_raised_price_starts_nothing(shop, tmp_path):
    """Stops and agreed prices of all steps are checked before the first; a user can accept the raised price."""
    async with opened_chain(shop, tmp_path, budget="1") as (catalog, client):
        await client.call("trip", ARGUMENTS)
        with ledger_in(tmp_path) as ledger:
            ledger.stop(catalog.entry_id(shop.id_of("stock")), "stock", "a test")
        result = await client.call("trip", ARGUMENTS)
        assert "not started: stock is stopped (a test)" in result.text
        with ledger_in(tmp_path) as ledger:
            ledger.accept(catalog.entry_id(shop.id_of("stock")))
        shop.products[shop.id_of("translate")].price = 0.05
        catalog.refresh()
        await catalog.loaded(10)
        result = await client.call("trip", ARGUMENTS)
        assert "the price of translate rose from $0.0050 to $0.0500" in result.text
        with ledger_in(tmp_path) as ledger:
            assert [each.offered for each in ledger.prices() if each.tool == "translate"] == [50_000]
    assert len(bought(shop)) == 3


async def test_an_unknown_price_needs_a_cap(tmp_path):
    """Without `max_price` nothing is started; with it, that amount is reserved and the true cost booked."""
    items = [("1", "weather", 0.01), ("2", "mystery", None)]
    steps = [step("weather", {"city": "Ulm"}), step("mystery")]
    capped = [steps[0], step("mystery", max_price="0.05")]
    with Shark(items=items, charge=lambda entry, _: 10_000 if entry == "1" else 30_000) as shop:
        plain, with_cap = chain("plain", "", steps), chain("capped", "", capped)
        async with opened_chain(shop, tmp_path, plain, with_cap, budget="1") as (_, client):
            result = await client.call("plain")
            assert "mystery has no known price" in result.text
            assert "max_price" in result.text
            assert shop.sold == []
            result = await client.call("capped")
            assert not result.is_error, result.text
            assert result.meta["toolwire/chain"]["reserved_micros"] == 60_000
            result = await client.call("plain")  # the price is known from the reply
            assert result.meta["toolwire/chain"]["reserved_micros"] == 40_000
    assert states(tmp_path) == [("settled", 10_000), ("settled", 30_000)] * 2


@pytest.mark.parametrize(
    ("max_price", "text"),
    [
        ("0.001", "the limit for one call is $0.0010"),
        ("much", "is not an amount of dollars"),
        (-1, "is not an amount"),
    ],
)
async def test_a_step_may_not_cost_more_than_its_cap(shop, tmp_path, max_price, text):
    """A price above `max_price`, or an invalid `max_price`, is an error before anything is bought."""
    made = chain(
        "c", "", [step("weather", {"city": "Ulm"}), step("stock", {"symbol": "A"}, max_price=max_price)]
    )
    async with opened_chain(shop, tmp_path, made) as (_, client):
        result = await client.call("c")
    assert result.is_error
    assert text in result.text
    assert bought(shop) == []


async def test_a_repeated_request_pays_nothing_twice(shop, tmp_path):
    """If a client sends a request again, the first paid step is an error, and the held money is released."""
    async with opened_chain(shop, tmp_path, budget="1") as (_, client):
        message = {
            "jsonrpc": "2.0",
            "id": 77,
            "method": "tools/call",
            "params": {"name": "trip", "arguments": ARGUMENTS, "_meta": {"claudecode/toolUseId": "toolu_7"}},
        }
        first = await client._connection.answer(message)
        again = await client._connection.answer(message)
    assert "isError" not in first["result"] or not first["result"]["isError"]
    assert "this call of weather was already made" in again["result"]["content"][0]["text"]
    assert len(bought(shop)) == 3
    assert states(tmp_path) == [("settled", price) for price in PRICES]


async def test_the_same_step_twice_in_one_chain_is_two_purchases(shop, tmp_path):
    """They get different keys although tool and arguments are the same."""
    twice = chain("twice", "", [step("weather", {"city": "Ulm"})] * 2)
    async with opened_chain(shop, tmp_path, twice, budget="1") as (_, client):
        assert not (await client.call("twice")).is_error
    assert bought(shop) == ["weather", "weather"]


async def test_limits_of_single_tools_hold_for_all_steps_together(shop, tmp_path):
    """Two calls of a tool whose limit allows one are refused before the first."""
    twice = chain("twice", "", [step("weather", {"city": "a"}), step("weather", {"city": "b"})])
    limits = Limits(per_tool={"weather": 15_000})
    async with opened_chain(shop, tmp_path, twice, budget=limits) as (_, client):
        result = await client.call("twice")
    assert "the budget of this tool is $0.0150" in result.text
    assert bought(shop) == []


async def test_chains_in_chains_and_wrappers_reserve_together(shop, tmp_path):
    """All paid calls of all nested chains are reserved at the start, whatever names wrappers give them."""
    catalog = catalog_for(shop, tmp_path, budget="0.05")
    inner = chain("inner", "", [step("s_weather", {"city": "Ulm"}), step("s_stock", {"symbol": "A"})])
    outer = chain("outer", "", [step("inner"), step("s_translate", {"text": "x", "to": "fr"}), step("inner")])
    server = searchable(
        with_chains(combine("all", prefix(catalog, "s_")), outer, inner), always=["outer", "inner"]
    )
    async with connect(server) as client:
        await catalog.loaded(10)
        result = await client.call("outer")
        assert "not started" in result.text  # 0.065 in all
        assert bought(shop) == []
        result = await client.call("inner")
        assert result.meta["toolwire/chain"]["reserved_micros"] == 30_000
    assert bought(shop) == ["weather", "stock"]


async def test_a_price_by_action_reserves_the_highest_it_may_be(tmp_path):
    """If the input decides the price, the highest price is reserved, and the true one booked."""
    with PaidApi() as shop:
        product = shop.products[shop.id_of("weather")]
        product.actions = {"small": 0.01, "large": 0.04}
        product.parameters = takes(city={"type": "string"}, action={"type": "string"})
        product.run = lambda **_: "sunny"
        made = chain("c", "", [step("weather", {"city": "Ulm", "action": "${input/action}"})])
        async with opened_chain(shop, tmp_path, made, budget="1") as (_, client):
            result = await client.call("c", action="small")
            assert not result.is_error, result.text
    assert states(tmp_path) == [("settled", 10_000)]


def test_the_sample_chain_is_what_the_tests_think():
    """Its steps are in the order of `PRICES`, which the tests above rely on."""
    assert [each.tool for each in TRIP.steps] == ["weather", "translate", "stock"]
