"""`toolwire sessions`: past conversations on disk and in a store, from the command line."""

import errno
import json
import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shared.programs import run_python
from shared.terminal import Terminal
from shared.transcripts import SESSION, Writer, harbour, text
from toolwire import sessions as library
from toolwire.cli.sessions import sessions_app
from toolwire.cli.sessions_place import StorePlace

OTHER = "6f1c9999-0000-4000-8000-000000000002"
MAIN = [sys.executable, "-c", "from toolwire.cli.sessions import sessions_app; sessions_app()"]


@pytest.fixture(autouse=True)
def config(tmp_path, monkeypatch):
    """Create a CLI's folder with two sessions, and make an empty folder the working directory."""
    config = tmp_path / "config"
    harbour(config)
    writer = Writer(OTHER)
    writer.number = 500
    writer.respond(
        writer.ask(None, "Name a colour"), text("Blue."), usage={"input_tokens": 7, "output_tokens": 3}
    )
    usage = {"claude-opus-5-5": {"inputTokens": 7, "outputTokens": 3, "costUSD": 0.5}}
    writer.note(type="cost-state", totalCostUSD=0.5, modelUsage=usage)
    writer.write(config, "-elsewhere")
    os.utime(config / "projects" / "-elsewhere" / f"{OTHER}.jsonl", (1e9, 1e9))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(config))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.chdir(tmp_path)
    return config


def run(*words, code=0, given=None):
    """Run a command in this process; return its stdout, or stderr if exit code 2 is expected."""
    done = CliRunner().invoke(sessions_app, list(map(str, words)), input=given)
    assert done.exit_code == code, (done.stdout, done.stderr, done.exception)
    if code == 2:
        assert done.stdout == ""
        assert done.stderr.startswith(("Error: ", "Usage: "))
        return done.stderr
    return done.stdout


@pytest.fixture(params=["disk", "sqlite"])
def place(request, tmp_path):
    """Return the options for a place that has the same sessions: the disk, or a store."""
    if request.param == "disk":
        return []
    run("import", "--all", "--store", f"sqlite:{tmp_path / 's.db'}")
    return ["--store", f"sqlite:{tmp_path / 's.db'}"]


def test_list_shows_sessions_newest_first(place):
    """Each is a row, with its whole id in a pipe; --json has every field."""
    lines = run("list", "--all", *place).splitlines()
    assert lines[0].split() == ["Session", "Last", "written", "(UTC)", "Tag", "Directory", "Title"]
    assert {line.split()[0] for line in lines[1:]} == {SESSION, OTHER}
    rows = json.loads(run("list", "--all", "--json", *place))
    [row] = [row for row in rows if row["session_id"] == SESSION]
    assert (row["summary"], row["tag"], row["git_branch"]) == ("Harbour festival", "travel", "quay")
    assert [
        row["session_id"] for row in json.loads(run("list", "--all", "--tag", "travel", "--json", *place))
    ] == [SESSION]
    assert json.loads(run("list", "--all", "--json", "-n", 1, "--offset", 1, *place)) == rows[1:]


def test_list_shows_the_current_directory(tmp_path):
    """Sessions of other directories need a directory or --all; for an empty list, stderr says where it looked."""
    done = CliRunner().invoke(sessions_app, ["list"])
    assert (done.exit_code, done.stdout) == (0, "")
    assert f"No sessions of {tmp_path} in" in done.stderr
    assert "--all" in done.stderr
    assert SESSION in run("list", "/work")
    assert OTHER not in run("list", "/work")
    assert json.loads(run("list", "--json")) == []
    assert "exclude each other" in run("list", "/work", "--all", code=2)


