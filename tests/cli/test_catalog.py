"""`toolwire catalog`: costs, calls whose response was lost, and accepted prices."""

import contextlib
import json
import os
import sys
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from shared.terminal import Terminal
from toolwire.catalog.ledger.sqlite import SqliteLedger
from toolwire.catalog.ledger.types import Limits, Order, PriceRaised
from toolwire.cli.catalog import catalog_app

NOON = datetime(2026, 11, 6, 12, tzinfo=UTC).timestamp()
DAY = 86_400
MAIN = "from toolwire.cli.catalog import catalog_app; catalog_app()"


@pytest.fixture(autouse=True)
def path(tmp_path, monkeypatch):
    """Return the path where a ledger would be created."""
    monkeypatch.setenv("TOOLWIRE_LEDGER", str(tmp_path / "ledger.db"))
    monkeypatch.delenv("NO_COLOR", raising=False)
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path):
    """Return an empty ledger whose clock can be set."""
    with SqliteLedger(path, clock=lambda: opened.now) as opened:
        opened.now = NOON
        yield opened


def catalog(*arguments, code=0):
    """Run a command in this process and return its output."""
    done = CliRunner().invoke(catalog_app, list(map(str, arguments)))
    assert done.exit_code == code, (done.stdout, done.stderr, done.exception)
    if code:
        assert done.stdout == ""
        assert done.stderr.startswith("Error: ")
        assert done.stderr.count("\n") == 1
        return done.stderr
    return done.stdout


def paid(ledger, tool="search", amount=10_000, session="s1", actual=None, **given):
    """Make a call and settle it; return its id."""
    call = sent(ledger, tool, amount, session, **given)
    ledger.settle(call, actual)
    return call


def sent(ledger, tool="search", amount=10_000, session="s1", variant=""):
    """Start a call whose response is pending; return its id."""
    order = Order(session, tool, f"id-{tool}", tool, amount, "", "d", variant)
    return ledger.begin(order, Limits()).id


def asked(ledger, tool, *prices, variant=""):
    """List the tool at these prices, one after the other, and start and release a call at each that is accepted."""
    for price in prices:
        with contextlib.suppress(PriceRaised):
            ledger.release(sent(ledger, tool, price, variant=variant))


def lines(text, start):
    """Return the words of each line that begins with this text, or with one of these."""
    return [line.split() for line in text.splitlines() if line.startswith(start)]


def test_without_a_ledger_nothing_was_spent(path):
    """Commands that only read say so, exit with 0 and create no ledger."""
    assert "No paid calls." in catalog("spend")
    assert str(path) in catalog("spend")
    assert "Nothing to reconcile" in catalog("reconcile")
    assert json.loads(catalog("reconcile", "--json")) == []
    shown = json.loads(catalog("spend", "--json"))
    assert (shown["ledger"], shown["calls"], shown["by"]) == (str(path), 0, {})
    assert not path.exists()


def test_an_empty_ledger_has_no_calls(ledger):
    """The same is shown for a period without calls."""
    assert catalog("spend").endswith("No paid calls.\n")
    paid(ledger)
    assert catalog("spend", "--since", "2026-11-07").endswith("No paid calls since 2026-11-07 00:00.\n")


