"""Replies that report failures, and what delays or avoids calls: timeouts, the breaker, the rate, cached results.

Faults of connections and of the ledger are in test_purchase_faults.
"""

import time
from types import SimpleNamespace

import anyio
import pytest

from shared.market import Fault, PaidApi
from shared.till import ULM, catalog_for, opened, states
from toolwire.catalog.ledger.sqlite import SqliteLedger
from toolwire.catalog.purchase import limits
from toolwire.catalog.purchase.limits import Breaker
from toolwire.testing import connect

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
async def limit(anyio_backend):
    with anyio.fail_after(20):
        yield


@pytest.fixture
def shop():
    with PaidApi(replay="same") as running:
        yield running


def posts(shop):
    """Return how many orders arrived at the API."""
    return sum(method == "POST" for method, _, _ in shop.requests)


@pytest.mark.parametrize("body", ['"text"', "null"])
async def test_a_reply_that_is_no_object_is_unknown(shop, tmp_path, body):
    """Such a reply does not say whether anything was bought, so the call is unknown."""
    shop.buy = lambda order, headers: {'"text"': "text", "null": None}[body]
    async with opened(shop, tmp_path) as (_, client):
        result = await client.call("weather", ULM)
    assert "Do not repeat" in result.text
    assert states(tmp_path) == [("unknown", 10_000)]


@pytest.mark.parametrize(
    ("reply", "state"),
    [
        ({"success": False, "error": "no luck", "cost": 0}, ("released", 0)),
        ({"success": False, "error": "no luck", "cost": 0.005}, ("settled", 5_000)),
        ({"success": False, "error": "no luck"}, ("settled", 10_000)),
    ],
)
async def test_a_failure_that_may_have_cost_counts_as_paid(shop, tmp_path, reply, state):
    """A failed call costs what the reply says; without a cost in the reply it is settled at the listed price."""
    shop.buy = lambda order, headers: reply
    async with opened(shop, tmp_path) as (_, client):
        result = await client.call("weather", ULM)
    assert result.is_error
    assert result.text.startswith("Tool execution failed: no luck")
    assert ("counts as spent" in result.text) is ("cost" not in reply)
    assert states(tmp_path) == [state]


@pytest.mark.parametrize("key", ["name", "id"])
async def test_a_tool_has_its_own_time_out(shop, tmp_path, key):
    """A timeout can be set by tool name or entry id; other tools have the profile's."""
    named = "slow" if key == "name" else shop.id_of("slow")
    async with opened(shop, tmp_path, profile={"timeouts": {named: 0.05}}) as (_, client):
        result = await client.call("slow", seconds=0.2)
        assert "no response within 0.05 s" in result.text
        shop.products[shop.id_of("weather")].run = lambda city: time.sleep(0.1) or city
        assert not (await client.call("weather", ULM)).is_error
    assert states(tmp_path) == [("unknown", 10_000), ("settled", 10_000)]


async def test_the_breaker_opens_and_recovers(shop, tmp_path):
    """After failures in a row nothing is sent for a while; then a successful call closes the breaker."""
    now = [0.0]
    breaker = Breaker(failures=2, reset_after=30.0, clock=lambda: now[0])
    async with opened(shop, tmp_path, breaker=breaker) as (_, client):
        shop.faults.append(Fault("status_before_buying", status=400))
        shop.faults.append(Fault("status_before_buying", status=500, times=2))
        for number in range(3):  # HTTP 400 is no failure of the API
            assert (await client.call("weather", city=f"city {number}")).is_error
        assert breaker.state == "open"
        refused = await client.call("weather", city="Oslo")
        assert "keeps failing, so nothing was sent; try again in 30 s" in refused.text
        assert posts(shop) == 3
        now[0] = 31.0
        assert not (await client.call("weather", city="Oslo")).is_error
        assert breaker.state == "closed"
    assert [state for state, _ in states(tmp_path)] == ["released", "unknown", "unknown", "settled"]


async def test_what_is_refused_here_is_no_failure_of_the_api(shop, tmp_path):
    """A call over the budget neither opens the breaker nor keeps it half-open."""
    now = [0.0]
    breaker = Breaker(failures=1, reset_after=30.0, clock=lambda: now[0])
    async with opened(shop, tmp_path, breaker=breaker, budget="0.02") as (_, client):
        shop.faults.append(Fault("status_before_buying", status=500))
        await client.call("weather", ULM)
        now[0] = 31.0
        assert "budget" in (await client.call("stock", symbol="X")).text
        assert not (await client.call("weather", city="Oslo")).is_error
    assert breaker.state == "closed"