def test_show_prints_the_conversation(place):
    """A call is one line, with the beginning of its result; --full adds thinking and subagents."""
    shown = run("show", SESSION[:6], *place)
    assert shown.startswith(f"Harbour festival\nSession: {SESSION}\n")
    for part in (
        "User 2026",
        "I will look at the **numbers**.",
        "→ Bash cat visitors.csv\n  Lisbon 120000",
        "→ Agent",
    ):
        assert part in shown
    assert "First the numbers." not in shown
    full = run("show", SESSION, "--full", *place)
    assert "First the numbers." in full
    assert "  Subagent scout compare\n" in full
    assert "    Faro is small." in full
    assert "Where could" not in run("show", SESSION, "-n", 1, *place)


def test_show_json_streams_the_messages(place):
    """The object has the session's metadata and the messages of `get_session_messages`."""
    found = json.loads(run("show", SESSION, "--json", *place))
    there = library.get_session_messages(SESSION, whole_history=True)
    assert found["messages"] == [vars(message) for message in there]
    assert found["summary"] == "Harbour festival"
    last = json.loads(run("show", SESSION, "--json", "--limit", 2, *place))
    assert last["messages"] == found["messages"][-2:]


def test_search_finds_messages(place):
    """The words are marked in the text; the exit code is 1 if nothing is found."""
    shown = run("search", "--all", "harbour", *place)
    assert shown.startswith(f"{SESSION}  -work\n")
    assert "**harbour**" in shown
    assert "subagent: Faro is **small**." in run("search", "-a", "small", *place)
    assert json.loads(run("search", "-a", "--json", "zebra", *place, code=1)) == []
    assert json.loads(run("search", "-a", "--json", "120000", "--output", *place))[0]["session_id"] == SESSION
    assert run("search", "harbour", *place, code=1) == ""  # not in this directory
    assert SESSION in run("search", "-C", "/work", "harbour", *place)


def test_search_has_filters_on_disk(tmp_path):
    """With a store, these filters are errors."""
    assert SESSION in run(
        "search", "-a", "harbour", "--tag", "travel", "--since", "2025-01-01", "--branch", "quay"
    )
    assert run("search", "-a", "harbour", "--tag", "other", code=1) == ""
    store = f"sqlite:{tmp_path / 's.db'}"
    run("import", "--all", "--store", store)
    error = run("search", "-a", "x", "--tool", "Bash", "--since", "7d", "--store", store, code=2)
    assert "--since, --tool: only a search on disk has this filter" in error
    assert "--since takes 12h, 7d, 4w or a date" in run("search", "x", "--since", "soon", code=2)


@pytest.mark.parametrize(
    ("format", "name", "begins"),
    [("markdown", "x.md", b"# Harbour"), ("html", "x.html", b"<!doctype html>"), ("jsonl", "x.jsonl", b"{")],
)
def test_export_writes_to_stdout_or_a_file(place, tmp_path, format, name, begins):
    """Both get the same bytes; an existing file is only replaced with --force."""
    done = CliRunner().invoke(sessions_app, ["export", SESSION, "-f", format, *place])
    assert done.exit_code == 0
    assert done.stdout_bytes.startswith(begins)
    target = tmp_path / name
    assert f"Wrote {target} (" in run("export", SESSION, "-o", target, *place)
    assert target.read_bytes() == done.stdout_bytes
    assert "--force replaces it" in run("export", SESSION, "-o", target, *place, code=2)
    run("export", SESSION, "-o", target, "--force", *place)


def test_export_into_a_folder_has_the_subagents(place, tmp_path):
    """They are in files of their own; an export into one file notes that they are missing."""
    folder = tmp_path / "backup"
    folder.mkdir()
    run("export", SESSION, "-o", folder, *place)
    assert (folder / SESSION / "subagents" / "agent-a1.jsonl").exists()
    done = CliRunner().invoke(sessions_app, ["export", SESSION, "-o", str(tmp_path / "x.jsonl"), *place])
    assert "The file does not include 1 subagent: export to a folder" in done.stderr