def test_days_and_tools_are_shown_with_bars(ledger):
    """The list has totals, reserved and unknown amounts, days without a call, and bars in proportion."""
    paid(ledger, "draw", 40_000)
    ledger.now += 2 * DAY
    paid(ledger, "search", 10_000, variant="quick")
    sent(ledger, "search", 10_000, variant="quick")
    ledger.unknown(sent(ledger, "search", 20_000, variant="deep"), "lost")
    shown = catalog("spend")
    assert "$0.0500 spent in 4 calls, $0.0100 reserved, $0.0200 unknown (toolwire catalog reconcile)" in shown
    assert lines(shown, "2026") == [
        ["2026-11-06", "1", "$0.0400", "█" * 30],
        ["2026-11-07", "0"],
        ["2026-11-08", "3", "$0.0100", "$0.0100", "$0.0200", "█" * 7 + "▌" + "░" * 22],
    ]
    assert [line[0] for line in lines(shown, ("draw", "search"))] == ["draw", "search"]
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("tool", ["draw", "search"]),
        ("session", ["s2", "s1"]),
        ("day", ["2026-11-06"]),
        ("state", ["settled"]),
    ],
)
def test_sums_are_grouped_as_requested(ledger, by, names):
    """The largest amount comes first; JSON has all groups, in micros."""
    paid(ledger, "search", 10_000, "s1")
    paid(ledger, "draw", 30_000, "s2")
    shown = catalog("spend", "--by", by)
    assert [line[0] for line in lines(shown, tuple(names))] == names
    report = json.loads(catalog("spend", "--by", by, "--json"))
    assert (report["calls"], report["settled_micros"], report["reserved_micros"]) == (2, 40_000, 0)
    assert sorted(each["name"] for each in report["by"][by]) == sorted(names)
    assert sum(each["settled_micros"] for each in report["by"][by]) == 40_000


@pytest.mark.parametrize(
    ("since", "calls"),
    [
        ("2026-11-06", 3),
        ("2026-11-07T00:00:00+00:00", 2),
        ("3d", 2),
        ("1w", 2),
        ("1h", 1),
        ("1d", 1),
        ("0d", 1),
    ],
)
def test_since_takes_ages_and_dates(ledger, since, calls):
    """Ages in days count whole days, and today is one of them."""
    now = datetime.now(UTC).timestamp()
    paid(ledger)
    for ledger.now in (now - 2 * DAY, now):
        paid(ledger)
    assert json.loads(catalog("spend", "--since", since, "--json"))["calls"] == calls


def test_what_is_left_of_limits_is_shown(ledger):
    """Today's costs count against a day's limit, all costs against the total; what is left is never negative."""
    paid(ledger, amount=1_000_000)
    ledger.now = datetime.now(UTC).timestamp()
    sent(ledger, "draw", amount=500_000)
    shown = catalog("spend", "--per-day", "2", "--total", "$1.20")
    assert "$1.5000 of $2.0000 left today (UTC)" in shown
    assert "$0.0000 of $1.2000 left in total" in shown
    assert json.loads(catalog("spend", "--per-day", "2", "--json"))["left_micros"] == {"day": 1_500_000}


def test_a_day_ahead_of_the_clock_is_named(ledger):
    """If the ledger has calls of a later day, the next call counts for that day, whose budget is shown."""
    ledger.now = datetime(2126, 1, 1, tzinfo=UTC).timestamp()
    paid(ledger, amount=1_000_000)
    assert "$1.0000 of $2.0000 left on 2126-01-01 (UTC; the ledger already has calls on that day" in catalog(
        "spend", "--per-day", "2"
    )


def test_long_lists_end_with_what_is_left_out(ledger):
    """The 31 most expensive tools and the 31 last days are shown; JSON has all."""
    for number in range(40):
        paid(ledger, f"tool{number:02}", 1000 + number * 100)
        ledger.now += DAY
    shown = catalog("spend")
    assert [line[0] for line in lines(shown, "tool")] == [f"tool{number:02}" for number in range(39, 8, -1)]
    assert [line[0] for line in lines(shown, "2026")][::30] == ["2026-11-15", "2026-12-15"]
    assert shown.count("... and 9 more, $0.0126 together (--json has all)") == 2
    assert len(json.loads(catalog("spend", "--json"))["by"]["tool"]) == 40


def test_names_from_the_api_are_made_safe(ledger):
    """Markup and escape sequences in the name of a tool or in a reason have no effect."""
    ledger.unknown(sent(ledger, "[red]a[/]\x1b[2J\x07"), "[bold]no\x1b[0m\nsecond")
    ledger.stop("id", "[red]b[/]\x1b[2J\x07", "\x1b[2J[red]why")
    for shown in (catalog("spend"), catalog("reconcile")):
        assert "[red]a[/]\ufffd" in shown
        assert "\x1b" not in shown
    assert "[bold]no" in shown
    assert "second" not in shown
    refused = catalog("accept", "x\x1b[2J", code=2)
    assert "[red]b[/]\ufffd" in refused
    assert "\x1b" not in refused