async def test_calls_are_spread_by_the_rate(shop, tmp_path, monkeypatch):
    """Calls beyond the burst wait for their turn."""
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    monkeypatch.setattr(limits, "anyio", SimpleNamespace(sleep=sleep))
    ledger = SqliteLedger(tmp_path / "ledger.db", clock=lambda: 1_793_966_400.0)
    async with (
        opened(shop, tmp_path, rate=20, ledger=ledger) as (_, client),
        anyio.create_task_group() as tasks,
    ):
        for number in range(24):
            tasks.start_soon(client.call, "weather", {"city": f"city {number}"})
    ledger.close()
    assert sorted(waits)[-4:] == pytest.approx([0.05, 0.1, 0.15, 0.2], abs=1e-4)
    assert len(shop.purchases) == 24


async def test_a_place_too_far_off_is_refused(shop, tmp_path):
    """A call that would wait longer than a minute is refused at once, and nothing is booked."""
    async with opened(shop, tmp_path, rate=0.01) as (_, client):
        await client.call("weather", ULM)
        refused = await client.call("weather", city="Oslo")
    assert "the rate limit allows no call within 60 s" in refused.text
    assert len(states(tmp_path)) == 1


async def test_a_result_may_be_given_again(shop, tmp_path):
    """A cached result is only used for tools that allow it, and says that nothing was bought."""
    async with opened(shop, tmp_path, cache_results={"weather": 60}) as (_, client):
        first = await client.call("weather", ULM)
        again = await client.call("weather", ULM)
        await client.call("weather", city="Oslo")
        for _ in range(2):
            await client.call("stock", symbol="X")
    assert [each.name for each in shop.purchases] == ["weather", "weather", "stock", "stock"]
    assert "nothing was bought this time" in again.text
    assert "nothing was bought" not in first.text
    assert (first.structured["cost"], again.structured["cost"]) == (0.01, 0.0)
    assert again.structured["result"] == first.structured["result"]
    assert len(states(tmp_path)) == 4


async def test_a_result_is_kept_no_longer_than_allowed(shop, tmp_path):
    """After its time to live a result is bought again."""
    async with opened(shop, tmp_path, cache_results={"weather": 0.05, "stock": 60}) as (_, client):
        await client.call("weather", ULM)
        await anyio.sleep(0.06)
        await client.call("weather", ULM)
    assert len(shop.purchases) == 2


async def test_a_failure_is_not_given_again(shop, tmp_path):
    """Errors are not cached."""
    shop.faults.append(Fault("status_before_buying", status=400))
    async with opened(shop, tmp_path, cache_results={"weather": 60}) as (_, client):
        assert (await client.call("weather", ULM)).is_error
        assert not (await client.call("weather", ULM)).is_error
    assert len(shop.purchases) == 1


async def test_results_are_not_shared_between_payers(shop, tmp_path):
    """The payer is part of the cache key."""
    shared = None
    for number, key in enumerate(("key of one", "key of two", "key of one")):
        catalog = catalog_for(
            shop, tmp_path, cache_results={"weather": 60}, variables={"AGENT_PAYMENT_API_KEY": key}
        )
        shared = catalog._results = shared or catalog._results
        async with connect(catalog) as client:
            await catalog.loaded(10)
            await client.call("weather", ULM)
        assert len(shop.purchases) == min(number + 1, 2)


async def test_a_stream_becomes_progress(shop, tmp_path):
    """Events of the API become progress notifications with a counter; the last event is the result."""
    async with opened(shop, tmp_path, profile={"streams": True}) as (_, client):
        result = await client.call("weather", ULM)
        told = [each.params for each in client.notifications if each.method == "notifications/progress"]
    assert [(each["progress"], each["message"]) for each in told] == [(1, "looking"), (2, "found")]
    assert "clear, 21 degrees" in result.text
    assert states(tmp_path) == [("settled", 10_000)]


async def test_a_stream_that_fails_is_an_error(shop, tmp_path):
    """A stream with an error after the charge is an error result, and counts as paid."""
    shop.shape = "nested_failure"
    async with opened(shop, tmp_path, profile={"streams": True}) as (_, client):
        result = await client.call("weather", ULM)
    assert result.text.startswith("Tool execution failed: the tool failed")
    assert states(tmp_path) == [("settled", 10_000)]
    assert len(shop.purchases) == 1
