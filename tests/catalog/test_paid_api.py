"""The sample paid API itself, over plain httpx2: it sells, keeps books, and fails on demand."""

import json
import subprocess
import sys
from decimal import Decimal

import httpx2
import pytest

from shared.market import BROKEN, KEYS, PROGRAM, Fault, PaidApi
from shared.waiting import wait_until

pytestmark = pytest.mark.slow

WEATHER = {"city": "Ulm"}


@pytest.fixture
def shop():
    with PaidApi() as running:
        yield running


@pytest.fixture
def client(shop):
    with httpx2.Client(base_url=shop.url, headers=KEYS, trust_env=False, timeout=5) as client:
        yield client


def buy(client, shop, name="weather", parameters=WEATHER, **more):
    order = {"product_id": shop.id_of(name), "parameters": parameters}
    return client.post("/products/purchase", json=order, **more)


@pytest.mark.parametrize(
    ("name", "parameters", "told"),
    [
        ("weather", {"city": "Ulm"}, ({"city": "Ulm", "sky": "clear, 21 degrees"}, 0.01)),
        ("stock", {"symbol": "ABC"}, ({"symbol": "ABC", "price": 103}, 0.02)),
        ("translate", {"text": "hello", "to": "de"}, ("[de] hello", 0.005)),
        ("slow", {"seconds": 0.01}, ("done", 0.01)),
        ("big", {"bytes": 3}, ("xxx", 0.01)),
    ],
)
def test_a_tool_does_its_work_and_costs_its_price(client, shop, name, parameters, told):
    """The reply has the result, the cost and the balance, and the purchase is recorded."""
    result, cost = told
    left = float(Decimal(10) - Decimal(str(cost)))
    reply = buy(client, shop, name, parameters).json()
    assert reply == {"success": True, "result": result, "cost": cost, "balance": left}
    assert [(each.name, each.cost) for each in shop.purchases] == [(name, cost)]


def test_echo_shows_the_keys_that_it_was_given(client, shop):
    """With it, tests can check that keys are scrubbed."""
    assert KEYS.items() <= buy(client, shop, "echo", {}).json()["result"].items()


@pytest.mark.parametrize(
    ("shape", "reply"),
    [
        ("output", {"success": True, "output": "[fr] x", "error": None}),
        (
            "nested",
            {
                "success": True,
                "response": {"status_code": 200, "data": {"success": True, "output": "[fr] x"}},
                "error": None,
            },
        ),
        (
            "nested_failure",
            {
                "success": True,
                "response": {"status_code": 500, "data": {"success": False, "output": "the tool failed"}},
                "error": None,
            },
        ),
    ],
)
def test_it_speaks_in_other_shapes(client, shop, shape, reply):
    """These shapes of replies are used by real APIs."""
    shop.shape = shape
    assert buy(client, shop, "translate", {"text": "x", "to": "fr"}).json() == reply


def test_298_entries_come_on_three_pages():
    """Each entry is listed once, and none after the last page."""
    with PaidApi(entries=298, broken=True) as shop, httpx2.Client(headers=KEYS, trust_env=False) as client:
        found, page, more = [], 1, True
        while more:
            reply = client.get(f"{shop.url}/products/fetch", params={"page": page, "page_size": 100}).json()
            found += [tool["function"]["name"] for tool in reply["tools"]]
            more, page = reply["details"]["has_next_page"], page + 1
        assert page == 4
        assert reply["details"]["total_pages"] == 3
        assert len(found) == len(set(found)) == 298
        assert {shop.id_of(each.name) for each in BROKEN} <= set(found)


@pytest.mark.parametrize(
    ("status", "request_"),
    [
        (400, {"content": b"{"}),
        (400, {"json": []}),
        (401, {"json": {}, "headers": {"x-api-key": ""}}),
        (404, {"json": {"product_id": "none"}}),
        (422, {"json": {"product_id": PaidApi().id_of("weather")}}),
    ],
)
def test_bad_orders_are_refused_and_cost_nothing(client, shop, status, request_):
    """Each kind has its own status."""
    reply = client.post("/products/purchase", **request_)
    assert (reply.status_code, reply.json()["success"]) == (status, False)
    assert shop.purchases == []


def test_an_empty_account_buys_nothing(client, shop):
    """The status is 402, and no purchase is recorded."""
    shop.balance = Decimal("0.009")
    assert buy(client, shop).status_code == 402
    assert shop.purchases == []


def test_there_is_nothing_elsewhere(client):
    """Any other path gives 404."""
    assert client.get("/elsewhere").status_code == 404


@pytest.mark.parametrize(
    ("replay", "statuses", "bought"),
    [("", [200, 200], 2), ("same", [200, 200], 1), ("conflict", [200, 409], 1)],
)
def test_a_request_id_seen_before(client, shop, replay, statuses, bought):
    """It is sold again, gets the same reply again, or is refused, depending on `replay`."""
    shop.replay = replay
    replies = [buy(client, shop, headers={"x-request-id": "one"}) for _ in range(2)]
    assert [reply.status_code for reply in replies] == statuses
    assert len(shop.purchases) == bought