def test_stopped_tools_and_higher_prices_are_shown(ledger):
    """Each comes with the command that accepts it."""
    asked(ledger, "draw", 10_000, 20_000)
    asked(ledger, "draw", 5_000, 6_000, variant="quick")
    paid(ledger, actual=30_000)
    shown = catalog("spend")
    assert (
        "search is stopped: a call cost $0.0300, but $0.0100 was reserved (toolwire catalog accept id-search)"
        in shown
    )
    assert "draw now costs $0.0200, and only $0.0100 is accepted (toolwire catalog accept id-draw)" in shown
    assert (
        "draw (quick) now costs $0.0060, and only $0.0050 is accepted (toolwire catalog accept id-draw)"
        in shown
    )
    report = json.loads(catalog("spend", "--json"))
    assert [each["tool"] for each in report["stopped"]] == ["search"]
    raised = [(each["action"], each["asked_micros"]) for each in report["raised_prices"]]
    assert raised == [("", 20_000), ("quick", 6_000), ("", 30_000)]


def test_reconcile_lists_and_settles(ledger):
    """The beginning of its id is enough to name an unknown call, which is then settled or released."""
    first, second, third = (sent(ledger) for _ in range(3))
    for call in (first, second, third):
        ledger.unknown(call, "read time-out")
    (row,) = lines(catalog("reconcile"), first)
    assert row == [first, "2026-11-06", "12:00", "search", "$0.0100", "read", "time-out"]
    assert catalog("reconcile", first, "--charged") == f"Call {first} of search cost $0.0100.\n"
    assert catalog("reconcile", second[:11], "--charged", "--amount", "0.02") == (
        f"Call {second} of search cost $0.0200.\n"
    )
    (left,) = json.loads(catalog("reconcile", "--json"))
    assert (left["id"], left["state"], left["why"]) == (third, "unknown", "read time-out")
    (done,) = json.loads(catalog("reconcile", third, "--not-charged", "--json"))
    assert (done["id"], done["state"], done["money_micros"]) == (third, "released", 0)
    assert sum(each.money for each in ledger.totals("tool")) == 30_000


def test_reconcile_releases_all(ledger):
    """`--all-not-charged` releases every unknown call, and no other."""
    ledger.now = datetime.now(UTC).timestamp()
    calls = {sent(ledger) for _ in range(3)}
    for call in calls:
        ledger.unknown(call, "lost")
    kept = sent(ledger)
    assert catalog("reconcile", "--all-not-charged").count("cost nothing") == 3
    assert "Nothing to reconcile" in catalog("reconcile", "--all-not-charged")
    assert {row.id for row in ledger.rows(states=["released"])} == calls
    assert ledger.rows(states=["sent"])[0].id == kept


def test_reconcile_finds_what_a_crash_left(ledger):
    """A pending call of a process that has ended is listed; one of a running process is not."""
    ledger.now = datetime.now(UTC).timestamp()
    sent(ledger)
    namespace = ledger.owner.split(":")[3]
    ledger.owner = f"4194300:1:00000000:{namespace}"  # an owner of another boot
    lost = sent(ledger)
    (row,) = json.loads(catalog("reconcile", "--json"))
    assert row["id"] == lost
    assert "ended before" in row["why"]


def test_a_lost_reply_of_unknown_price_needs_an_amount(ledger):
    """The list shows that the price is unknown, and the command requires an amount."""
    call = sent(ledger, amount=None)
    ledger.unknown(call, "lost")
    assert "unknown" in catalog("reconcile")
    assert "give the amount that it cost" in catalog("reconcile", call, "--charged", code=1)
    assert "cost $0.0300" in catalog("reconcile", call, "--charged", "--amount", "0.03")


