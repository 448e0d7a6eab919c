"""Attacks on a budget: the API's own books are compared with the ledger and the limit."""

import threading
from types import SimpleNamespace

import anyio
import pytest

from shared.market import KEYS
from shared.shark import Shark
from shared.till import Watched, catalog_for, ledger_in, opened, states
from shared.waiting import eventually
from toolwire.catalog import server
from toolwire.catalog.http import answers
from toolwire.catalog.http.listing import Reading
from toolwire.catalog.ledger.types import Limits
from toolwire.catalog.purchase import purchase
from toolwire.catalog.purchase.limits import Breaker, RateLimit
from toolwire.catalog.tools.build import build_offer
from toolwire.errors import CatalogError, UsageError
from toolwire.testing import connect

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

DOLLAR = 1_000_000


@pytest.fixture(autouse=True)
async def limit(anyio_backend):
    with anyio.fail_after(60):
        yield


async def call_all(client, count, names=("weather",)):
    """Make `count` calls at once, and return their results."""
    results = []

    async def call(number):
        results.append(await client.call(names[number % len(names)], number=number))

    async with anyio.create_task_group() as tasks:
        for number in range(count):
            tasks.start_soon(call, number)
    return results


def good(results):
    return [each for each in results if not each.is_error]


async def read_again(catalog):
    catalog.refresh()
    await catalog.loaded(10)


# --- 1. sent although stopped ---


async def test_a_price_that_was_a_lie_is_paid_once(tmp_path):
    """If the API charges a dollar for a listed cent, 1 of 300 concurrent calls is sent and the tool is stopped."""
    with Shark(charge=lambda *_: DOLLAR) as api:
        async with opened(api, tmp_path, budget=3) as (_, client):
            results = await call_all(client, 300)
    assert (api.orders, api.taken) == (1, DOLLAR)
    assert len(good(results)) == 1
    assert sum("weather is stopped" in each.text for each in results) == 299


async def test_no_order_goes_out_after_the_stop(tmp_path):
    """If a confirmed price rises in secret, only the calls in flight, at most `max_in_flight`, are charged more."""
    with Shark(charge=lambda _, number: 10_000 if number == 1 else DOLLAR, delay=0.05) as api:
        async with opened(api, tmp_path, budget=1000, max_in_flight=5) as (_, client):
            await client.call("weather")
            results = await call_all(client, 60)
    assert api.most_open <= 5
    assert api.orders <= 1 + 5
    assert api.taken <= 10_000 + 5 * DOLLAR
    assert len(good(results)) == api.orders - 1


async def test_a_limit_that_is_overrun_meanwhile_stops_what_waits(tmp_path):
    """Once a reply has used up the budget, waiting calls of other tools are not sent either."""
    names = [f"tool{number}" for number in range(8)]
    items = [(str(number), name, 0.01) for number, name in enumerate(names)]
    lied = {"0": 5 * DOLLAR}
    with Shark(
        items=items, charge=lambda entry, number: lied.get(entry, 10_000) if number > 8 else 10_000
    ) as api:
        async with opened(api, tmp_path, budget=1, max_in_flight=1) as (_, client):
            for name in names:
                await client.call(name)  # each price is confirmed
            results = await call_all(client, 40, names)
    dear = [each for each in api.sold if each.micros > 10_000]
    assert len(dear) == 1
    assert api.sold[-1] is dear[0], "something was sold after the budget was gone"
    assert any("the budget of this session" in each.text for each in results)


async def test_a_retry_is_checked_like_a_first_order(tmp_path):
    """If a user stops the tool between two attempts, the order is not sent again."""
    stopped = threading.Event()
    with Shark(spoil=lambda number: "503" if number == 1 else "") as api:
        profile = {"uncharged_statuses": [503], "retry_statuses": [503]}
        async with opened(api, tmp_path, profile=profile) as (catalog, client):

            def stop(number):
                with ledger_in(tmp_path) as ledger:
                    ledger.stop(catalog.entry_id("1"), "weather", "a person said so")
                stopped.set()
                return "503"

            api.spoil = stop
            result = await client.call("weather")
    assert stopped.is_set()
    assert (api.orders, api.sold) == (1, [])
    assert "a person said so" in result.text
    assert states(tmp_path) == [("released", 0)]


