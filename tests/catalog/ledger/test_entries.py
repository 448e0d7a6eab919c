"""Money is counted by API and entry: no id of another API, no new name and no missing price evades a limit."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import anyio
import pytest
from typer.testing import CliRunner

from shared.till import catalog_for, ledger_in, opened, states
from toolwire.catalog.ledger.types import Limits
from toolwire.cli.catalog import catalog_app
from toolwire.errors import UsageError

pytestmark = pytest.mark.anyio
FAILURE = {"success": False, "error": "bad"}
ID = "a" * 24
RESULT = {"success": True, "output": "sunny"}


@pytest.fixture(autouse=True)
async def limit(anyio_backend):
    with anyio.fail_after(30):
        yield


@contextmanager
def stall(name="weather", id=ID, price=None, reply=None, status=200):
    """Serve an API with one entry; a test can change its list and its reply while it runs."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self, status, body):
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self):
            listed = [item(*each) for each in here.items]
            self.answer(200, {"success": True, "details": {"has_next_page": False}, "tools": listed})

        def do_POST(self):
            here.orders.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.answer(status, here.reply)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    here = SimpleNamespace(
        url=f"http://127.0.0.1:{server.server_address[1]}",
        items=[(id, name, price)],
        orders=[],
        reply=reply or RESULT,
    )
    try:
        yield here
    finally:
        server.shutdown()
        server.server_close()


def item(id, name, price):
    """Return an entry in the format of the API's list."""
    function = {"name": id, "description": f"{name} — does it", "parameters": {"type": "object"}}
    return {"type": "function", "function": function, **({} if price is None else {"price": price})}


async def listed(catalog, api, *items):
    """Let the API list these items from now on, and refresh the catalogue."""
    api.items = list(items)
    catalog.refresh()
    await catalog.loaded(10)


def command(folder, *arguments):
    """Run `toolwire catalog` on the ledger of a test, and return what it printed."""
    done = CliRunner().invoke(catalog_app, [*arguments, "--ledger", str(folder / "ledger.db")])
    return done.stdout + done.stderr


# --- two APIs ---


async def test_two_apis_have_prices_of_their_own(tmp_path):
    """An id that both have is pinned at a price for each API, so a raise at the cheap one is noticed."""
    with stall("rocket", "1", 5.0) as dear, stall("weather", "1", 0.01) as cheap:
        async with opened(dear, tmp_path) as (_, client):
            assert not (await client.call("rocket")).is_error
        async with opened(cheap, tmp_path) as (catalog, client):
            assert not (await client.call("weather")).is_error
            await listed(catalog, cheap, ("1", "weather", 4.0))
            assert "rose from $0.0100 to $4.0000" in (await client.call("weather")).text
        async with opened(dear, tmp_path) as (_, client):
            assert not (await client.call("rocket")).is_error
    assert states(tmp_path) == [("settled", 5_000_000), ("settled", 10_000), ("settled", 5_000_000)]


async def test_a_stop_at_one_api_is_none_at_another(tmp_path):
    """Of two tools with one name only the one that overcharged is stopped, and the commands tell them apart."""
    with (
        stall("weather", "11", 0.01, {**RESULT, "cost": 1}) as greedy,
        stall("weather", "22", 0.01, {**RESULT, "cost": 0.01}) as honest,
    ):
        async with opened(greedy, tmp_path) as (_, client):
            await client.call("weather")
            assert "is stopped" in (await client.call("weather")).text
        async with opened(honest, tmp_path) as (catalog, client):
            assert not (await client.call("weather")).is_error
            stopped = catalog.entry_id("22")
    with ledger_in(tmp_path) as ledger:
        names = [each.name for each in ledger.totals("tool")]
    assert f"weather ({stopped})" in names
    assert len(names) == 2
    assert "weather may be called again" in command(tmp_path, "accept", "weather")  # the one that is stopped
    assert "weather matches 2 entries, name one of them" in command(tmp_path, "accept", "weather")
    assert "Nothing to accept" in command(tmp_path, "accept", stopped)
    assert "weather may now cost $0.0300" in command(tmp_path, "accept", "22", "--price", "0.03")


