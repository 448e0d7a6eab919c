"""`toolwire sessions` with stores on real servers, and with servers that are down."""

import json

import pytest
from typer.testing import CliRunner

from shared.transcripts import SESSION, harbour
from toolwire.cli.sessions import sessions_app

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def config(tmp_path, monkeypatch):
    """Create a CLI's folder with a session."""
    harbour(tmp_path / "config")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))


@pytest.fixture(params=["postgres", "redis"])
def url(request):
    """Return the URL of a real server."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return request.getfixturevalue("redis_server").url


def run(*words, code=0):
    """Run a command and return its stdout, or stderr if it must fail."""
    done = CliRunner().invoke(sessions_app, list(words))
    assert done.exit_code == code, (done.stdout, done.stderr, done.exception)
    return done.stderr if code else done.stdout


def test_every_command_works_with_a_server(url):
    """All commands work; only search needs a store that supports it."""
    store = ["--store", url]
    run("import", "--all", *store)
    run("rename", SESSION[:5], "New name", *store)
    run("tag", SESSION[:5], "work", *store)
    copy = run("fork", SESSION, *store).strip()
    rows = {row["session_id"]: row for row in json.loads(run("list", "--all", "--json", *store))}
    assert set(rows) == {SESSION, copy}
    assert (rows[SESSION]["summary"], rows[SESSION]["tag"]) == ("New name", "work")
    run("delete", copy, "--yes", *store)
    assert len(json.loads(run("list", "--all", "--json", *store))) == 1
    assert "    Faro is small." in run("show", SESSION, "--full", *store)
    assert "4,480 tokens" in run("cost", "--all", *store)
    assert "Faro is small." in run("export", SESSION, "-f", "html", *store)
    if url.startswith("redis"):
        assert "no full-text search" in run("search", "--all", "harbour", *store, code=1)
    else:
        assert "**harbour**" in run("search", "--all", "harbour", *store)


@pytest.mark.parametrize("url", ["postgresql://me:geheim@127.0.0.1:9/x", "redis://:geheim@127.0.0.1:9/0"])
def test_a_server_that_is_down_is_an_error_without_its_password(url):
    """One line, exit code 1."""
    for words in (["list", "--all"], ["show", "6f1"], ["cost", "--all"], ["import", "--all"]):
        error = run(*words, "--store", url, code=1)
        assert error.startswith("Error: ")
        assert "refused" in error
        assert "geheim" not in error
        assert "Traceback" not in error