def test_accept_lets_a_tool_run_again_at_its_new_price(ledger):
    """The tool may be named by its name or by the id of its entry."""
    for name, price in (("search", None), ("id-draw", None), ("sing", "0.05")):
        tool = name.removeprefix("id-")
        paid(ledger, tool, actual=30_000)
        done = catalog("accept", name, *(["--price", price] if price else []))
        assert f"{tool} may now cost {'$0.0500' if price else '$0.0300'} per call; before: $0.0100." in done
        assert f"{tool} may be called again." in done
        assert ledger.stopped(f"id-{tool}") is None
        assert ledger.price(f"id-{tool}") == (50_000 if price else 30_000)
    assert "Nothing to accept" in catalog("accept", "search")


def test_accept_uses_the_current_price(ledger):
    """An earlier, higher price that was never paid is not accepted."""
    asked(ledger, "search", 10_000, 5_000_000, 20_000)
    assert "may now cost $0.0200 per call; before: $0.0100" in catalog("accept", "search")
    asked(ledger, "search", 5_000)
    assert "Nothing to accept" in catalog("accept", "search")
    assert ledger.price("id-search") == 20_000


def test_accept_takes_all_actions_that_wait(ledger):
    """Each is shown. `--action` chooses one, which is required if several have a price and none is waiting."""
    for action in ("deep", "quick", "slow"):
        asked(ledger, "search", 10_000, *([20_000] if action != "slow" else []), variant=action)
    done = catalog("accept", "search", "--action", "quick")
    assert done == "search (quick) may now cost $0.0200 per call; before: $0.0100.\n"
    asked(ledger, "search", 30_000, variant="quick")
    assert catalog("accept", "search") == (
        "search (deep) may now cost $0.0200 per call; before: $0.0100.\n"
        "search (quick) may now cost $0.0300 per call; before: $0.0200.\n"
    )
    assert "has 3 prices, choose one with --action: deep, quick, slow" in catalog(
        "accept", "search", "--price", "1", code=2
    )
    catalog("accept", "search", "--price", "1", "--action", "slow")
    assert [ledger.price("id-search", each) for each in ("deep", "quick", "slow")] == [
        20_000,
        30_000,
        1_000_000,
    ]


def test_accept_sets_the_price_of_a_tool_without_one(ledger):
    """This works even if the ledger only has a call of the tool; --price is then required."""
    sent(ledger, "draw", None)
    assert "draw may now cost $0.0200 per call; before: unknown." in catalog(
        "accept", "draw", "--price", "0.02"
    )
    paid(ledger, amount=None)
    assert "search has no known price: set one with --price 0.01" in catalog("accept", "search", code=2)
    assert "search has no known price (toolwire catalog accept id-search --price 0.01)" in catalog("spend")
    assert [each["tool"] for each in json.loads(catalog("spend", "--json"))["unpriced"]] == ["search"]
    assert "may now cost $0.0100 per call; before: unknown" in catalog("accept", "search", "--price", "0.01")


def test_a_cost_that_cannot_be_read_is_shown(ledger):
    """The tool is stopped, and the reason quotes the cost."""
    ledger.settle(sent(ledger), None, unreadable='"5 EUR\x1b[2J"')
    shown = catalog("spend")
    assert 'search is stopped: the cost in a reply cannot be read: "5 EUR\ufffd[2J"' in shown
    assert catalog("accept", "search") == "search may be called again.\n"


def test_a_name_that_matches_two_entries_is_an_error(ledger):
    """The error lists both, and either can be named by its id."""
    for api in ("one", "two"):
        ledger.stop(f"{api}:1", "search", "by hand")
    assert "search matches 2 entries, name one of them: one:1, two:1" in catalog("accept", "search", code=2)
    assert "may be called again" in catalog("accept", "two:1")
    assert [each.entry_id for each in ledger.stops()] == ["one:1"]