def test_cost_of_one_session(place):
    """The dollars that the CLI recorded, or tokens if it recorded none."""
    assert run("cost", OTHER, *place).startswith("$0.50 in 1 session, 10 tokens\n")
    assert "the CLI has recorded no cost" in run("cost", SESSION, *place)
    found = json.loads(run("cost", OTHER, "--json", *place))
    assert (found["cost_usd"], found["input_tokens"], found["is_estimate"]) == (0.5, 7, False)
    assert "--by, --plot cannot be used with the cost of a single session" in run(
        "cost", OTHER, "--by", "day", "--plot", "x.svg", *place, code=2
    )


def test_cost_of_all_sessions(place, tmp_path):
    """It is grouped by day and model, or by --by; JSON has all groups, and --plot draws a chart."""
    shown = run("cost", "--all", *place)
    assert shown.startswith("$0.50 in 2 sessions, 4,490 tokens\nSome of it was not recorded by the CLI")
    assert re.search(r"^claude-opus-5-5 +2 +307 +3000 +63 +\$0\.50\+ +█+$", shown, re.MULTILINE)
    assert re.search(r"^2026-01-02 ", shown, re.MULTILINE)
    assert re.search(r"^travel +1 ", run("cost", "--all", "--by", "tag", *place), re.MULTILINE)
    found = json.loads(run("cost", "--all", "--json", *place))
    assert set(found["by"]) == {"session", "day", "project", "model", "tag"}
    assert found["cost_usd"] == 0.5
    run("cost", "--all", "--by", "session", "--plot", tmp_path / "x.svg", *place)
    picture = (tmp_path / "x.svg").read_text()
    assert picture.count('class="bar"') == 2
    assert "<script" not in picture
    assert "No costs were recorded." in run("cost", "--all", "--since", "2030-01-01", *place)


def test_rename_tag_fork_delete(place):
    """Each command reports what it did, and the list shows it."""
    assert SESSION in run("rename", SESSION[:6], "New name", *place)
    assert SESSION in run("tag", SESSION[:6], "work", *place)
    copy = run("fork", SESSION[:6], "--title", "Second", *place).strip()
    rows = {row["session_id"]: row for row in json.loads(run("list", "--all", "--json", *place))}
    assert (rows[SESSION]["summary"], rows[SESSION]["tag"]) == ("New name", "work")
    assert rows[copy]["summary"] == "Second"
    assert json.loads(run("tag", SESSION, "--json", *place)) == {"session_id": SESSION, "tag": None}
    assert "use --yes" in run("delete", copy, *place, code=2)
    assert run("delete", copy, "--yes", *place) == f"Deleted {copy}.\n"
    rows = {row["session_id"]: row for row in json.loads(run("list", "--all", "--json", *place))}
    assert set(rows) == {SESSION, OTHER}
    assert rows[SESSION]["tag"] is None
    assert "title must be non-empty" in run("rename", SESSION, " ", *place, code=2)
    assert "not found in session" in run("fork", SESSION, "--up-to", str(uuid.uuid4()), *place, code=2)


def test_the_beginning_of_an_id_must_match_one_session(place):
    """Otherwise the candidates are listed; text that cannot begin an id is refused as such."""
    error = run("show", "6f1c", *place, code=2)
    assert f"2 sessions begin with 6f1c; give more of the id:\n  {SESSION}\n  {OTHER}\n" in error
    assert "no session begins with ffff in" in run("show", "ffff", *place, code=2)
    for odd in ("--x", "../../etc/passwd", "x" * 50, "\x1b[31m", ""):
        assert "is not the id of a session" in run("show", *place, "--", odd, code=2)
    assert "No such option: --x" in run("show", "--x", code=2)
    assert SESSION in run("show", SESSION.upper(), *place)


