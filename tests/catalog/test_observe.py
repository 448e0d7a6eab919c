"""What is recorded of paid calls: metrics, spans, a log, an audit file; and what is in none of them."""

import json
import logging
import stat
import threading

import anyio
import pytest
from prometheus_client import generate_latest

from shared.market import KEYS, Fault, PaidApi
from shared.spans import exporter
from shared.till import ULM, opened
from toolwire._support.tracing import IN_TRACED_CALL, VARIABLE
from toolwire.catalog.observe import Observer
from toolwire.errors import CatalogError, McpError

HIDDEN = "a city that nobody must know of"


@pytest.fixture
def shop():
    with PaidApi() as running:
        yield running


def metrics(observer):
    """Return name and labels -> value."""
    lines = generate_latest(observer.registry).decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[0] != "#"}


def lines_of(path):
    """Return the parsed lines of an audit file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.anyio
async def test_calls_are_counted(shop, tmp_path):
    """There are metrics by tool and outcome, with the cost, the time and the API's part of the time."""
    with anyio.fail_after(20):
        async with opened(shop, tmp_path, name="shop", budget="0.03") as (catalog, client):
            await client.call("weather", ULM)
            shop.faults.append(Fault("reset_after_buying"))
            await client.call("weather", city="Oslo")
            shop.faults.append(Fault("status_before_buying", status=402))
            await client.call("weather", city="Lima")
            assert "budget" in (await client.call("stock", symbol="X")).text
            with pytest.raises(McpError):
                await client.call("weather")
            text = generate_latest(catalog.metrics_registry).decode()
            assert catalog.metrics_registry is catalog.metrics_registry
    for outcome in ("bought", "unknown", "released"):
        assert f'calls_total{{catalog="shop",outcome="{outcome}",tool="weather"}} 1.0' in text
    assert 'calls_total{catalog="shop",outcome="refused",tool="stock"} 1.0' in text
    assert 'cost_dollars_total{catalog="shop",tool="weather"} 0.01' in text
    assert 'call_seconds_count{catalog="shop",tool="weather"} 3.0' in text
    assert 'api_seconds_count{catalog="shop",tool="weather"} 3.0' in text
    assert 'api_seconds_count{catalog="shop",tool="stock"}' not in text


@pytest.mark.anyio
async def test_every_paid_call_is_one_line(shop, tmp_path, caplog):
    """The audit file and the log say what was bought and how it ended, without arguments and keys."""
    caplog.set_level(logging.INFO, "toolwire.catalog")
    with anyio.fail_after(20):
        async with opened(shop, tmp_path, name="shop", budget="0.03") as (catalog, client):
            await client.call("weather", city=HIDDEN)
            shop.faults.append(Fault("hang_after_buying"))
            with anyio.move_on_after(0.15):
                await client.call("weather", city="Oslo")
            await client.call("stock", symbol=HIDDEN)  # over budget: nothing was booked
            entry = catalog.definitions["weather"].id
    path = tmp_path / "audit.jsonl"
    first, second = lines_of(path)
    assert {
        name: first[name]
        for name in first
        if name not in ("at", "seconds", "api_seconds", "booking", "digest")
    } == {
        "catalog": "shop",
        "session": catalog.session,
        "tool": "weather",
        "outcome": "bought",
        "entry": entry,
        "reserved": 10_000,
        "cost": 10_000,
        "balance": 9_990_000,
    }
    assert (len(first["digest"]), len(first["booking"])) == (64, 12)
    assert 0 < first["api_seconds"] <= first["seconds"]
    assert (second["outcome"], second["cost"], second["reserved"]) == ("unknown", 0, 10_000)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    records = [each.toolwire for each in caplog.records if hasattr(each, "toolwire")]
    assert [each["outcome"] for each in records] == ["bought", "unknown", "refused"]
    everything = path.read_text() + json.dumps(records)
    for hidden in (HIDDEN, *KEYS.values()):
        assert hidden not in everything


@pytest.mark.anyio
async def test_an_audit_file_that_fails_costs_nobody_the_answer(shop, tmp_path, caplog):
    """The ledger has booked the call; the result is returned, and the log says that a line is missing."""
    audit = tmp_path / "logs" / "audit.jsonl"
    with anyio.fail_after(20):
        async with opened(shop, tmp_path, audit=audit) as (_, client):
            audit.unlink()
            audit.mkdir()
            result = await client.call("weather", ULM)
    assert "clear" in result.text
    assert "the audit file" in caplog.text
    assert "cannot be written" in caplog.text