async def test_a_repeat_that_is_refused_leaves_the_first_order_unknown(tmp_path):
    """If the tool is stopped before a lost reply is retried, the model is told that it may have been bought."""
    with Shark(idempotent=True) as api:
        profile = {"idempotent": True, "idempotency_header": "Idempotency-Key"}
        async with opened(api, tmp_path, profile=profile) as (catalog, client):

            def stop(number):
                with ledger_in(tmp_path) as ledger:
                    ledger.stop(catalog.entry_id("1"), "weather", "a person said so")
                return "after"

            api.spoil = stop
            result = await client.call("weather")
    assert (api.orders, len(api.sold)) == (1, 1)
    assert states(tmp_path) == [("unknown", 10_000)]
    assert "UNKNOWN whether weather was bought" in result.text
    assert "it was not sent again: weather is stopped (a person said so)" in result.text


@pytest.mark.parametrize("count", [1, 40], ids=["one tool", "40 tools"])
async def test_replies_that_nobody_can_read_end_the_purchases(tmp_path, count):
    """An API that charges a dollar and replies with garbage gets a few orders, not 300."""
    names = [f"tool{number}" for number in range(count)]
    items = [(str(number), name, 0.01) for number, name in enumerate(names)]
    with Shark(items=items, charge=lambda *_: DOLLAR, spoil=lambda _: "garbage") as api:
        async with opened(api, tmp_path, budget=3) as (_, client):
            results = await call_all(client, 300, names)
    assert api.orders <= 6
    assert not good(results)


async def test_lost_replies_stop_a_tool_until_a_person_has_looked(tmp_path):
    """Five lost replies in a row stop the tool; a reply that arrives resets the count."""
    spoilt = [*["garbage"] * 4, "", *["garbage"] * 5]
    with Shark(spoil=lambda number: spoilt[number - 1] if number <= len(spoilt) else "") as api:
        async with opened(api, tmp_path, breaker=Breaker(100)) as (catalog, client):
            for number in range(10):
                await client.call("weather", number=number)
            refused = await client.call("weather")
            assert "weather is stopped (the replies to 5 calls in a row were lost)" in refused.text
            with ledger_in(tmp_path) as ledger:
                ledger.accept(catalog.entry_id("1"))
            assert not (await client.call("weather")).is_error
    assert api.orders == 11


# --- 2. paid, but the result is lost ---


async def test_a_call_cancelled_while_its_long_reply_is_read_is_unknown(tmp_path, monkeypatch):
    """The ledger learns that the call ended: it is not left as "sent" for the rest of the process's life."""
    reading, go = threading.Event(), threading.Event()

    def read(*args, real=purchase.read_reply):
        reading.set()
        assert go.wait(10)
        return real(*args)

    monkeypatch.setattr(purchase, "read_reply", read)
    with Shark(reply={"result": "x" * 100_000}) as api:
        async with opened(api, tmp_path) as (_, client):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call, "weather")
                await eventually(reading.is_set)
                tasks.cancel_scope.cancel()
            await eventually(lambda: states(tmp_path) == [("unknown", 10_000)])
            go.set()