def test_import_adds_missing_entries(tmp_path):
    """The import can be repeated; it takes one session by its id, or all of a directory."""
    store = f"sqlite:{tmp_path / 's.db'}"
    assert run("import", "--store", store).startswith("Imported 0 sessions into the store")
    assert run("import", "--store", store, SESSION[:6]).startswith("Imported 1 session into")
    before = run("show", SESSION, "--json", "--store", store)
    assert json.loads(run("import", "--store", store, "--all", "--json"))["imported"] == [SESSION, OTHER]
    assert (
        json.loads(run("show", SESSION, "--json", "--store", store))["messages"]
        == json.loads(before)["messages"]
    )


def test_prune_only_shows_unless_yes(tmp_path, config):
    """It lists what would be deleted; --yes deletes the sessions, after exporting them if requested."""
    done = CliRunner().invoke(sessions_app, ["prune", "--all", "--older-than", "30d"])
    assert OTHER in done.stdout
    assert SESSION not in done.stdout
    assert "Would delete 1 session," in done.stderr
    assert "--yes deletes them" in done.stderr
    run("prune", "--all", "--older-than", "30d", "--export-to", tmp_path / "old", "--yes")
    assert not list(config.rglob(f"{OTHER}.jsonl"))
    assert list((tmp_path / "old").rglob(f"{OTHER}.jsonl"))
    assert json.loads(run("prune", "-a", "--max-size", "1G", "--json")) == {"dry_run": True, "sessions": []}
    assert "choose what to delete" in run("prune", code=2)
    assert "--max-size takes a size" in run("prune", "--max-size", "big", code=2)
    assert "--older-than takes 12h, 30d or 8w" in run("prune", "--older-than", "-3", code=2)


def test_doctor_reports_what_is_wrong(config):
    """A torn line is reported with its file, and exit code 1; without problems the report is OK."""
    for path in config.rglob("*.jsonl"):
        path.chmod(0o600)
    assert run("doctor").startswith("OK: nothing wrong")
    [path] = config.rglob(f"{SESSION}.jsonl")
    with path.open("ab") as file:
        file.write(b'{"torn')
    shown = run("doctor", code=1)
    assert shown.startswith(f"torn line  {path}\n")
    assert json.loads(run("doctor", "--json", code=1))["problems"][0]["kind"] == "torn_line"


def test_unusable_stores_are_errors(tmp_path):
    """The error has no password in it, and no file is created."""
    store = tmp_path / "none.db"
    assert f"there is no session store at {store}" in run("list", "--store", f"sqlite:{store}", code=2)
    assert not store.exists()
    error = run("list", "--store", "mysql://user:secret@host/x", code=2)
    assert "--store takes sqlite:FILE, postgresql://... or redis://..., not mysql:..." in error
    assert "secret" not in error
    store.write_text("This is not a database, but a text that is long enough to be looked at." * 20)
    done = CliRunner().invoke(sessions_app, ["list", "--store", f"sqlite:{store}"])
    assert done.exit_code == 1
    assert "file is not a database" in done.stderr
    assert "there is no folder" in run("list", "--config-dir", tmp_path / "nowhere", code=2)


HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202e[red]x[/red]\r\n\x9b31m line two \ud800"


def test_hostile_text_cannot_act_on_the_terminal(config, place):
    """Titles, tags, names and results have no escape sequences or direction marks; markup is shown as text."""
    writer = Writer(str(uuid.UUID(int=7)))
    at = writer.ask(None, HOSTILE, cwd=HOSTILE)
    writer.lines[0]["cwd"] = HOSTILE
    block = {"type": "tool_use", "id": "t", "name": HOSTILE, "input": {HOSTILE: HOSTILE, "command": HOSTILE}}
    [_, at] = writer.respond(at, text(HOSTILE), block, model=HOSTILE, usage={"input_tokens": 5})
    writer.give(at, "t", HOSTILE, is_error=True)
    writer.note(type="custom-title", customTitle=HOSTILE)
    writer.note(type="tag", tag=HOSTILE)
    writer.write(config, "-hostile")
    if place:
        run("import", "--all", *place)
    commands = (["list"], ["cost"], ["cost", "--by", "tag"], ["cost", "--by", "session"], ["search", "line"])
    for words in commands:
        shown = run(*words, "--all", *place)
        assert not set(shown) & set("\x1b\x07\x9b\u202e\r"), words
        assert "[red]x[/red]" in shown or words[0] == "cost"
    for words in (["show"], ["show", "--full"], ["show", "--json"], ["export"], ["export", "-f", "html"]):
        shown = run(words[0], str(uuid.UUID(int=7)), *words[1:], *place)
        assert not set(shown) & set("\x1b\x07\x9b\u202e\r"), words
    done = CliRunner().invoke(sessions_app, ["prune", "--all", "--keep", "0"])
    assert not set(done.stdout) & set("\x1b\x07\x9b\u202e\r")


