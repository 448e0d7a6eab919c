"""`toolwire batch`, from the file with the tasks to the exported results."""

import csv
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

from shared.servers import free_port

pytestmark = [pytest.mark.process, pytest.mark.slow]
FILE = """
import re
from pydantic import BaseModel
from toolwire import ClaudeAgentOptions
from toolwire.batch import Batch, Run
from toolwire.testing import ScriptedCLI, answer, exit_early, fail, turn

class Verdict(BaseModel):
    name: str

class Repo(BaseModel):
    name: str

def play(request):
    name = re.search("Review ([a-z]+)", request.prompt)[1]
    if name == "bad":
        return fail(400)
    if name == "gone":
        return exit_early(3)
    return turn(answer({"name": name}), delay={"slow": 30, "short": 8}.get(name, 0))

review = Batch("review", ClaudeAgentOptions(spawn_claude_code_process=ScriptedCLI([play] * 99)), Verdict,
               concurrency=2, budget="1", per_run="0.01")

@review.task
def prepare(repo: Repo) -> Run:
    return Run(f"Review {repo.name}")
"""


@pytest.fixture
def shell(tmp_path):
    """Return a function that runs `toolwire batch` beside `review.py` and returns exit code, stdout and stderr."""
    (tmp_path / "review.py").write_text(FILE)
    env = {**os.environ, "TOOLWIRE_BATCHES": str(tmp_path / "state"), "NO_COLOR": "1"}

    def start(*words, stdout=subprocess.PIPE):
        return subprocess.Popen(
            [sys.executable, "-m", "toolwire", "batch", *words],
            cwd=tmp_path, env=env, text=True, stdout=stdout, stderr=subprocess.PIPE,
            preexec_fn=accept_signals,  # noqa: PLW1509 - before any thread of the child
        )  # fmt: skip

    def run(*words):
        process = start(*words)
        out, err = process.communicate(timeout=90)
        return process.returncode, out, err

    run.start = start
    return run