async def test_a_new_key_keeps_the_prices(tmp_path):
    """Agreed prices belong to the API, not to the API key that pays."""
    with stall(price=0.01) as api:
        async with opened(api, tmp_path) as (_, client):
            await client.call("weather")
        api.items = [(ID, "weather", 0.02)]
        async with opened(api, tmp_path, variables={"AGENT_PAYMENT_API_KEY": "another"}) as (_, client):
            assert "rose from $0.0100 to $0.0200" in (await client.call("weather")).text


# --- a new name ---


async def test_a_stop_survives_a_new_name(tmp_path):
    """A renamed entry stays stopped, and the command in the error message accepts it."""
    with stall(price=0.01, reply={**RESULT, "cost": 1}) as api:
        async with opened(api, tmp_path) as (catalog, client):
            await client.call("weather")
            await listed(catalog, api, (ID, "weather2", 0.01))
            refused = await client.call("weather2")
            assert "weather2 is stopped" in refused.text
            name = refused.text.rpartition(" ")[2]
            assert "may be called again" in command(tmp_path, "accept", name)
            assert not (await client.call("weather2")).is_error
    assert len(api.orders) == 2


async def test_a_limit_of_a_tool_survives_a_new_name(tmp_path):
    """A renamed entry stays under its limit, and what it has spent still counts."""
    with stall(price=0.01) as api:
        limits = Limits(per_tool={"weather": 10_000})
        async with opened(api, tmp_path, budget=limits) as (catalog, client):
            await client.call("weather")
            await listed(catalog, api, (ID, "weather2", 0.01))
            assert "the budget of this tool" in (await client.call("weather2")).text
            assert catalog.limits == limits
    assert len(api.orders) == 1


async def test_a_lost_answer_of_unknown_price_survives_a_new_name(tmp_path):
    """The renamed entry cannot be called until a user has reconciled the lost call."""
    with stall(status=500, reply={"error": "boom"}) as api:
        async with opened(api, tmp_path) as (catalog, client):
            await client.call("weather")
            await listed(catalog, api, (ID, "weather2", None))
            assert "reconcile" in (await client.call("weather2")).text
    assert len(api.orders) == 1


async def test_names_survive_a_restart(tmp_path):
    """A second entry with the same name keeps its suffix after a restart, and the first one gets none."""
    with stall(price=0.01) as api:
        async with opened(api, tmp_path) as (catalog, _):
            await listed(catalog, api, (ID, "weather", 0.01), ("b" * 24, "weather", 0.01))
            before = {each.id: name for name, each in catalog.definitions.items()}
        assert before[ID] == "weather"
        narrow = catalog_for(api, tmp_path, exclude=["weather"])
        assert ID not in {each.id for each in narrow.definitions.values()}
        async with opened(api, tmp_path, exclude=["weather"]):
            pass  # entries that are excluded keep their names too
        async with opened(api, tmp_path) as (catalog, _):
            assert {each.id: name for name, each in catalog.definitions.items()} == before


# --- no price ---


@pytest.mark.parametrize("reply", [RESULT, FAILURE])
async def test_what_tells_no_price_is_bought_once_under_a_limit(tmp_path, reply):
    """After that a user must set a price, which is then counted per call; a restart changes nothing."""
    with stall(reply=reply) as api:
        async with opened(api, tmp_path, budget="0.02") as (_, client):
            assert "Cost: unknown, not counted" in (await client.call("weather")).text
            refused = await client.call("weather")
            assert refused.is_error
            assert "toolwire catalog accept weather --price 0.01" in refused.text
        async with opened(api, tmp_path, budget=Limits(per_tool={"weather": 20_000})) as (catalog, client):
            assert "weather has no known price" in (await client.call("weather")).text
            await listed(catalog, api, (ID, "weather2", None))
            assert f"accept {catalog.entry_id(ID)} --price" in (await client.call("weather2")).text
        assert "weather has no known price" in command(tmp_path, "spend")
        assert "weather has no known price: set one with --price" in command(tmp_path, "accept", "weather")
        said = command(tmp_path, "accept", "weather", "--price", "0.01")
        assert said == "weather may now cost $0.0100 per call; before: unknown.\n"
        async with opened(api, tmp_path, budget="0.02") as (_, client):
            texts = [(await client.call("weather2")).text for _ in range(3)]
    assert "the budget of this session" in texts[-1]
    assert len(api.orders) == 3
    assert states(tmp_path) == [("settled", 0), ("settled", 10_000), ("settled", 10_000)]