def test_a_session_without_messages(config):
    """It may have only state entries, or nothing readable: all that can be shown is shown."""
    for number, content in enumerate([b'{"type":"mode"}\n', b"\xff\n[]\n{\n", b"x" * 100]):
        name = str(uuid.UUID(int=number + 50))
        (config / "projects" / "-work" / f"{name}.jsonl").write_bytes(content)
        assert f"Session {name}" in run("show", name)
        assert json.loads(run("show", name, "--json"))["messages"] == []
        run("export", name)
        assert json.loads(run("cost", name, "--json"))["cost_usd"] is None


def environment(config):
    """Return an environment for a subprocess that uses these sessions."""
    return {
        "PATH": os.environ["PATH"],
        "CLAUDE_CONFIG_DIR": str(config),
        "HOME": str(config.parent),
        "XDG_CACHE_HOME": str(config.parent / "cache"),
    }


@pytest.mark.process
def test_listing_loads_neither_mcp_nor_an_event_loop(config):
    """The command would otherwise start slowly."""
    code = (
        "import sys; from toolwire.cli.sessions import sessions_app\n"
        "try: sessions_app(['list', '--all'])\n"
        "except SystemExit as done: assert not done.code\n"
        "print(sorted({'mcp', 'anyio', 'asyncio', 'httpx2', 'markdown_it'} & set(sys.modules)))"
    )
    done = run_python("-c", code, env=environment(config))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.process
