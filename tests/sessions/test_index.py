"""The index of sessions on disk: results never depend on it, and a missing or damaged index is no error."""

import json
import logging
import os
import sqlite3
import stat
import sys
import uuid

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.indexed import config, find, index_file, write
from shared.programs import run_python
from toolwire import sessions
from toolwire.sessions import index, transcript
from toolwire.sessions.index import find_index_folder


def rows(config, **more):
    """Return the list, with the index."""
    return sessions.list_sessions(config_dir=config, **more)


def rows_without(config, monkeypatch, **more):
    """Return the list, without an index."""
    with monkeypatch.context() as patch:
        patch.setenv(index.SWITCH, "off")
        return rows(config, **more)


__all__ = ["config"]


@pytest.fixture
def reads(monkeypatch):
    """Return a list that records the transcripts that are opened, in order."""
    opened = []
    open_transcript = transcript.open_transcript

    def note(path):
        opened.append(path)
        return open_transcript(path)

    monkeypatch.setattr(transcript, "open_transcript", note)
    return opened


def test_a_second_list_opens_no_transcript(config, reads):
    """The summaries are in the index."""
    for number in range(1, 6):
        write(config, number)
    first = rows(config, limit=3)
    assert len(reads) == 3
    reads.clear()
    assert rows(config, limit=3) == first
    assert reads == []


def test_only_what_was_appended_is_read(config, monkeypatch):
    """The index keeps the position up to which a transcript was read."""
    path = write(config, 1, *(f"prompt {number}" for number in range(50)))
    rows(config)
    places = []
    read_lines = transcript.read_lines

    def note(file, start=0):
        for place, end, line in read_lines(file, start):
            places.append(place)
            yield place, end, line

    monkeypatch.setattr(transcript, "read_lines", note)
    size = path.stat().st_size
    sessions.rename_session(path.stem, "Mine", config_dir=config)
    assert rows(config)[0].custom_title == "Mine"
    assert places == [size]
    places.clear()
    find(config, "prompt")
    assert places[0] == 0
    places.clear()
    sessions.rename_session(path.stem, "Yours", config_dir=config)
    find(config, "prompt")
    assert len(places) == 1


def test_a_transcript_that_was_written_anew_is_read_from_its_beginning(config):
    """Here the new file is longer, and has another conversation."""
    write(config, 1, "about apples")
    assert rows(config)[0].first_prompt == "about apples"
    assert find(config, "apples") != []
    write(config, 1, "about pears", "and more", "and even more")
    assert rows(config)[0].first_prompt == "about pears"
    assert find(config, "apples") == []
    assert find(config, "pears") != []


def test_a_transcript_that_became_shorter_is_read_again(config):
    """A file restored from a backup may be shorter and have an older time."""
    write(config, 1, "about apples", "and pears")
    assert find(config, "pears") != []
    rows(config)
    write(config, 1, "about apples")
    assert find(config, "pears") == []
    assert len(rows(config)) == 1


def test_a_change_that_left_size_and_time_as_they_were_is_seen(config):
    """The file system's change time (ctime) shows it."""
    path = write(config, 1, "about apples")
    assert rows(config)[0].first_prompt == "about apples"
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"apples", b"lemons"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert rows(config)[0].first_prompt == "about lemons"


def test_what_is_deleted_disappears(config):
    """This holds whether `delete_session` or someone else deleted it."""
    paths = [write(config, number, f"secret{number}") for number in (1, 2)]
    assert len(find(config, "secret")) == 4
    paths[0].unlink()
    assert len(find(config, "secret")) == 2
    assert len(rows(config)) == 1
    sessions.delete_session(paths[1].stem, config_dir=config)
    assert b"secret2" not in index_file(config).read_bytes()
    assert find(config, "secret") == []


@pytest.mark.parametrize(
    "damage", [b"not a database, whatever its name says", b"", b"SQLite format 3\0" + b"\xff" * 5000]
)
def test_a_damaged_index_is_made_anew(config, damage):
    """The results are the same as before."""
    write(config)
    expected = rows(config), find(config, "prompt")
    index_file(config).write_bytes(damage)
    assert (rows(config), find(config, "prompt")) == expected
    assert index_file(config).read_bytes()[:15] == b"SQLite format 3"