async def test_what_tells_no_price_goes_on_without_a_limit(tmp_path, caplog):
    """The missing price is logged once, and is in each result."""
    with stall(reply={**RESULT, "output": {"a": 1}}) as api:
        async with opened(api, tmp_path, budget=Limits(per_tool={"stock": 1})) as (_, client):
            results = [await client.call("weather") for _ in range(3)]
    assert [each.raw["structuredContent"] for each in results] == [{"result": {"a": 1}, "cost": None}] * 3
    assert caplog.text.count("weather has no known price") == 1
    assert states(tmp_path) == [("settled", 0)] * 3


@pytest.mark.parametrize("where", ["argument", "environment"])
async def test_a_default_price_counts_until_a_reply_knows_better(tmp_path, where):
    """The default price counts if neither list nor reply has one; a higher cost in a reply stops the tool."""
    given = {"default_price": "0.01"} if where == "argument" else {}
    variables = {"TOOLWIRE_DEFAULT_PRICE": "0.01"} if where == "environment" else {}
    with stall() as api:
        async with opened(api, tmp_path, budget="0.05", variables=variables, **given) as (_, client):
            assert "Cost: $0.0100" in (await client.call("weather")).text
            api.reply = {**RESULT, "cost": 0.02}
            assert not (await client.call("weather")).is_error
            assert "is stopped" in (await client.call("weather")).text
            assert "may now cost $0.0200 per call" in command(tmp_path, "accept", "weather")
            assert not (await client.call("weather")).is_error
            assert "the budget of this session" in (await client.call("weather")).text
    assert states(tmp_path) == [("settled", 10_000), ("settled", 20_000), ("settled", 20_000)]


async def test_a_list_as_a_reply_is_a_result(tmp_path):
    """A JSON array as reply is a result, and settled at the listed price."""
    with stall(price=0.01, reply=[1, 2, 3]) as api:
        async with opened(api, tmp_path) as (_, client):
            result = await client.call("weather")
    assert not result.is_error
    assert "[1,2,3]" in result.text
    assert states(tmp_path) == [("settled", 10_000)]


# --- settings ---


@pytest.mark.parametrize("refresh", [0, 0.99, -1, float("nan")])
def test_an_interval_that_is_none_is_refused(anyio_backend, tmp_path, refresh):
    """A refresh interval below one second, or NaN, is refused."""
    with pytest.raises(UsageError, match="refresh must be 1 second or more"):
        catalog_for(SimpleNamespace(url="http://127.0.0.1:9"), tmp_path, refresh=refresh)


def test_a_default_price_that_is_none_is_refused(anyio_backend, tmp_path):
    """The error is raised when the catalogue is created."""
    with pytest.raises(UsageError, match="the default price is not an amount of dollars"):
        catalog_for(SimpleNamespace(url="http://127.0.0.1:9"), tmp_path, default_price="much")


async def test_the_filter_of_the_environment_narrows(tmp_path):
    """The filter cannot add tools that the program did not include."""
    with stall(price=0.01) as api:
        api.items += [("b" * 24, "stock", 0.01), ("c" * 24, "weather_map", 0.01)]
        variables = {"AGENT_PAYMENT_TOOLS_FILTER": "stock,map"}
        async with opened(api, tmp_path, include=["weather*"], variables=variables) as (catalog, _):
            assert set(catalog.definitions) == {"weather_map"}