def test_a_reader_that_leaves_early_gets_no_traceback(config):
    """All commands with long output can be piped into `head -1`."""
    writer = Writer(str(uuid.UUID(int=9)))
    at = None
    for number in range(300):
        at = writer.ask(at, f"prompt {number} " + "x" * 2000)
    writer.write(config)
    for words in (
        ["show"],
        ["show", "--json"],
        ["export"],
        ["export", "-f", "html"],
        ["export", "-f", "jsonl"],
    ):
        command = [*MAIN, words[0], str(uuid.UUID(int=9)), *words[1:]]
        process = subprocess.Popen(
            command, env=environment(config), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        process.stdout.readline()
        process.stdout.close()
        _, error = process.communicate(timeout=60)
        assert error == "", words
        assert process.returncode in {0, 1}


@pytest.mark.process
def test_delete_asks_on_a_terminal(config):
    """Only the answer y deletes. Ids are short, titles fit the width, and colours can be turned off."""
    with Terminal([*MAIN, "list", "--all"], config, environment(config), size=(60, 24)) as terminal:
        assert terminal.wait() == 0
        lines = terminal.screen().splitlines()
        assert any(line.startswith("6f1c2d3e ") for line in lines)
        assert max(map(len, lines)) <= 60
        assert "\x1b[" in terminal.raw
    quiet = {**environment(config), "NO_COLOR": "1"}
    with Terminal([*MAIN, "show", SESSION], config, quiet) as terminal:
        assert terminal.wait() == 0
        assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", terminal.raw)
    for answer, left in (("n", True), ("y", False)):
        with Terminal([*MAIN, "delete", OTHER], config, environment(config)) as terminal:
            terminal.expect("Name a colour")
            terminal.expect("Delete 1 session? [y/N]")
            terminal.send(f"{answer}\n")
            assert terminal.wait() == (1 if left else 0)
        assert bool(list(config.rglob(f"{OTHER}.jsonl"))) == left


SLOW = """
import time
from toolwire.cli.sessions import sessions_app
from toolwire.sessions import cost

def slow(*_, on_progress, **__):
    for number in range(10_000):
        on_progress(number, 10_000)
        time.sleep(0.01)

cost.cost_report = slow
sessions_app()
"""


@pytest.mark.process
def test_ctrl_c_ends_long_work_without_a_traceback(config):
    """The progress bar is removed, and the exit code is 130."""
    with Terminal([sys.executable, "-c", SLOW, "cost"], config, environment(config)) as terminal:
        terminal.expect("Reading transcripts", timeout=60)
        terminal.send("\x03")
        assert terminal.wait() == 130
        assert "Traceback" not in terminal.screen()
        assert terminal.raw.count("\x1b[?25l") == terminal.raw.count("\x1b[?25h")  # the cursor is back


def test_a_session_that_cannot_be_written(config, monkeypatch):
    """The error names the file, and there is no traceback."""
    [path] = config.rglob(f"{SESSION}.jsonl")

    def refuse(*_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr("toolwire.sessions.transcript.append_entries", refuse)
    done = CliRunner().invoke(sessions_app, ["rename", SESSION, "x"])
    assert done.exit_code == 1
    assert f"{path}: Permission denied" in done.stderr.replace("\n", "")


def test_a_file_that_cannot_be_written_is_an_error(tmp_path):
    """This holds for an export and for a plot."""
    (tmp_path / "file").write_text("")
    for words in (["export", SESSION, "-o"], ["cost", "--all", "--plot"]):
        done = CliRunner().invoke(sessions_app, [*words, str(tmp_path / "file" / "x.md")])
        assert done.exit_code in {1, 2}
        assert done.stderr.startswith("Error: ")
        assert "Traceback" not in done.stderr
    assert Path(tmp_path / "file").read_text() == ""


def test_a_folder_that_ends_with_a_slash_is_created(tmp_path):
    """An export into a folder is JSONL by default."""
    run("export", SESSION, "-o", f"{tmp_path}/new/er/")
    assert (tmp_path / "new" / "er" / f"{SESSION}.jsonl").exists()
    error = run("export", SESSION, "-o", tmp_path / "nothing", code=2)
    assert "use the suffix .md, .html or .jsonl" in error


def test_an_unreadable_session_does_not_prevent_the_import_of_others(tmp_path, config, monkeypatch):
    """A session that cannot be imported is named, and the exit code is 1."""
    add = StorePlace.add

    def add_readable(place, session, scope):
        if session == OTHER:
            raise OSError(errno.EIO, "Input/output error")
        add(place, session, scope)

    monkeypatch.setattr(StorePlace, "add", add_readable)
    done = CliRunner().invoke(
        sessions_app, ["import", "--all", "--json", "--store", f"sqlite:{tmp_path / 's.db'}"]
    )
    found = json.loads(done.stdout)
    assert (found["imported"], list(found["failed"]), done.exit_code) == ([SESSION], [OTHER], 1)


@pytest.mark.process
def test_words_that_stdout_cannot_encode_are_replaced(config):
    """With a terminal of an old encoding, the rest is shown."""
    environ = {**environment(config), "PYTHONIOENCODING": "latin-1"}
    for words in (["show", SESSION], ["search", "--all", "Harbour"], ["cost", "--all"], ["list", "--all"]):
        done = subprocess.run([*MAIN, *words], env=environ, capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert "→" not in done.stdout.decode("latin-1")
        assert b"arbour" in done.stdout or words[0] == "cost"