@pytest.mark.anyio
async def test_an_audit_file_that_cannot_be_made_is_told_before_anything_is_bought(shop, tmp_path):
    """No call is made without the audit file that was asked for."""
    (tmp_path / "file").write_text("")
    with anyio.fail_after(5):
        async with opened(shop, tmp_path):
            pass
        async with opened(shop, tmp_path, audit=tmp_path / "file" / "audit.jsonl") as (catalog, client):
            assert "audit.jsonl cannot be written" in catalog.status.error
            with pytest.raises(McpError, match="The catalogue is down: the audit file .* cannot be written"):
                await client.call("weather", ULM)
    assert shop.purchases == []


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("settings", "there"),
    [({}, True), ({"audit": False}, False), ({"ledger": ":memory:"}, False), ({"ledger": "here.db"}, True)],
)
async def test_the_audit_file_is_beside_the_ledger(shop, tmp_path, monkeypatch, settings, there):
    """This also holds for a relative path. There is none if it is switched off, or the ledger is not a file."""
    monkeypatch.chdir(tmp_path)
    with anyio.fail_after(20):
        async with opened(shop, tmp_path, **settings) as (_, client):
            await client.call("weather", ULM)
    assert (tmp_path / "audit.jsonl").exists() is there


def test_lines_of_many_writers_stay_whole(tmp_path):
    """Several writers have the file open independently."""
    observers = [Observer("shop", "s", tmp_path / "audit.jsonl") for _ in range(4)]

    def write(observer):
        for number in range(50):
            with observer.call("weather") as seen:
                seen.booking, seen.note = str(number), "x" * 2_000

    threads = [threading.Thread(target=write, args=[each]) for each in observers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(lines_of(tmp_path / "audit.jsonl")) == 200


def test_a_call_that_is_given_up_is_seen(tmp_path):
    """The exception is passed on, and the call is counted and written to the audit file."""
    observer = Observer("shop", "s", tmp_path / "audit.jsonl", clock=lambda: 5.0)

    def give_up():
        with observer.call("weather") as seen:
            seen.booking = "b1"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        give_up()
    (line,) = lines_of(tmp_path / "audit.jsonl")
    assert (line["at"], line["outcome"], line["booking"]) == (5.0, "cancelled", "b1")
    assert (
        metrics(observer)['toolwire_catalog_calls_total{catalog="shop",outcome="cancelled",tool="weather"}']
        == 1
    )


def test_no_audit_file_is_fine(tmp_path):
    """There are still metrics and the log."""
    observer = Observer("shop", "s", None)
    with observer.call("weather") as seen:
        seen.outcome, seen.cost, seen.booking = "bought", 10_000, "b1"
    assert metrics(observer)['toolwire_catalog_cost_dollars_total{catalog="shop",tool="weather"}'] == 0.01
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    """The error says which file, and why."""
    (tmp_path / "file").write_text("")
    with pytest.raises(CatalogError, match="audit.jsonl cannot be written: "):
        Observer("shop", "s", tmp_path / "file" / "audit.jsonl")


@pytest.fixture
def spans():
    """Return a function that returns the finished spans."""
    exporter().clear()
    return lambda: list(exporter().get_finished_spans())


@pytest.mark.parametrize("asked", ["variable", "traced call", "nobody"])
def test_spans_tell_the_outcome_and_no_more(asked, monkeypatch, spans):
    """A span is only recorded if asked for, and does not contain the text of an exception."""
    monkeypatch.setenv(VARIABLE, "1" if asked == "variable" else "")
    inside = IN_TRACED_CALL.set(asked == "traced call")
    observer = Observer("shop", "s", None)
    with observer.call("weather") as seen:
        seen.outcome, seen.cost = "bought", 10_000
    with pytest.raises(ValueError, match=HIDDEN), observer.call("weather"):
        raise ValueError(HIDDEN)
    IN_TRACED_CALL.reset(inside)
    if asked == "nobody":
        assert spans() == []
        return
    good, bad = spans()
    assert good.name == "catalog.call weather"
    assert good.attributes["toolwire.cost_usd"] == 0.01
    assert good.status.is_ok
    assert not bad.status.is_ok
    assert HIDDEN not in bad.to_json()