def test_an_index_that_is_damaged_inside_is_made_anew(config):
    """The header is good, but most pages are garbage."""
    for number in range(1, 40):
        write(config, number)
    expected = rows(config), find(config, "prompt", limit=0)
    path = index_file(config)
    content = bytearray(path.read_bytes())
    content[4096 : len(content) - 4096] = os.urandom(len(content) - 8192)
    path.write_bytes(content)
    assert (rows(config), find(config, "prompt", limit=0)) == expected


@pytest.mark.parametrize(
    "change",
    ["PRAGMA user_version = 99", "DROP TABLE transcripts", "DROP TABLE messages", "DROP TABLE texts"],
)
def test_an_index_of_another_shape_is_made_anew(config, change):
    """The index may belong to a newer version, or someone changed it."""
    write(config)
    expected = rows(config), find(config, "prompt")
    with sqlite3.connect(index_file(config)) as db:
        db.execute(change)
    db.close()
    for _ in range(2):
        assert (rows(config), find(config, "prompt")) == expected


@pytest.mark.parametrize("damage", ["{", "", "\x00", "nothing"])
def test_a_summary_that_is_damaged_is_read_again(config, damage):
    """Here the page of the summary was overwritten."""
    write(config)
    expected = rows(config)
    with sqlite3.connect(index_file(config)) as db:
        db.execute("UPDATE transcripts SET summary = ?", (damage,))
    db.close()
    assert rows(config) == expected


def test_those_who_only_list_keep_nothing_of_deleted_sessions(config):
    """Some entries of the index are checked with each new session, so that those of deleted ones disappear."""
    for number in range(1, 30):
        write(config, number, f"secret{number}")
    rows(config)
    for number in range(1, 29):
        (config / "projects" / "-work" / f"{uuid.UUID(int=number)}.jsonl").unlink()
    for number in range(30, 90):
        write(config, number, "plain")
        rows(config, limit=1)
    content = index_file(config).read_bytes()
    assert [number for number in range(1, 29) if f"secret{number} ".encode() in content] == []
    with sqlite3.connect(index_file(config)) as db:
        [left] = db.execute("SELECT count(*) FROM transcripts WHERE summary LIKE '%secret%'").fetchone()
    db.close()
    assert left == 1
    assert len(rows(config)) == 61


def test_an_index_of_a_newer_version_is_left_alone(config):
    """Each version's index has its own file name."""
    write(config)
    folder = find_index_folder(config)
    folder.mkdir(parents=True)
    newer = folder / "index-99-00000000.db"
    newer.write_bytes(b"of the future")
    assert len(rows(config)) == 1
    assert newer.read_bytes() == b"of the future"


def test_a_locked_index_is_done_without(config, monkeypatch):
    """A list then reads the transcripts, and a search uses what is in the index."""
    monkeypatch.setattr(index, "_BUSY_TIMEOUT", 0.05)
    write(config, 1)
    assert len(find(config, "prompt")) == 2
    lock = sqlite3.connect(index_file(config), isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    write(config, 2)
    try:
        assert [row.first_prompt for row in rows(config)] == ["prompt 2", "prompt 1"]
        assert len(find(config, "prompt")) == 2
        sessions.delete_session(str(uuid.UUID(int=1)), config_dir=config)
    finally:
        lock.close()
    assert [row.first_prompt for row in rows(config)] == ["prompt 2"]
    assert find(config, "prompt 1") == []


def test_without_a_place_for_the_index_everything_works(config, tmp_path, caplog):
    """A file in place of the cache folder stands for anything that cannot be written to."""
    (tmp_path / "cache").write_text("in the way")
    write(config)
    assert len(rows(config)) == 1
    assert len(find(config, "prompt")) == 2
    assert "all transcripts are read" in caplog.text
    sessions.delete_session(str(uuid.UUID(int=1)), config_dir=config)
    assert rows(config) == []


def test_the_index_can_be_switched_off(config, monkeypatch):
    """No index file is then created."""
    write(config)
    monkeypatch.setenv(index.SWITCH, "off")
    assert len(rows(config)) == 1
    assert len(find(config, "prompt")) == 2
    assert not find_index_folder(config).exists()


def test_only_its_owner_can_read_the_index(config):
    """The index contains text of the conversations."""
    write(config)
    find(config, "prompt")
    folder = find_index_folder(config)
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()}
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_indexes_of_folders_that_are_gone_are_removed(config, tmp_path):
    """Otherwise they would pile up."""
    other = tmp_path / "other"
    write(other)
    rows(other)
    folder = find_index_folder(other)
    assert folder.exists()
    other.rename(tmp_path / "gone")
    write(config)
    rows(config)
    assert not folder.exists()
    assert find_index_folder(config).exists()