def accept_signals():
    """Undo what the child may have inherited: the tests may run in the background, or under nohup."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def write_tasks(tmp_path, *names):
    (tmp_path / "tasks.jsonl").write_text(
        "".join(f'{{"key": "{each}", "name": "{each}"}}\n' for each in names)
    )


def test_a_batch_from_file_to_export(shell, tmp_path):
    """`run`, `show`, `export`, `retry` and `cancel` work together; `run` exits with 3 if a run failed."""
    write_tasks(tmp_path, "api", "web", "bad")
    code, out, err = shell("run", "review.py", "tasks.jsonl")
    assert code == 3, err
    assert "3 new, 3 in all" in err
    assert out.splitlines()[-1] == "review: 2 done, 1 failed; $0.00028 spent of $1"
    assert sorted(line.split()[0] for line in out.splitlines()[:3]) == ["done", "done", "failed"]

    code, out, _ = shell("run", "review.py", "tasks.jsonl", "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 3
    assert {each["key"]: each["state"] for each in lines[:-1]} == {
        "api": "done",
        "web": "done",
        "bad": "failed",
    }
    assert lines[-1]["progress"]["spent"] == "0.00028"

    assert shell("show")[1].split() == ["batch", "review"]
    told = json.loads(shell("show", "review", "--json")[1])
    assert (told["done"], told["failures"][0]["key"]) == (2, "bad")
    assert "failed   bad: API Error: 400" in shell("show", "review")[1]

    assert shell("export", "review", "out.csv")[0] == 0
    rows = {row["key"]: row for row in csv.DictReader((tmp_path / "out.csv").read_text().splitlines())}
    assert json.loads(rows["api"]["output"]) == {"name": "api"}
    assert (rows["api"]["cost"], rows["bad"]["state"]) == ("0.00014", "failed")
    exported = [json.loads(line) for line in shell("export", "review", "-")[1].splitlines()]
    assert {each["key"] for each in exported} == {"api", "web", "bad"}

    code, _, err = shell("retry", "review", "--key", "bda")
    assert (code, "has no run 'bda'" in err) == (1, True)
    assert "1 runs are queued again" in shell("retry", "review")[2]
    code, out, _ = shell("cancel", "review", "--json")
    assert (code, json.loads(out)["cancelled"]) == (0, 1)


def test_lone_surrogates_are_exported(shell, tmp_path):
    """A CLI may report such text: it is escaped in JSON, and replaced by a question mark in CSV."""
    write_tasks(tmp_path, "bad")
    assert shell("run", "review.py", "tasks.jsonl")[0] == 3
    with closing(sqlite3.connect(tmp_path / "state" / "review" / "runs.db")) as db, db:
        db.execute("UPDATE toolwire_runs SET result = ?", (json.dumps({"text": "half: \ud83d"}),))
    for name in ("out.jsonl", "out.csv", "-"):
        code, _, err = shell("export", "review", name)
        assert (code, "1 runs written" in err) == (0, True), err
    assert json.loads((tmp_path / "out.jsonl").read_text(encoding="utf-8"))["text"] == "half: \ud83d"
    assert "half: ?" in (tmp_path / "out.csv").read_text(encoding="utf-8")


def test_results_that_cannot_be_written(shell, tmp_path):
    """A missing folder, or a full disk: a line with the reason, and no traceback."""
    write_tasks(tmp_path, "api")
    assert shell("run", "review.py", "tasks.jsonl")[0] == 0
    (tmp_path / "full.csv").symlink_to("/dev/full")
    for name, code, reason in (
        ("none/out.csv", 2, "No such file or directory"),
        ("full.csv", 1, "No space left on device"),
    ):
        assert shell("export", "review", name) == (
            code, "", f"Error: {name}: the results cannot be written: {reason}\n"
        )  # fmt: skip
    with Path("/dev/full").open("wb") as full:
        process = shell.start("run", "review.py", stdout=full)
    _, err = process.communicate(timeout=90)
    assert (process.returncode, err) == (1, "Error: the output cannot be written: No space left on device\n")


def test_unknown_runs_are_reconciled(shell, tmp_path):
    """`run` exits with 4 while a cost is unknown; `reconcile` lists the run and records the cost that is given."""
    write_tasks(tmp_path, "gone")
    assert shell("run", "review.py", "tasks.jsonl")[0] == 4
    _, out, err = shell("reconcile", "review")
    assert "unknown  gone: attempt 1, $0.01 reserved" in out
    assert "toolwire batch reconcile review KEY --cost" in err
    assert shell("reconcile", "review", "gone")[0] == 2
    assert shell("reconcile", "review", "gone", "--cost", "much")[0] == 2
    code, out, err = shell("reconcile", "review", "gone", "--cost", "0.004")
    assert (code, "gone: $0.004 booked" in err) == (0, True)
    assert out.strip() == "review: 1 failed; $0.004 spent of $1"
    assert shell("reconcile", "review", "gone", "--cost", "1")[0] == 1


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["run", "none.py"], 2, "none.py does not exist"),
        (["run", "review"], 2, "name the file with the batch"),
        (["run", "review.py:other"], 2, "has no batch 'other'; it has: review"),
        (["run", "empty.py"], 2, "has no Batch"),
        (["run", "review.py", "none.jsonl"], 2, "does not exist"),
        (
            ["run", "review.py", "--at", "postgresql://nobody@127.0.0.1:1/none"],
            1,
            "retrying: connection failed",
        ),
        (["run", "review.py", "--at", "mysql://x/y"], 1, "give a folder, or postgresql://"),
        (["show", "none"], 1, "there is no batch 'none'"),
        (["retry", "none", "--state", "running"], 2, "only ended runs can be retried"),
        (["export", "review", "x.txt"], 2, "must end in .jsonl or .csv"),
    ],
)
def test_mistakes_are_one_line(shell, tmp_path, words, code, says):
    """The error says what is wrong and what to do, without a traceback."""
    (tmp_path / "empty.py").write_text("x = 1\n")
    found, _, err = shell(*words)
    assert (found, "Traceback" in err) == (code, False), err
    assert says in err


def wait_for(condition, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_workers_drain_on_sigterm_and_serve_metrics(shell, tmp_path):
    """A worker executes runs that another process added, serves their metrics, and exits with 0 on SIGTERM."""
    write_tasks(tmp_path, "api", "web")
    port = free_port()
    worker = shell.start("worker", "review.py", "--metrics", str(port))
    try:
        code, _, err = shell("run", "review.py", "tasks.jsonl", "--no-work")
        assert code == 0, err
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
            assert b'toolwire_batch_runs_total{batch="review",outcome="done"} 2.0' in reply.read()
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
    finally:
        worker.kill()
        worker.communicate()


def test_sigterm_before_the_end_is_not_a_success(shell, tmp_path):
    """The exit code is 5, so that a script that started the batch sees that runs are left."""
    write_tasks(tmp_path, "api", "web")
    process = shell.start("run", "review.py", "tasks.jsonl", "--no-work")
    try:
        assert process.stderr.readline().startswith("2 new, 2 in all")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 5
    finally:
        process.kill()
        out, _ = process.communicate()
    assert "2 waiting" in out


def test_sigterm_finishes_the_current_runs_first(shell, tmp_path):
    """The exit code and the final line are about their end: nothing is left, so that is a success."""
    write_tasks(tmp_path, "short")
    process = shell.start("run", "review.py", "tasks.jsonl")
    try:
        wait_for(lambda: json.loads(shell("show", "review", "--json")[1] or "{}").get("running") == 1)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, out) == (0, "review: 1 done; $0.00014 spent of $1\n"), err


def test_sigterm_while_runs_are_added(shell, tmp_path):
    """The rest is not added: the same command, started again, adds it."""
    write_tasks(tmp_path, *(f"k{number}" for number in range(20_000)))
    process = shell.start("run", "review.py", "tasks.jsonl", "--no-work")
    try:
        wait_for(lambda: json.loads(shell("show", "review", "--json")[1] or "{}").get("waiting"))
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=90)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 5, err
    assert "20000 waiting" not in out


def test_sigterm_ends_a_command_that_carries_out_no_runs(shell):
    """There is nothing to finish first, not even if the database does not respond."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        at = f"postgresql://u@127.0.0.1:{silent.getsockname()[1]}/db"
        process = shell.start("show", "review", "--at", at)
        try:
            connection, _ = silent.accept()
            with connection:
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=90)
        finally:
            process.kill()
            process.communicate()
    assert process.returncode == -signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_ctrl_c_and_a_closed_terminal_stop_the_runs(shell, tmp_path, number):
    """Exit code 130; the run reports its cost, and counts as failed."""
    write_tasks(tmp_path, "slow")
    process = shell.start("run", "review.py", "tasks.jsonl")
    try:
        wait_for(lambda: Path(tmp_path / "state" / "review" / "runs.db").exists())
        wait_for(lambda: json.loads(shell("show", "review", "--json")[1] or "{}").get("running") == 1)
        process.send_signal(number)
        assert process.wait(30) == 130
    finally:
        process.kill()
        process.communicate()
    told = json.loads(shell("show", "review", "--json")[1])
    assert (told["failed"], told["reserved"], told["running"]) == (1, "0", 0)


def test_ctrl_c_while_the_database_is_unreachable(shell, tmp_path, postgres_server):
    """It ends soon, although a database is usually retried for minutes. The next run books the outbox."""
    at = postgres_server.create_database()
    write_tasks(tmp_path, "slow")
    process = shell.start("run", "review.py", "tasks.jsonl", "--at", at)
    try:
        wait_for(lambda: "1 running" in shell("show", "review", "--at", at)[1])
        postgres_server.kill()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=90)
    finally:
        process.kill()
        process.communicate()
        postgres_server.start()
    assert process.returncode == 130, err
    assert len([*(tmp_path / "state" / "outbox").rglob("*.json")]) == 1
    code, out, err = shell("run", "review.py", "tasks.jsonl", "--at", at)
    assert code == 3, err
    assert "1 failed" in out
    assert [*(tmp_path / "state" / "outbox").rglob("*.json")] == []
