"""Gateways that share a ledger in Postgres and nothing else, alone and behind a real nginx."""

import json
import os
import re
import secrets
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import which
from types import SimpleNamespace

import psycopg
import pytest

from shared.market import PRICED, PaidApi
from shared.programs import run_python
from shared.served import PATIENCE, Http
from shared.servers import free_port, require
from shared.waiting import wait_until
from toolwire.catalog.ledger.postgres import PostgresLedger
from toolwire.testing import connect

pytestmark = [pytest.mark.process, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs" / "several-machines.md"
CENT = 10_000


@pytest.fixture
def api():
    with PaidApi() as running:
        yield running


@pytest.fixture
def machines(api, tmp_path, postgres_url):
    """Return a function that starts gateways, each with its own folder: `machines(number, *options)`."""
    shared = {
        "AGENT_PAYMENT_API_KEY": "key-of-a-test",
        "AGENT_PAYMENT_BUDGET_KEY": "budget-of-a-test",
        "AGENT_PAYMENT_BASE_URL": api.url,
        "TOOLWIRE_LEDGER": postgres_url,
        "TOOLWIRE_SESSION": "shop",
        "TOOLWIRE_STATE_SECRET": secrets.token_hex(32),
    }

    @contextmanager
    def start(number, *options, **more):
        folder = tmp_path / f"machine{number}"
        folder.mkdir()
        (folder / "priced.toml").write_text(PRICED)
        own = {
            "HOME": str(folder),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "XDG_STATE_HOME": str(folder / "state"),
        }
        with Http("catalog:priced.toml", *options, cwd=folder, env={**shared, **own, **more}) as served:
            served.expect("tools registered")
            yield served

    start.env = shared
    return start


@pytest.fixture
def ledger(postgres_url):
    with PostgresLedger(postgres_url) as opened:
        yield opened


def buy(served, number, tool="weather", **arguments):
    """Call a paid tool and return the result."""
    return served.ask(
        "tools/call", {"name": tool, "arguments": arguments or {"city": f"city {number}"}}, number
    )


def is_bought(result):
    return "content" in result and not result.get("isError")


def run(machines, *arguments, cwd):
    """Run a command on a machine that shares only the ledger with the gateways."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("TOOLWIRE", "AGENT_"))}
    return run_python("-m", "toolwire", *arguments, cwd=cwd, env={**own, **machines.env})


def test_two_gateways_spend_one_budget(api, machines, ledger):
    """Of forty calls over both, only as many are bought as the budget allows; the API's records agree."""
    with machines(1, "--budget", "0.10") as one, machines(2, "--budget", "0.10", "--workers", "2") as two:
        with ThreadPoolExecutor(20) as pool:
            results = list(pool.map(lambda number: buy((one, two)[number % 2], number), range(1, 41)))
        bought = [each for each in results if is_bought(each)]
        assert len(bought) == len(api.purchases) == 10
        wait_until(lambda: not ledger.rows(states=["sent"]))
        assert [(each.name, each.settled) for each in ledger.totals("session")] == [("shop", 10 * CENT)]


def test_a_gateway_is_killed_during_a_purchase(api, machines, ledger, postgres_url, tmp_path):
    """Its open calls are unknown once its lease has expired; the other keeps running; finally all records agree."""
    with machines(1) as one, machines(2) as two:
        assert is_bought(buy(one, 1))
        assert is_bought(buy(two, 1))
        out = threading.Thread(
            target=lambda: suppressed(lambda: buy(one, 2, "slow", seconds=20)), daemon=True
        )
        out.start()
        wait_until(lambda: len(api.purchases) == 3)
        one.signal(signal.SIGKILL)
        one.process.wait(PATIENCE)
        out.join(PATIENCE)
        (open_call,) = ledger.rows(states=["sent"])
        assert ledger.recover() == []  # its lease has not expired: nobody can know yet
        assert is_bought(buy(two, 2, city="Oslo"))
        with psycopg.connect(postgres_url, autocommit=True) as db:
            db.execute(
                "UPDATE toolwire_ledger.owners SET lease = '-1 s' WHERE owner = %s", (open_call.owner,)
            )
        listed = run(machines, "catalog", "reconcile", "--json", cwd=tmp_path)
        assert listed.returncode == 0, listed.stderr
        assert open_call.id in listed.stdout
        assert ledger.rows(states=["unknown"])[0].id == open_call.id
        assert is_bought(buy(two, 3, city="Rome"))
        wait_until(lambda: not ledger.rows(states=["sent"]))
    settled = run(machines, "catalog", "reconcile", open_call.id, "--charged", cwd=tmp_path)
    assert settled.returncode == 0, settled.stderr
    spent = json.loads(run(machines, "catalog", "spend", "--json", cwd=tmp_path).stdout)
    assert spent["settled_micros"] == round(sum(each.cost for each in api.purchases) * 1_000_000)
    booked = sorted((row.tool, row.actual) for row in ledger.rows())
    assert booked == sorted((each.name, round(each.cost * 1_000_000)) for each in api.purchases)
    keys = [row.key for row in ledger.rows()]
    assert len(set(keys)) == len(keys) == len(api.purchases) == 5


def suppressed(act):
    """Run something that may fail because the other side is killed."""
    with suppress(OSError, ValueError):
        act()


def test_tools_have_the_same_names_on_all_machines(api, machines, ledger):
    """Whatever the list at the start was: a tool added later under the same name gets another name."""

    def names(served):
        return {each["name"]: each["description"] for each in served.ask("tools/list")["tools"]}

    with machines(1) as one:
        first = names(one)
        weather = api.products[api.id_of("weather")]
        twin = type(weather)("weather", "Another weather", weather.parameters, 0.02, weather.run)
        api.products["f" * 24] = twin
        with machines(2) as two:
            later = names(two)
            assert later["weather"] == first["weather"]
            assert len(later) == len(first) + 1
            one.signal(signal.SIGHUP)
            wait_until(lambda: names(one) == later)


WRAPPED = """
from toolwire import ToolServer
from toolwire.catalog import Catalog
from toolwire.wrap import combine, prefix

server = combine("all", ToolServer("free"), prefix(Catalog("agentpmt"), "shop_"))
"""


@pytest.mark.parametrize(
    "target", [["catalog:agentpmt"], ["catalog:agentpmt", "--find-tools"], ["app.py"]], ids=" ".join
)
def test_it_does_not_start_without_the_shared_variables(machines, tmp_path, target):
    """Otherwise each machine would have its own budget, and could not continue the calls of another."""
    (tmp_path / "app.py").write_text(WRAPPED)
    for missing in ("TOOLWIRE_SESSION", "TOOLWIRE_STATE_SECRET"):
        machines.env |= {missing: ""}
        refused = run(machines, "serve", *target, "--http", "--port", "0", cwd=tmp_path)
        assert refused.returncode != 0
        assert f"machines that share a ledger need the same {missing}" in refused.stderr.replace(
            "TOOLWIRE_SESSION and ", ""
        )


def test_pins_in_the_ledger_count_on_all_machines(api, machines, tmp_path):
    """One command accepts the current tools; a tool whose price rises is then offered by no machine."""
    (tmp_path / "priced.toml").write_text(PRICED)
    pinned = run(machines, "catalog", "pin", "catalog:priced.toml", "ledger", cwd=tmp_path)
    assert pinned.returncode == 0, pinned.stderr
    assert "6 tools are pinned in ledger" in pinned.stdout
    api.products[api.id_of("stock")].price = 0.5
    with machines(1, "--pins", "ledger") as one, machines(2, "--pins", "ledger") as two:
        for each in (one, two):
            assert "stock" not in {tool["name"] for tool in each.ask("tools/list")["tools"]}
        again = run(machines, "catalog", "pin", "catalog:priced.toml", "ledger", "--check", cwd=tmp_path)
        assert again.returncode == 1
        assert "stock: price up" in again.stdout
        assert run(machines, "catalog", "pin", "catalog:priced.toml", "ledger", cwd=tmp_path).returncode == 0
        for each in (one, two):
            each.signal(signal.SIGHUP)
            wait_until(
                lambda served=each: "stock" in {tool["name"] for tool in served.ask("tools/list")["tools"]}
            )


# Behind nginx.


@contextmanager
def balanced(folder, *machines):
    """Start nginx with the configuration of the documentation, on other ports. Yields an object with its URL."""
    nginx = which("nginx") or which("nginx", path="/usr/sbin")
    require(nginx, "nginx")
    port = free_port()
    (shown,) = re.findall(r"```nginx\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for address, machine in zip(("10.0.0.11:8000", "10.0.0.12:8000"), machines, strict=True):
        assert address in shown
        shown = shown.replace(address, re.search(r"//([^/]+)", machine.url)[1])
    assert "listen 80;" in shown
    folder = folder / "nginx"
    folder.mkdir()
    temporary = "".join(
        f"{name}_temp_path {folder}/{name};\n"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors.log;\nevents {{}}\n"
        f"http {{\n{temporary}access_log off;\n{shown.replace('listen 80;', f'listen 127.0.0.1:{port};')}}}\n"
    )
    command = [nginx, "-p", folder, "-c", folder / "nginx.conf", "-e", folder / "errors.log"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        url = f"http://127.0.0.1:{port}/mcp"
        front = SimpleNamespace(url=url)
        for name in ("request", "ask"):
            setattr(front, name, getattr(Http, name).__get__(front))
        wait_until(lambda: process.poll() is not None or answers(front))
        assert process.poll() is None, process.stderr.read()
        yield front
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


def answers(front):
    """Return True if a server responds."""
    try:
        return front.request("/health")[0] < 500
    except OSError:
        return False


def test_stateless_machines_behind_nginx(api, machines, ledger, tmp_path):
    """Both serve calls from one budget, which is not overspent, and no order is sent twice."""
    options = ("--stateless", "--budget", "0.20")
    with machines(1, *options) as one, machines(2, *options) as two, balanced(tmp_path, one, two) as front:
        with ThreadPoolExecutor(10) as pool:
            results = list(pool.map(lambda number: buy(front, number), range(1, 31)))
        assert sum(map(is_bought, results)) == len(api.purchases) == 20
        owners = {row.owner for row in ledger.rows()}
        assert len(owners) == 2
        assert len({row.key for row in ledger.rows()}) == 20
        large = buy(front, 31, city="x" * (3 << 20))  # is not refused by nginx
        assert "the budget of this session" in large["content"][0]["text"]
        assert [(each.name, each.money) for each in ledger.totals("session")] == [("shop", 20 * CENT)]


def open_session(front):
    """Open a session of MCP 2025-11-25; return a function that makes calls in it."""
    headers = {"Accept": "application/json, text/event-stream", "Content_Type": "application/json"}
    info = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    first = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": info}
    status, given, _ = front.request(body=first, **headers)
    assert status == 200
    headers |= {"mcp_session_id": given["mcp-session-id"], "MCP_Protocol_Version": "2025-11-25"}
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert front.request(body=ready, **headers)[0] == 202

    def call(number, **arguments):
        params = {"name": "weather", "arguments": arguments}
        body = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        status, _, text = front.request(body=body, **headers)
        return status, text

    return call


def test_sessions_behind_nginx_stay_with_their_machine(api, machines, ledger, tmp_path):
    """Every request of a session reaches the machine that has it; each order is bought once."""
    with machines(1) as one, machines(2) as two, balanced(tmp_path, one, two) as front:
        sessions = [open_session(front) for _ in range(8)]
        for number in range(1, 4):
            for place, call in enumerate(sessions):
                status, text = call(number, city=f"city {place} {number}")
                assert (status, "Cost: $0.0100" in text) == (200, True), text
        assert len(api.purchases) == 24
        cities = [each.parameters["city"] for each in api.purchases]
        assert len(set(cities)) == 24
        assert len({row.owner for row in ledger.rows()}) == 2


@pytest.mark.anyio
async def test_a_catalogue_in_this_process_shares_the_rate(api, tmp_path, postgres_url):
    """Two catalogues with one key and one ledger keep to the rate limit together."""
    from shared.till import catalog_for  # noqa: PLC0415

    given = {"ledger": postgres_url, "rate": 0.02, "queue_timeout": 1.0, "audit": False}
    one, two = (catalog_for(api, tmp_path / name, **given) for name in ("one", "two"))
    async with connect(one) as first, connect(two) as second:
        await one.loaded(10)
        await two.loaded(10)
        assert not (await first.call("weather", city="Ulm")).is_error
        refused = await second.call("weather", city="Oslo")
    assert "the rate limit allows no call within 1 s" in refused.text
    assert len(api.purchases) == 1