def test_python_without_sqlite_can_list(config, monkeypatch):
    """Only a search needs SQLite."""
    path = write(config)
    monkeypatch.setitem(sys.modules, "toolwire.sessions.index", None)
    monkeypatch.delattr(sessions, "index", raising=False)
    assert len(rows(config)) == 1
    sessions.delete_session(path.stem, config_dir=config)
    assert rows(config) == []


# --- the same answer as without ---


@given(data=st.data())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_list_does_not_depend_on_the_index(config, monkeypatch, data):
    """It is the same after any sequence of writes, appends, torn lines, replacements and deletions."""
    folder = config / "projects" / "-work"
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    lines = st.sampled_from(
        [
            b'{"type":"custom-title","customTitle":"T"}\n',
            b'{"type":"tag","tag":"blue"}\n',
            b'{"type":"tag","tag":""}\n',
            b'{"type":"user","uuid":"u","message":{"content":"hello"},"cwd":"/w"}\n',
            b'{"type":"last-prompt","lastPrompt":"last"}',
            b'{"type":"user","isSidechain":true}\n',
            b'{"type":"user","gitBranch":"b","timestamp":"2026-01-02T03:04:05.678Z"}\n',
            b'{"torn',
            b'":1}\n',
            b"\n",
            b"\xff\n",
        ]
    )
    for _ in range(data.draw(st.integers(1, 6))):
        number = data.draw(st.integers(1, 4))
        path = folder / f"{uuid.UUID(int=number)}.jsonl"
        content = b"".join(data.draw(st.lists(lines, max_size=4)))
        match data.draw(st.sampled_from(["append", "append", "replace", "delete"])):
            case "append":
                with path.open("ab") as file:
                    file.write(content)
            case "replace":
                path.write_bytes(content)
            case "delete":
                path.unlink(missing_ok=True)
        page = {"limit": data.draw(st.sampled_from([None, 1, 2])), "offset": data.draw(st.integers(0, 2))}
        assert rows(config, **page) == rows_without(config, monkeypatch, **page)


def test_a_file_that_goes_away_during_a_list_hides_no_other(config, monkeypatch, caplog):
    """The CLI may delete old transcripts at any time."""
    for number in range(1, 4):
        write(config, number)
    open_transcript = transcript.open_transcript

    def vanish(path):
        if path.stem == str(uuid.UUID(int=2)):
            path.unlink(missing_ok=True)
        return open_transcript(path)

    monkeypatch.setattr(transcript, "open_transcript", vanish)
    with caplog.at_level(logging.WARNING):
        assert [row.first_prompt for row in rows(config)] == ["prompt 3", "prompt 1"]
    assert [row.first_prompt for row in rows(config)] == ["prompt 3", "prompt 1"]


def test_a_line_that_is_being_written_counts_when_it_is_whole(config):
    """Half a line is ignored; the complete line counts, even before its line break is written."""
    path = write(config, 1)
    line = json.dumps({"type": "custom-title", "customTitle": "Whole"}).encode()
    with path.open("ab") as file:
        file.write(line[:20])
    assert rows(config)[0].custom_title is None
    with path.open("ab") as file:
        file.write(line[20:])
    assert rows(config)[0].custom_title == "Whole"
    with path.open("ab") as file:
        file.write(b"\n")
    assert rows(config)[0].custom_title == "Whole"


_WITHOUT_SQLITE = """
import sys
sys.modules["sqlite3"] = None
from toolwire import NotSupportedError, sessions
print(*[each.session_id for each in sessions.list_sessions(config_dir=sys.argv[1])])
try:
    sessions.search_sessions("prompt", config_dir=sys.argv[1])
except NotSupportedError as error:
    print(error)
"""


@pytest.mark.process
def test_a_python_without_sqlite_lists_sessions_and_says_why_it_cannot_search(config):
    """Only a search needs SQLite."""
    path = write(config)
    done = run_python("-c", _WITHOUT_SQLITE, config)
    reason = "a search needs SQLite, which this Python was built without: use another Python"
    assert done.stdout.splitlines() == [path.stem, reason], done.stderr
