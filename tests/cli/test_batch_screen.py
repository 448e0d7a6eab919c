"""How the progress of a batch is shown to users and reported to scripts."""

import io
import json
from decimal import Decimal

import pytest
from rich.console import Console

from toolwire.batch.states import Done, Progress
from toolwire.cli.batch_screen import Rate, Screen, describe

PROGRESS = Progress(
    waiting=5,
    running=2,
    done=3,
    failed=1,
    spent=Decimal("1.5"),
    reserved=Decimal(4),
    budget=Decimal(10),
    workers=2,
)


def result(**given):
    values = {"key": "k\x1b[31m", "state": "failed", "output": None, "text": "", "cost": Decimal("0.1")}
    return Done(**{**values, "error": "no\nway", "attempts": 1, "session_id": "s", "usage": None, **given})


def test_progress_in_one_line():
    """It has only the states that occur, and the cost against the budget."""
    assert describe("b", PROGRESS) == (
        "b: 3 done, 1 failed, 2 running, 5 waiting; $1.5 spent of $10, $4 reserved"
    )
    assert describe("b", Progress()) == "b: no runs; $0 spent"


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize(
    ("left", "says"), [(0, "0 s"), (60, "30 s"), (600, "5 min 0 s"), (10_000, "1 h 23 min")]
)
def test_the_time_left_is_estimated_from_the_last_minute(left, says):
    """Runs that ended earlier do not count."""
    clock = Clock()
    rate = Rate(clock)
    assert rate.left(5) == "?"
    rate.record(0)
    clock.now = 1000.0
    rate.record(0)
    clock.now = 1050.0
    rate.record(100)
    assert rate.per_second == 2.0
    assert rate.left(left) == says


def test_without_a_terminal_each_result_is_a_line(capsys):
    """Control characters in keys and errors are removed."""
    screen = Screen("b", json=False)
    screen.result(result(), PROGRESS)
    screen.end(PROGRESS)
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "failed    k  $0.1  no way  [1/11]"
    assert out[1].startswith("b: 3 done")


def test_an_error_of_several_lines_is_shown_on_one(capsys):
    """The reason is often in the last line, which the CLI wrote to stderr. Very long errors are cut."""
    screen = Screen("b", json=False)
    screen.result(result(error="Claude Code failed (exit code: 1)\nError output: no such model"), PROGRESS)
    screen.result(result(error="x" * 1000), PROGRESS)
    first, second = capsys.readouterr().out.splitlines()
    assert "failed (exit code: 1) Error output: no such model" in first
    assert len(second) < 400


def test_for_scripts_each_result_is_json(capsys):
    """The last line is the progress of the whole batch."""
    screen = Screen("b", json=True)
    screen.result(result(), PROGRESS)
    screen.end(PROGRESS)
    first, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["key"], first["cost"]) == ("k\x1b[31m", "0.1")
    assert last["progress"]["done"] == 3


def test_the_screen_shows_all_that_matters():
    """It has a bar, the rate, the time left, the cost, the workers and the last failures."""
    screen = Screen("b", json=True)
    screen._json = False
    screen._failures.append("failed  k: no")
    console = Console(file=io.StringIO(), width=120)
    console.print(screen._render(PROGRESS))
    text = console.file.getvalue()
    for part in ("4/11", "/min", "left: ?", "$1.5 of $10 spent, $4 reserved", "2 workers", "failed  k: no"):
        assert part in text
    console.print(screen._render(Progress(waiting=1)))
    assert "no worker: start one" in console.file.getvalue()