def test_a_stream_has_news_and_then_everything(client, shop):
    """The server-sent events are data, data, done."""
    order = {"product_id": shop.id_of("weather"), "parameters": WEATHER}
    with client.stream("POST", "/products/purchase?stream=true", json=order) as response:
        events = [(event.event, event.data) for event in httpx2.EventSource(response)]
    assert events[:2] == [("data", "looking"), ("data", "found")]
    assert events[2][0] == "done"
    assert json.loads(events[2][1])["cost"] == 0.01


def test_an_unknown_fault_is_refused():
    """Otherwise a test with a typing mistake would test nothing."""
    with pytest.raises(ValueError, match="There is no fault 'half_repyl'. Known: "):
        Fault("half_repyl")


@pytest.mark.parametrize(
    ("fault", "error", "bought"),
    [
        (Fault("reset_on_connect"), (httpx2.NetworkError, httpx2.RemoteProtocolError), 0),
        (Fault("reset_before_buying"), httpx2.NetworkError, 0),
        (Fault("reset_after_buying"), httpx2.NetworkError, 1),
        (Fault("half_reply"), httpx2.NetworkError, 1),
        (Fault("hang_before_buying"), httpx2.ReadTimeout, 0),
        (Fault("hang_after_buying"), httpx2.ReadTimeout, 1),
        (Fault("drip"), httpx2.ReadTimeout, 1),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_a_fault_strikes_once_at_its_point(client, shop, fault, error, bought):
    """The caller gets an error, purchases made until then are recorded, and the next call works."""
    shop.faults.append(Fault(**vars(fault)))
    with pytest.raises(error):
        buy(client, shop, timeout=0.1)
    assert len(shop.purchases) == bought
    assert buy(client, shop).status_code == 200


def test_a_hang_before_buying_buys_in_the_end(client, shop):
    """It buys although the caller is gone, so a lost reply must not be taken for a failure."""
    shop.faults.append(Fault("hang_before_buying", seconds=0.1))
    with pytest.raises(httpx2.ReadTimeout):
        buy(client, shop, timeout=0.02)
    wait_until(lambda: shop.purchases)
    assert len(shop.purchases) == 1


@pytest.mark.parametrize(
    ("fault", "status", "bought"),
    [
        (Fault("status_before_buying", status=429, retry_after="7"), 429, 0),
        (Fault("status_after_buying"), 503, 1),
        (Fault("redirect"), 307, 0),
        (Fault("garbage"), 200, 1),
        (Fault("wrong_type"), 200, 1),
        (Fault("oversized", size=1000), 200, 1),
        (Fault("close_idle"), 200, 1),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_a_fault_that_answers(client, shop, fault, status, bought):
    """There is a reply, but it is faulty, or has an error status, or the connection is closed after it."""
    shop.faults.append(Fault(**vars(fault)))
    reply = buy(client, shop)
    assert (reply.status_code, len(shop.purchases)) == (status, bought)
    assert reply.headers.get("retry-after") == (fault.retry_after or None)


@pytest.mark.anyio
async def test_it_goes_down_and_comes_up_at_the_same_address():
    """While it is down, connections are refused."""
    async with PaidApi() as shop:
        url = shop.url
        async with httpx2.AsyncClient(headers=KEYS, trust_env=False) as client:
            await shop.stop()
            with pytest.raises(httpx2.ConnectError):
                await client.get(f"{url}/products/fetch")
            await shop.start()
            assert shop.url == url
            assert (await client.get(f"{url}/products/fetch")).status_code == 200


@pytest.mark.process
def test_another_process_has_control(tmp_path):
    """As a program, faults, prices and the balance can be set over HTTP, and its ledger file survives a kill."""
    ledger = tmp_path / "bought.jsonl"
    program = [sys.executable, str(PROGRAM), "--entries", "10", "--ledger", str(ledger)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = process.stdout.readline().strip()
            with httpx2.Client(base_url=url, headers=KEYS, trust_env=False, timeout=5) as client:
                wish = {
                    "faults": [{"kind": "reset_after_buying"}],
                    "prices": {"weather": 0.5},
                    "balance": "2",
                }
                client.post("/_control", json=wish).raise_for_status()
                with pytest.raises(httpx2.NetworkError):
                    buy(client, PaidApi())
                state = client.get("/_state").json()
                assert (state["balance"], len(state["purchases"])) == ("1.5", 1)
                client.post("/_control", json={"down": 0.1}).raise_for_status()
        finally:
            process.kill()
    assert [json.loads(line)["cost"] for line in ledger.read_text().splitlines()] == [0.5]