def test_accept_lifts_a_stop_without_a_price(ledger):
    """A tool that was stopped by hand may be called again, although it has no price to accept."""
    ledger.stop("id-search", "search", "by hand")
    assert catalog("accept", "search") == "search may be called again.\n"
    assert ledger.stopped("id-search") is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["spend", "--since", "yesterday"], "--since takes 12h, 7d, 4w or a date"),
        (["spend", "--per-day", "lots"], "--per-day: an amount must be a number"),
        (["spend", "--total", "-1"], "--total: an amount must not be negative"),
        (["spend", "--ledger", "none.db"], "there is no ledger at none.db"),
        (["reconcile", "--charged"], "name the call"),
        (["reconcile", "abc"], "--charged or --not-charged"),
        (["reconcile", "abc", "--not-charged", "--amount", "1"], "--amount only applies with --charged"),
        (["reconcile", "abc", "--charged", "--amount", "x"], "--amount: an amount must be"),
        (["reconcile", "abc", "--charged"], "there is no call abc"),
        (["reconcile", "--all-not-charged", "--not-charged"], "--all-not-charged applies to all calls"),
        (
            ["accept", "nope"],
            "the ledger has no stopped tool and no price called nope; waiting to be accepted: draw",
        ),
    ],
)
def test_wrong_use_is_one_line(ledger, arguments, said):
    """Exit 2, and what to do instead."""
    ledger.stop("id-draw", "draw", "by hand")
    assert said in catalog(*arguments, code=2)


def test_a_call_that_is_not_unknown_is_not_reconciled(ledger):
    """Nor an id that matches several calls."""
    done = paid(ledger)
    assert f"call {done} is settled, not unknown" in catalog("reconcile", done, "--charged", code=2)
    for _ in range(2):
        ledger.unknown(sent(ledger), "lost")
    assert "2 calls begin with" in catalog("reconcile", "", "--charged", code=2)


@pytest.mark.parametrize("arguments", [["reconcile", "abc", "--charged"], ["accept", "search"]])
def test_without_a_ledger_nothing_can_be_recorded(path, arguments):
    """Exit code 2, and no ledger is created."""
    assert "there is no ledger at" in catalog(*arguments, code=2)
    assert not path.exists()


def test_a_damaged_ledger_is_a_one_line_error(path):
    """Exit code 1: the command was used correctly."""
    path.write_text("no database, but long enough to look at" * 30)
    assert "is damaged, or is not a toolwire ledger" in catalog("spend", code=1)


@pytest.mark.parametrize("command", ["spend", "reconcile", "accept"])
def test_help_has_examples(command):
    """Each command shows how it is used."""
    assert f"toolwire catalog {command}" in catalog(command, "--help")


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal")
@pytest.mark.parametrize(
    ("width", "bar", "env"), [(60, 36, {}), (200, 40, {}), (60, 36, {"NO_COLOR": "1"}), (28, 0, {})]
)
def test_bars_fit_the_terminal(ledger, tmp_path, width, bar, env):
    """Bars are as wide as there is room, and left out where there is too little; NO_COLOR turns the colour off."""
    paid(ledger)
    paid(ledger, "draw", 5_000)
    argv = [sys.executable, "-c", MAIN, "spend", "--ledger", "ledger.db", "--by", "tool"]
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **env}
    with Terminal(argv, cwd=tmp_path, env=env, size=(width, 24)) as terminal:
        assert terminal.wait() == 0
        (row,) = lines(terminal.screen(), "search")
        assert row == ["search", "1", "$0.0100", *(["█" * bar] if bar else [])]
        assert ("\x1b[36m" in terminal.raw) == (bar > 0 and "NO_COLOR" not in env)


def test_an_old_encoding_gets_plain_bars(ledger, tmp_path):
    """With an encoding that lacks block characters, bars are made of number signs."""
    paid(ledger)
    done = CliRunner(charset="ascii").invoke(catalog_app, ["spend", "--by", "tool"])
    assert done.exit_code == 0, done.exception
    assert "#" * 30 in done.stdout