async def test_the_wait_in_our_queue_is_not_the_api_s(tmp_path):
    """If 40 calls wait for 4 places, some are refused unsent, and every call that was bought gets its result."""
    with Shark(delay=0.3) as api:
        settings = {"max_in_flight": 4, "queue_timeout": 1.0, "profile": {"timeout": 5.0}}
        async with opened(api, tmp_path, **settings) as (catalog, client):
            await client.call("weather")
            results = await call_all(client, 40)
            assert catalog._breaker.state == "closed"
    assert len(good(results)) == len(api.sold) - 1
    assert all(each.answered for each in api.sold)
    refused = [each.text for each in results if each.is_error]
    assert refused
    assert all(
        "4 calls of this catalogue were in flight" in each and "nothing was sent or bought" in each
        for each in refused
    )
    assert {state for state, _ in states(tmp_path)} == {"settled"}


async def test_the_api_s_time_begins_when_the_order_goes_out(tmp_path):
    """The time in the queue does not count towards the API's timeout."""
    with Shark(delay=0.4) as api:
        settings = {"max_in_flight": 1, "queue_timeout": 30.0, "profile": {"timeout": 1.0}}
        async with opened(api, tmp_path, **settings) as (_, client):
            results = await call_all(client, 5)
    assert len(good(results)) == len(api.sold) == 5


# --- 3. a new id is a new price ---


async def test_a_new_id_inherits_the_price_that_was_agreed(tmp_path):
    """A tool that is listed under new ids at a higher price is refused each time."""
    with Shark() as api:
        async with opened(api, tmp_path) as (catalog, client):
            await client.call("weather")
            for number in range(2, 6):
                api.items = [(str(number), "weather", 10.0)]
                await read_again(catalog)
                assert "rose from $0.0100 to $10.0000" in (await client.call("weather")).text
    assert api.orders == 1


async def test_a_new_id_beside_the_old_one_inherits_too(tmp_path):
    """The second tool gets another name, because the first keeps its own, but the same agreed price."""
    with Shark() as api:
        async with opened(api, tmp_path) as (catalog, client):
            await client.call("weather")
            api.items = [("1", "weather", 0.01), ("2", "Weather", 10.0)]
            await read_again(catalog)
            (other,) = [name for name in catalog.definitions if name != "weather"]
            assert "rose from $0.0100 to $10.0000" in (await client.call(other)).text
    assert api.orders == 1


async def test_a_stopped_tool_stays_stopped_under_a_new_id(tmp_path):
    """The stop also holds for a catalogue that is opened later."""
    with Shark(charge=lambda *_: DOLLAR) as api:
        async with opened(api, tmp_path) as (_, client):
            await client.call("weather")
        api.items = [("2", "weather", 0.01)]
        async with opened(api, tmp_path) as (_, client):
            assert "weather is stopped" in (await client.call("weather")).text
    assert api.orders == 1


async def test_two_products_of_one_name_that_were_listed_together_are_two(tmp_path):
    """Each has its own price, and nobody has to accept prices that were there from the start."""
    with Shark(
        items=[("1", "weather", 0.01), ("2", "weather", 0.05)], charge=lambda entry, _: int(entry) * 10_000
    ) as api:
        async with opened(api, tmp_path) as (catalog, client):
            for name in catalog.definitions:
                assert not (await client.call(name)).is_error
    assert api.orders == 2


async def test_the_limit_of_a_tool_holds_for_all_its_ids(tmp_path):
    """What was spent under an earlier id counts."""
    with Shark() as api:
        async with opened(api, tmp_path, budget=Limits(per_tool={"weather": 20_000})) as (catalog, client):
            results = [await client.call("weather")]
            for number in range(2, 5):
                api.items = [(str(number), "weather", 0.01)]
                await read_again(catalog)
                results.append(await client.call("weather"))
    assert (len(good(results)), api.taken) == (2, 20_000)
    assert "the budget of this tool" in results[-1].text


async def test_a_limit_for_a_tool_that_is_not_there_is_told_once(tmp_path, caplog):
    """It is logged, because a limit for a misspelt name would have no effect."""
    with Shark() as api:
        async with opened(api, tmp_path, budget=Limits(per_tool={"wether": 1, "weather": 1})) as (catalog, _):
            api.items = [*api.items, ("2", "stock", 0.01)]
            await read_again(catalog)
    assert caplog.text.count("per_tool has a limit for wether") == 1
    assert "per_tool has a limit for weather" not in caplog.text


