"""The code of the soak test: it detects what is lost, wrong, leaked or never ends; speed is not tested."""

import json
import os
import subprocess
import sys

import pytest
from benchmarks.soak import __main__ as command
from benchmarks.soak import catalogue, report
from benchmarks.soak.load import Book, ExpectedEnd, Times, check
from benchmarks.soak.watch import MEGABYTE, Watched

from toolwire.catalog import SqliteLedger
from toolwire.catalog.ledger.types import Limits, Order

LIMIT = 60


def test_percentiles_are_right_to_two_percent():
    times = Times()
    for number in range(1, 10_001):
        times.add(number / 1000)
    assert times.compute_percentile(0.5) == pytest.approx(5, rel=0.03)
    assert times.compute_percentile(0.99) == pytest.approx(9.9, rel=0.03)
    assert (times.count, times.longest) == (10_000, 10.0)
    again = Times.from_json(json.loads(json.dumps(times.to_json())))
    assert again.compute_percentile(0.9) == times.compute_percentile(0.9)


def test_every_request_is_accounted_for():
    """A request was answered, ended as expected, or was wrong; one that is none of these is lost."""
    book = Book()
    with book.track("good"):
        pass
    with book.track("provoked"):
        raise ExpectedEnd("as provoked")
    with book.track("wrong"):
        check(1 + 1 == 3, "one and one")
    with pytest.raises(KeyboardInterrupt), book.track("lost"):
        raise KeyboardInterrupt
    assert (book.begun, book.answered, dict(book.expected), book.wrong) == (4, 1, {"as provoked": 1}, 1)
    assert book.begun - book.done == 1
    assert "one and one" in book.findings[0]


def watched(measure, growth):
    process = Watched("server", 1)
    for second in range(1000):
        process.add(measure, second, growth(second))
    return list(process.judge(1000))[0]["flat"]  # noqa: RUF015 - there is one


@pytest.mark.parametrize(
    ("measure", "growth", "flat"),
    [
        ("memory", lambda second: 80 * MEGABYTE, True),
        ("memory", lambda second: min(second, 200) * MEGABYTE, True),  # it warms up
        ("memory", lambda second: (80 + second * 0.1) * MEGABYTE, False),
        ("descriptors", lambda second: 20 + second % 10, True),
        ("descriptors", lambda second: 20 + second // 10, False),
        ("threads", lambda second: second, False),
        ("tasks", lambda second: second, False),
    ],
)
def test_a_leak_is_seen(measure, growth, flat):
    """Steady growth is a leak; warming up, and going up and down, is not."""
    assert watched(measure, growth) is flat


def test_a_process_of_this_machine_is_looked_at():
    process = Watched("ours", os.getpid())
    process.sample(0.0)
    Watched("gone", 2**22 + 1).sample(0.0)
    assert {measure: points[0][1] > 0 for measure, points in process.points.items()} == {
        "memory": True,
        "threads": True,
        "descriptors": True,
    }


@pytest.fixture
def books(tmp_path):
    """Return a ledger's folder with one settled call, and the records of the API and of the caller about it."""
    with SqliteLedger(tmp_path / "ledger.db") as ledger:
        order = Order("round 1", "weather", "api:1", "weather", price=10_000, key="k1", digest="d")
        booking = ledger.begin(order, Limits())
        ledger.settle(booking.id, 10_000)
        key = ledger.rows()[0].key
    sold = {"name": "weather", "parameters": {"city": "city 1"}, "cost": 0.01, "request_id": key}
    told = {"tool": "weather", "arguments": {"city": "city 1"}, "how": "bought"}
    return tmp_path, sold, told


def problems(folder, sold, told):
    book = Book()
    catalogue.compare(book, sold, told, folder)
    return " | ".join(book.findings)


def test_books_that_agree(books):
    folder, sold, told = books
    assert problems(folder, [sold], [told]) == ""


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda sold, told: ([sold, sold], [told]), "charged twice"),
        (lambda sold, told: ([{**sold, "request_id": "x"}], [told]), "0 times in the ledger"),
        (lambda sold, told: ([{**sold, "cost": 0.02}], [told]), "charged 20000"),
        (lambda sold, told: ([], [told]), "never charged"),
        (lambda sold, told: ([], []), "never charged"),
        (lambda sold, told: ([sold], [{**told, "how": "not bought"}]), "told that nothing was charged"),
        (lambda sold, told: ([sold, {**sold, "request_id": "y"}], [told]), "bought twice"),
    ],
)
def test_books_that_do_not_agree(books, change, found):
    """A lost, a doubled, a wrong and a denied charge are each detected."""
    folder, sold, told = books
    assert found in problems(folder, *change(sold, told))


def test_money_beyond_the_budget_is_seen(books, monkeypatch):
    folder, sold, told = books
    monkeypatch.setattr(catalogue, "BUDGET", 9_999)
    assert "spent 10000 of 9999" in problems(folder, [sold], [told])


def test_a_refusal_that_nobody_expected_is_wrong():
    assert catalogue.classify_refusal("... of this call is UNKNOWN") == "unknown: the reply was lost"
    with pytest.raises(Exception, match="nobody expected"):
        catalogue.classify_refusal("the moon is full")


def test_a_short_soak(tmp_path, capsys):
    """A load runs, is watched, reports, ends, and leaves nothing behind; the page is written."""
    assert command.main(["sessions on trio", "--minutes", "0.02", "--no-plots", "--out", str(tmp_path)]) == 0
    data = json.loads((tmp_path / report.DATA).read_text())
    (load,) = data["loads"].values()
    assert load["begun"] == load["answered"] + sum(load["expected"].values()) > 0
    assert load["left"] == {"tasks": 0, "children": 0}
    page = (tmp_path / report.PAGE).read_text()
    assert "query with three calls" in page
    assert "None." in page
    assert capsys.readouterr().out == page


def test_a_load_that_fails_is_told_with_its_words(tmp_path, monkeypatch):
    monkeypatch.setitem(command.LOADS, "sessions", ("no_such_load", {}))
    (load,) = command.run(0.1, ["sessions"], tmp_path)
    found = load.list_problems(0.1)
    load.end()
    assert "without a report" in found[0]
    assert "no_such_load" in found[0]


def test_a_load_that_hangs_is_ended(tmp_path, monkeypatch):
    """A load that does not end in time is killed, and reported."""
    monkeypatch.setitem(command.LOADS, "sessions", ("sessions", {"at_once": 1, "real": 0}))
    monkeypatch.setattr(command, "GRACE", -3599.0)
    (load,) = command.run(3600, ["sessions"], tmp_path)
    assert "did not end in time" in load.list_problems(3600)[0]
    load.end()
    assert load.process.poll() is not None


def test_a_load_ends_with_its_input(tmp_path):
    """A load ends when its input ends, so that it does not outlive the watching process, however that ends."""
    case = json.dumps({"name": "x", "seconds": 3600, "at_once": 1, "real": 0})
    load = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.soak.sessions", case],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert b"pids" in load.stdout.readline()
        load.stdin.close()
        assert load.wait(LIMIT) == 3
    finally:
        load.kill()
        load.wait()
        load.stdout.close()
