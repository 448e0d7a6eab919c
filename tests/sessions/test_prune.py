"""Deleting old sessions: only those that exceed a limit and are not in use, and each deletion is logged."""

import json
import logging
import os
import subprocess
import sys
import time
import uuid
from datetime import timedelta

import pytest

from shared.transcripts import Writer
from toolwire import sessions
from toolwire.sessions import paths, prune

DAY = 86_400


@pytest.fixture
def config(tmp_path):
    """Create five sessions of about the same size, one to five days old; the fourth is tagged."""
    config = tmp_path / "config"
    for number in range(1, 6):
        writer = Writer(str(uuid.UUID(int=number)))
        writer.ask(None, f"prompt {number}")
        if number == 4:
            writer.note(type="tag", tag="keep")
        path = writer.write(config)
        when = time.time() - number * DAY
        os.utime(path, (when, when))
    return config


def pruned(config, **limits):
    """Return the numbers of the sessions that are, or would be, deleted."""
    return [uuid.UUID(each.session_id).int for each in sessions.prune_sessions(config_dir=config, **limits)]


def left(config):
    """Return the numbers of the sessions that still exist."""
    return sorted(uuid.UUID(row.session_id).int for row in sessions.list_sessions(config_dir=config))


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"older_than": timedelta(days=2.5)}, [3, 4, 5]),
        ({"older_than": timedelta(days=2.5), "keep_tags": ["keep"]}, [3, 5]),
        ({"older_than": timedelta(days=2.5), "keep_tags": {"keep": 1}.keys()}, [3, 5]),
        ({"keep": 2}, [3, 4, 5]),
        ({"keep": 0}, [1, 2, 3, 4, 5]),
        ({"keep": 9}, []),
        ({"max_bytes": 0}, [1, 2, 3, 4, 5]),
        ({"max_bytes": 1500}, [3, 4, 5]),
        ({"max_bytes": 10**9}, []),
        ({"older_than": timedelta(days=4.5), "keep": 3}, [4, 5]),
        ({"tag": "keep"}, [4]),
        ({"tag": "keep", "older_than": timedelta(days=9)}, []),
        ({"keep": 1, "directory": "/elsewhere"}, []),
        ({"keep": 1, "directory": "/work"}, [2, 3, 4, 5]),
    ],
)
def test_what_exceeds_a_limit_is_found_and_stays(config, limits, expected):
    """By default nothing is deleted."""
    found = sessions.prune_sessions(config_dir=config, **limits)
    assert [uuid.UUID(each.session_id).int for each in found] == expected
    assert left(config) == [1, 2, 3, 4, 5]
    assert not any(each.deleted for each in found)
    assert all(each.reason and each.size for each in found)


def test_each_deletion_is_in_the_log(config, caplog):
    """The log has the reason."""
    with caplog.at_level(logging.INFO):
        found = sessions.prune_sessions(keep=3, config_dir=config, dry_run=False)
    assert [(each.deleted, each.error) for each in found] == [(True, None)] * 2
    assert left(config) == [1, 2, 3]
    for each in found:
        [line] = [line for line in caplog.messages if each.session_id in line]
        assert line.startswith("deleted session")
        assert "not among the newest 3" in line


def test_what_is_deleted_is_gone_from_the_search(config):
    """The session is removed from the index too."""
    assert len(sessions.search_sessions("prompt", config_dir=config)) == 5
    pruned(config, keep=3, dry_run=False)
    assert len(sessions.search_sessions("prompt", config_dir=config)) == 3


def test_everything_of_a_session_is_counted_and_deleted(config):
    """This includes subagents, large results and copies of files."""
    name = str(uuid.UUID(int=5))
    for folder in (config / "projects" / "-work" / name / "subagents", config / "file-history" / name):
        folder.mkdir(parents=True)
        (folder / "x").write_bytes(b"x" * 10_000)
    [found] = sessions.prune_sessions(keep=4, config_dir=config, dry_run=False)
    assert found.size > 20_000
    assert [each for each in config.rglob("*") if name in str(each)] == []


@pytest.mark.process
def test_a_running_session_stays(config):
    """It stays however old it is."""
    name = str(uuid.UUID(int=5))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        (config / "sessions").mkdir()
        (config / "sessions" / f"{process.pid}.json").write_text(json.dumps({"sessionId": name}))
        assert pruned(config, keep=3, dry_run=False) == [4]
        process.communicate(b"\n")
    assert left(config) == [1, 2, 3, 5]