async def test_a_call_whose_end_could_not_be_booked_does_not_block_others(tmp_path):
    """It is booked as soon as the ledger works again, so other calls of uncertain cost can be sent."""
    ledger, failures = Watched(tmp_path / "ledger.db"), []

    def fail(*_):
        if not failures:
            failures.append(1)
            raise CatalogError("the disk is full")

    items = [("1", "weather", 0.01), ("2", "stock", 0.01)]
    with Shark(items=items) as api:
        async with opened(api, tmp_path, ledger=ledger, budget=3) as (_, client):
            ledger.before["settle"] = fail
            assert not (await client.call("weather")).is_error
            assert not (await client.call("stock")).is_error
    ledger.close()
    assert failures
    assert states(tmp_path) == [("settled", 10_000)] * 2


# --- 4. no price, no limit ---


@pytest.mark.parametrize("many", [False, True], ids=["one tool", "25 tools"])
async def test_what_has_no_price_goes_out_once_at_a_time_for_the_whole_limit(tmp_path, many):
    """Of 25 concurrent calls that charge $5 each, under a limit of $1, one is sent."""
    names = [f"tool{number}" for number in range(25 if many else 1)]
    items = [(str(number), name, None) for number, name in enumerate(names)]
    with Shark(items=items, charge=lambda *_: 5 * DOLLAR, delay=0.02) as api:
        async with opened(api, tmp_path, budget=1) as (_, client):
            results = await call_all(client, 25, names)
    assert (api.orders, api.taken, api.most_open) == (1, 5 * DOLLAR, 1)
    assert len(good(results)) == 1


async def test_one_unconfirmed_call_at_a_time_for_the_whole_limit(tmp_path):
    """Of 25 tools listed at a cent that charge a dollar, under a limit of $1, one is called."""
    names = [f"tool{number}" for number in range(25)]
    items = [(str(number), name, 0.01) for number, name in enumerate(names)]
    with Shark(items=items, charge=lambda *_: DOLLAR, delay=0.02) as api:
        async with opened(api, tmp_path, budget=1) as (_, client):
            await call_all(client, 25, names)
    assert (api.orders, api.taken, api.most_open) == (1, DOLLAR, 1)


async def test_a_confirmed_price_runs_side_by_side(tmp_path):
    """Only the first call of a tool has to be alone."""
    with Shark(delay=0.1) as api:
        async with opened(api, tmp_path, budget=5) as (_, client):
            await client.call("weather")
            assert len(good(await call_all(client, 20))) == 20
    assert api.most_open > 5


