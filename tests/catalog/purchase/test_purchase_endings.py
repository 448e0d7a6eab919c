"""Calls that are cancelled, and catalogues that are closed, at an awkward moment."""

import asyncio
import threading

import anyio
import anyio.lowlevel
import pytest

from shared.shark import Shark
from shared.till import catalog_for, opened, states
from shared.waiting import eventually
from toolwire._protocol.jsonrpc import ClientChannel
from toolwire.catalog.purchase import purchase
from toolwire.testing import connect

pytestmark = pytest.mark.anyio

LONG = {"result": "x" * 300_000}  # read in a thread


@pytest.fixture(autouse=True)
async def limit(anyio_backend):
    with anyio.fail_after(30):
        yield


@pytest.fixture
def reading(monkeypatch):
    """Let replies be read only once `go` is set; `begun` is set when the first read begins."""
    begun, go, read_reply = threading.Event(), threading.Event(), purchase.read_reply

    def read(*args):
        begun.set()
        assert go.wait(10)
        return read_reply(*args)

    monkeypatch.setattr(purchase, "read_reply", read)
    yield begun, go
    go.set()


async def test_a_call_that_is_cancelled_while_its_reply_is_read_is_settled(tmp_path, reading):
    """The reply has arrived and was paid for, so its cost is booked, and the next call can be sent."""
    begun, go = reading
    with Shark(reply=LONG) as api:
        async with opened(api, tmp_path, budget=3) as (_, client):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call, "weather")
                await eventually(begun.is_set)
                tasks.cancel_scope.cancel()
                go.set()
            assert not (await client.call("weather")).is_error
    assert states(tmp_path) == [("settled", 10_000), ("settled", 10_000)]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_native_cancellation_while_a_reply_is_read_leaves_the_call_unknown(tmp_path, reading):
    """asyncio ignores shields; if the call stayed "sent", no other call of uncertain cost could be sent."""
    begun, go = reading
    with Shark(reply=LONG) as api:
        async with opened(api, tmp_path, budget=3) as (_, client):
            task = asyncio.ensure_future(client.call("weather"))
            await eventually(begun.is_set)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            go.set()
            assert not (await client.call("weather")).is_error
    assert states(tmp_path) == [("unknown", 10_000), ("settled", 10_000)]


async def test_a_client_that_comes_while_the_last_one_leaves_can_buy(tmp_path):
    """The end of one client's lifespan does not close the ledger of the next."""
    with Shark() as api:
        catalog, left = catalog_for(api, tmp_path), anyio.Event()

        async def come_and_go():
            async with connect(catalog) as client:
                await catalog.loaded(10)
                await client.call("weather")
            left.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(come_and_go)
            while not api.sold or catalog.open_lifespan is not None:
                await anyio.lowlevel.checkpoint()
            async with connect(catalog) as client:
                await left.wait()
                assert not (await client.call("weather")).is_error
    assert states(tmp_path) == [("settled", 10_000), ("settled", 10_000)]


async def test_a_call_that_is_cancelled_before_the_list_is_there_buys_nothing(tmp_path):
    """After a cold start a call waits for the list, and can be cancelled there."""
    go = threading.Event()
    with Shark(on_list=lambda: go.wait(10)) as api:
        catalog = catalog_for(api, tmp_path)
        connection, answers = catalog.connect(ClientChannel()), []

        async def call():
            params = {"name": "weather", "arguments": {}}
            request = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
            answers.append(await connection.answer(request))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await eventually(lambda: api.lists == 1)
            params = {"requestId": 7}
            cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
            await connection.answer(cancelled)
            go.set()
        await catalog.loaded(10)
        await connection.aclose()
    assert answers[0]["error"]["message"] == "Request cancelled"
    assert api.orders == 0