def test_a_session_that_is_written_meanwhile_stays(config, monkeypatch):
    """Here the session is resumed between the search for old sessions and the deletion."""
    find = prune._find_excess

    def resume(*arguments):
        found = find(*arguments)
        sessions.rename_session(str(uuid.UUID(int=5)), "in use", config_dir=config)
        return found

    monkeypatch.setattr(prune, "_find_excess", resume)
    found = sessions.prune_sessions(keep=3, config_dir=config, dry_run=False)
    assert [each.deleted for each in found] == [True, False]
    assert found[1].error == "it was written or deleted meanwhile"
    assert left(config) == [1, 2, 3, 5]


def test_one_that_cannot_be_deleted_stops_no_other(config, monkeypatch):
    """The result has the reason."""
    list_traces = paths.list_traces

    def refuse(file):
        if uuid.UUID(file.session_id).int == 4:
            raise PermissionError(13, "Permission denied", str(file.path))
        return list_traces(file)

    found = sessions.prune_sessions(keep=3, config_dir=config)
    assert len(found) == 2
    monkeypatch.setattr(paths, "list_traces", refuse)
    monkeypatch.setattr(prune, "_measure", lambda file: file.size)
    found = sessions.prune_sessions(keep=3, config_dir=config, dry_run=False)
    assert [each.deleted for each in found] == [False, True]
    assert "Permission denied" in found[0].error


def test_a_session_is_exported_before_it_is_deleted(config, tmp_path):
    """The export includes its subagents, and only the owner can read it."""
    path = config / "projects" / "-work" / f"{uuid.UUID(int=5)}.jsonl"
    below = path.with_suffix("") / "subagents" / "agent-a1.jsonl"
    below.parent.mkdir(parents=True)
    below.write_text("{}\n")
    content = path.read_bytes()
    pruned(config, keep=4, dry_run=False, export_to=tmp_path / "kept")
    copy = tmp_path / "kept" / "-work" / path.name
    assert copy.read_bytes() == content
    assert (copy.stat().st_mode & 0o777) == 0o600
    assert (copy.with_suffix("") / "subagents" / "agent-a1.jsonl").read_text() == "{}\n"
    assert not path.exists()


def test_what_cannot_be_exported_is_not_deleted(config, tmp_path):
    """Otherwise it would be lost."""
    (tmp_path / "kept").write_text("in the way")
    found = sessions.prune_sessions(keep=4, config_dir=config, dry_run=False, export_to=tmp_path / "kept")
    assert [each.deleted for each in found] == [False]
    assert left(config) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("limits", "error", "text"),
    [
        ({}, ValueError, "needs a limit: older_than, keep, max_bytes or tag"),
        ({"older_than": 30}, TypeError, "timedelta"),
        ({"keep": -1}, ValueError, "keep must not be negative, got -1"),
        ({"max_bytes": -1}, ValueError, "max_bytes must not be negative"),
        ({"keep": 1, "keep_tags": "abc"}, TypeError, "collection of tags"),
    ],
)
def test_bad_limits_are_refused(config, limits, error, text):
    """The error comes before anything is deleted."""
    with pytest.raises(error, match=text):
        sessions.prune_sessions(config_dir=config, dry_run=False, **limits)
    assert left(config) == [1, 2, 3, 4, 5]


def test_a_session_from_the_future_is_not_old(config):
    """A wrong clock does not make it old."""
    path = config / "projects" / "-work" / f"{uuid.UUID(int=5)}.jsonl"
    when = time.time() + 1000 * DAY
    os.utime(path, (when, when))
    assert pruned(config, older_than=timedelta(days=3.5)) == [4]


def test_a_session_begun_by_a_command_is_shown_by_it(tmp_path):
    """Lists show it in the same way, because there is no other prompt."""
    writer = Writer(str(uuid.UUID(int=1)))
    writer.ask(None, "<command-name>/review</command-name>")
    writer.write(tmp_path)
    assert [each.summary for each in sessions.list_sessions(config_dir=tmp_path)] == ["/review"]
    assert [each.summary for each in sessions.prune_sessions(keep=0, config_dir=tmp_path)] == ["/review"]
    assert sessions.session_cost(writer.session, config_dir=tmp_path).title == "/review"