async def test_two_processes_of_one_limit_take_turns(tmp_path):
    """An unconfirmed call waits for that of another catalogue object on the same ledger."""
    items = [("1", "one", 0.01), ("2", "two", 0.01)]
    with Shark(items=items, delay=0.2) as api:
        limits = Limits(total=5 * DOLLAR)
        async with (
            opened(api, tmp_path, budget=limits) as (_, first),
            opened(api, tmp_path, budget=limits) as (_, second),
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(first.call, "one")
            tasks.start_soon(second.call, "two")
    assert (api.orders, api.most_open) == (2, 1)
    assert [state for state, _ in states(tmp_path)] == ["settled"] * 2


# --- 5. invalid costs and odd balances ---


@pytest.mark.parametrize("cost", ["5 EUR", 1e308, -3, "NaN", True, {"amount": 5}])
async def test_a_cost_that_cannot_be_read_stops_the_tool(tmp_path, cost):
    """The reserved amount is booked, and a user has to accept the tool."""
    with Shark(reply={"cost": cost}) as api:
        async with opened(api, tmp_path) as (_, client):
            assert not (await client.call("weather")).is_error
            refused = await client.call("weather", again=True)
    assert "weather is stopped" in refused.text
    assert states(tmp_path) == [("settled", 10_000)]


async def test_a_balance_that_falls_by_more_is_flagged(tmp_path, caplog):
    """If the balance falls by more than the cost in the reply, the log and the audit file say so."""
    with Shark(charge=lambda *_: DOLLAR, reply={"cost": 0.01}) as api:
        async with opened(api, tmp_path) as (_, client):
            await client.call("weather")
            await client.call("weather", again=True)
    odd = "the balance fell by $1.0000, but the reply says that the call cost $0.0100"
    assert odd in caplog.text
    assert odd in (tmp_path / "audit.jsonl").read_text()


async def test_a_balance_is_not_compared_across_calls_at_once(tmp_path, caplog):
    """Concurrent calls all lower the balance, so there is no warning."""
    with Shark(delay=0.05) as api:
        async with opened(api, tmp_path) as (_, client):
            await client.call("weather")
            await call_all(client, 10)
            await client.call("weather", last=True)
    assert "the balance fell" not in caplog.text


async def test_too_many_requests_cost_nothing_and_are_not_repeated(tmp_path):
    """HTTP 429 releases the money; it is only retried if the profile says so."""
    with Shark(spoil=lambda number: "429" if number == 1 else "") as api:
        async with opened(api, tmp_path) as (_, client):
            refused = await client.call("weather")
        assert "Nothing was bought" in refused.text
        assert (api.orders, states(tmp_path)) == (1, [("released", 0)])
        api.orders = 0
        async with opened(api, tmp_path, profile={"retry_statuses": [429]}) as (_, client):
            assert not (await client.call("weather")).is_error
        assert api.orders == 2


async def test_an_empty_budget_in_the_environment_is_an_error(tmp_path):
    """An empty variable does not mean "no limit"."""
    with Shark() as api, pytest.raises(UsageError, match="AGENT_PAYMENT_BUDGET is not an amount of dollars"):
        async with opened(api, tmp_path, variables={"AGENT_PAYMENT_BUDGET": ""}):
            pass


async def test_a_day_and_a_total_outlive_the_process(tmp_path):
    """`budget_day` and `budget_total` count what was spent before; whichever is used up refuses the call."""
    with Shark() as api:
        for limit, most in (("budget_day", 2), ("budget_total", 3)):
            bought = 0
            for _ in range(3):
                async with opened(api, tmp_path, **{limit: most / 100}) as (_, client):
                    bought += len(good([await client.call("weather")]))
            assert bought == (2 if limit == "budget_day" else 1)
    assert api.taken == 30_000


# --- 7. an empty list ---


async def test_one_empty_list_changes_nothing_and_two_do(tmp_path):
    """The stored definitions are kept in either case."""
    with Shark() as api:
        full = api.items
        async with opened(api, tmp_path) as (catalog, client):
            api.items = []
            await read_again(catalog)
            assert list(catalog.definitions) == ["weather"]
            assert "the list is empty" in catalog.status.error
            assert not (await client.call("weather")).is_error
            await read_again(catalog)
            assert (list(catalog.definitions), catalog.status.state) == ([], "live")
            api.items = full
            await read_again(catalog)
            assert list(catalog.definitions) == ["weather"]
            api.items = []
            await read_again(catalog)
        async with opened(api, tmp_path) as (
            catalog,
            _,
        ):  # kept: the first list of this process is empty again
            assert list(catalog.definitions) == ["weather"]


# --- 9. the event loop is not blocked ---


async def test_long_replies_are_read_in_a_thread(tmp_path, monkeypatch):
    """Decoding, scrubbing and reading a reply of megabytes does not block the event loop."""
    threads = set()

    def noting(function):
        def act(*args, **settings):
            threads.add(threading.get_ident())
            return function(*args, **settings)

        return act

    with Shark(reply={"result": ["x" * 100] * 20_000, "echo": KEYS["x-api-key"]}) as api:
        async with opened(api, tmp_path) as (_, client):
            monkeypatch.setattr(answers, "decode_reply", noting(answers.decode_reply))
            monkeypatch.setattr(purchase, "read_reply", noting(purchase.read_reply))
            monkeypatch.setattr(purchase, "build_result", noting(purchase.build_result))
            result = await client.call("weather")
    assert not result.is_error
    assert KEYS["x-api-key"] not in result.text
    assert threads
    assert threading.get_ident() not in threads


async def test_a_list_that_has_not_changed_is_not_taken_apart(tmp_path, monkeypatch):
    """A refresh without changes only costs its requests, and clients get no notification."""
    taken = []
    monkeypatch.setattr(
        Reading, "take", lambda self, *args, real=Reading.take: taken.append(1) or real(self, *args)
    )
    made = []
    monkeypatch.setattr(
        server, "build_offer", lambda *args, real=build_offer, **more: made.append(1) or real(*args, **more)
    )
    with Shark() as api:
        async with opened(api, tmp_path) as (catalog, client):
            before = catalog.status.at
            await read_again(catalog)
            assert (len(taken), len(made), catalog.status.state) == (1, 1, "live")
            assert catalog.status.at > before
            changes = [each for each in client.notifications if each.method.endswith("list_changed")]
            api.items = [*api.items, ("2", "stock", 0.01)]
            await read_again(catalog)
            assert (len(taken), len(made), len(catalog.definitions)) == (2, 2, 2)
            await eventually(
                lambda: (
                    len([x for x in client.notifications if x.method.endswith("list_changed")])
                    == len(changes) + 1
                )
            )


# --- 10. a cold start ---


async def test_the_first_list_of_tools_waits_for_the_catalogue(tmp_path):
    """A client that lists tools at once gets them once they are loaded, not an empty list."""
    go = threading.Event()
    with Shark(on_list=lambda: go.wait(10)) as api:
        async with connect(catalog_for(api, tmp_path)) as client, anyio.create_task_group() as tasks:
            listed = []

            async def ask():
                listed.extend(each.name for each in await client.list_tools())

            async def call():
                listed.append((await client.call("weather")).is_error)

            tasks.start_soon(ask)
            tasks.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            assert listed == []
            go.set()
    assert set(listed) == {"weather", False}


# --- the queue, the rate and the circuit breaker ---


async def test_arguments_that_cannot_be_sent_do_not_open_the_circuit_breaker(tmp_path):
    """They are no failure of the API, so other calls can still be sent."""
    with Shark() as api:
        async with opened(api, tmp_path, profile={"arguments": ""}) as (_, client):
            for _ in range(6):
                result = await client.call("weather", product_id="2")
                assert "has the same name as a field" in result.text
            assert not (await client.call("weather")).is_error


async def test_calls_that_queued_together_keep_to_the_rate(tmp_path):
    """Calls that waited for the first one of uncertain cost are still spread by the rate afterwards."""
    moments = []

    class Clock(RateLimit):
        async def wait(self, at_most=0.0):
            moments.append(api.orders)
            return await super().wait(at_most)

    with Shark(delay=0.05) as api:
        async with opened(api, tmp_path, budget=3) as (catalog, client):
            catalog._buyer.rate = Clock(1000)
            await call_all(client, 5)
    assert moments[:2] == [0, 1], "a place was taken before the first call was over"


@pytest.mark.parametrize("count", [0, -1, 2.5, True, "3", float("inf")])
def test_a_number_of_places_that_is_none_is_refused_at_once(tmp_path, count):
    """An invalid `max_in_flight` is an error when the catalogue is created, not when a client connects."""
    with pytest.raises(UsageError, match="max_in_flight must be a whole number, 1 or more"):
        catalog_for(SimpleNamespace(url="http://127.0.0.1:1"), tmp_path, max_in_flight=count)
