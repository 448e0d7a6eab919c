"""Searching in sessions on disk: any text, exact filters, and an index that several processes may build."""

import sqlite3
import subprocess
import sys
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.indexed import config, find, index_file, write
from shared.transcripts import SESSION, WHEN, Writer
from toolwire import NotSupportedError, sessions
from toolwire.sessions import index, search
from toolwire.sessions.index import open_index

__all__ = ["config"]


def test_a_search_finds_what_was_said_with_a_snippet(config):
    """The best hit comes first; each says where it is."""
    write(config, 1, "The key is under the mat, said the man with the key")
    write(config, 2, "There is a key somewhere in this long house with many rooms and doors and windows")
    [first, *_] = hits = sessions.search_sessions("key", config_dir=config)
    assert first.session_id == str(uuid.UUID(int=1))
    assert "**key**" in first.snippet
    assert (first.project_key, first.subpath) == ("-work", None)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert {hit.type for hit in hits} == {"user", "assistant"}


@pytest.mark.parametrize(
    "query",
    [
        *(
            '"',
            '""',
            '"a',
            'a"b',
            "AND",
            "a AND",
            "NOT",
            "a OR b",
            "NEAR(a b)",
            "NEAR(",
            "a*",
            "*",
            "^a",
            "-a",
            "a:b",
        ),
        *(
            "said:a",
            "output : x",
            "(",
            ")",
            "{",
            "}",
            "a b",
            "'",
            "''",
            ";",
            "--",
            "\0",
            "a\0b",
            "\ud800",
            "_",
            "___",
        ),
        *("🚀", "é", "e\u0301", "日本語", " ", "", "\n", "a\\", "%", "?", "+a", "x" * 20_000, "a " * 2000),
    ],
)
def test_any_text_can_be_searched_for(config, query):
    """The query is plain text, not a query language."""
    write(config, 1, "some a b text")
    assert isinstance(sessions.search_sessions(query, config_dir=config), list)


@given(st.text())
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_text_can_be_searched_for(config, query):
    """As above, for random text."""
    path = config / "projects" / "-work" / f"{uuid.UUID(int=1)}.jsonl"
    if not path.exists():
        write(config, 1, "some text")
    assert isinstance(sessions.search_sessions(query, config_dir=config), list)


def test_filters_of_a_search(config):
    """Each filter leaves out messages that do not match."""
    writer = Writer()
    place = writer.answer(writer.ask(None, "find the needle", gitBranch="main"), "needle found", calls=1)
    writer.lines[2]["message"]["model"] = "claude-sonnet-5"
    writer.lines[3]["message"]["content"][0].update(name="mcp__shop__buy", input={"what": "a needle"})
    writer.lines[4]["message"]["content"][0]["content"] = "here is your needle"
    writer.ask(place, "another needle", gitBranch="other")
    writer.note(type="tag", tag="sewing")
    writer.write(config)
    write(config, 2, "a needle elsewhere", key="-other")

    def types(**more):
        return sorted(hit.uuid[-2:] for hit in sessions.search_sessions("needle", config_dir=config, **more))

    everything = types()
    assert len(everything) == 6
    assert len(types(include_tool_output=True)) == 7
    assert types(tag="sewing") == ["01", "03", "04", "06"]
    assert types(tag="other") == []
    assert types(branch="main") == ["01"]
    assert types(model="sonnet") == ["03"]
    assert types(model="SONNET-5") == ["03"]
    assert types(tool="mcp__shop__buy") == ["04"]
    assert types(tool="mcp__shop__*", include_tool_output=True) == ["04", "05"]
    assert types(tool="Bash") == []
    assert types(since=WHEN + timedelta(seconds=6), tag="sewing") == ["06"]
    assert types(until=WHEN + timedelta(seconds=3), tag="sewing") == ["01"]
    assert types(since=datetime(2030, 1, 1, tzinfo=UTC)) == []
    assert types(directory="/other") == ["01", "03"]
    assert len(types(limit=2)) == 2
    assert len(types(limit=4, offset=4)) == 2
    assert len(types(limit=0)) == 6
    sessions.tag_session(SESSION, None, config_dir=config)
    assert types(tag="sewing") == []


def test_a_result_is_found_by_its_tool_though_the_call_was_read_earlier(config):
    """The index keeps the names of calls, so that a result which is read later still has its tool."""
    writer = Writer()
    writer.answer(writer.ask(None, "go"), "calling", calls=1)
    whole = writer.encode()
    cut = whole.rindex(b'{"parentUuid"')
    path = writer.write(config)
    path.write_bytes(whole[:cut])
    assert find(config, "calling") == ["calling"]
    with path.open("ab") as file:
        file.write(whole[cut:])
    assert find(config, "ok", include_tool_output=True, tool="T") == ["ok"]


def test_subagents_are_searched(config):
    """A hit names the subagent's transcript."""
    path = write(config)
    folder = path.with_suffix("") / "subagents"
    folder.mkdir(parents=True)
    writer = Writer(path.stem)
    writer.ask(None, "look for the treasure")
    (folder / "agent-a1.jsonl").write_bytes(writer.encode())
    [hit] = sessions.search_sessions("treasure", config_dir=config)
    assert (hit.session_id, hit.subpath) == (path.stem, "subagents/agent-a1")


def test_a_project_that_is_gone_is_found_no_more(config):
    """Its folder is not listed any more, so its messages are removed from the index."""
    path = write(config, 1, "a needle", key="-gone")
    write(config, 2, "another needle")
    assert len(find(config, "needle")) == 4
    path.unlink()
    path.parent.rmdir()
    assert len(find(config, "needle", directory="/work")) == 2
    assert len(find(config, "needle")) == 2


@pytest.mark.parametrize("more", [{"limit": 2**70}, {"offset": 2**70}, {"limit": -(2**70)}])
def test_limits_may_be_of_any_size(config, more):
    """Limits and offsets beyond 64 bits are accepted."""
    write(config)
    assert len(find(config, "prompt", **more)) == (0 if "offset" in more else 2)


def test_a_time_must_be_a_time(config):
    """The error shows the value that was given."""
    write(config)
    with pytest.raises(TypeError, match="must be a datetime, not '2026-01-01'"):
        find(config, "prompt", since="2026-01-01")


def test_an_input_that_is_nested_too_deeply_hides_nothing(config):
    """Such input can be read, but is too deep to be written as JSON again."""
    writer = Writer()
    writer.answer(writer.ask(None, "go"), "calling", calls=1)
    nested = "x"
    for _ in range(900):
        nested = [nested]
    writer.lines[3]["message"]["content"][0]["input"] = nested
    writer.lines[0]["message"]["content"] = [{"type": "text", "text": nested}, {"type": "text", "text": "go"}]
    writer.write(config)
    assert find(config, "go ") == ["go"]
    assert find(config, "calling") == ["calling"]


def test_progress_is_reported_in_bytes(config):
    """The last report has the total; without new messages there is none."""
    sizes = [write(config, number).stat().st_size for number in (1, 2, 3)]
    seen = []
    sessions.search_sessions("x", config_dir=config, on_progress=lambda *step: seen.append(step))
    assert seen[-1] == (sum(sizes), sum(sizes))
    seen.clear()
    sessions.search_sessions("x", config_dir=config, on_progress=lambda *step: seen.append(step))
    assert seen == []


def test_a_large_transcript_is_made_searchable_in_parts(config, monkeypatch):
    """The last part is found as the first is; after an interruption, the next search adds the rest."""
    monkeypatch.setattr(index, "_BATCH", 2000)
    write(config, 1, *(f"prompt {number} word{number}" for number in range(40)))
    stop = iter(range(3))

    def interrupt(_done, _total):
        if next(stop, None) is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sessions.search_sessions("word39 ", config_dir=config, on_progress=interrupt)
    assert len(find(config, "word39 ")) == 2
    assert len(find(config, "word0 ")) == 2
    assert len(find(config, "prompt", limit=0)) == 80


def test_text_with_nul_and_half_characters_is_searchable(config):
    """A tool that prints a binary file may produce such text."""
    writer = Writer()
    writer.ask(None, "before \0 \ud83d after")
    writer.lines[0]["gitBranch"] = "b\ud800"
    writer.lines[0]["timestamp"] = "\ud800"
    writer.write(config)
    assert len(find(config, "after")) == 1


def test_python_without_full_text_search_says_so(config, monkeypatch):
    """The error says so, because SQLite can be built without it."""

    class Without(search.TextIndex):
        def create(self):
            try:
                self._connection.execute("CREATE VIRTUAL TABLE texts USING nothing(x)")
            except sqlite3.OperationalError as error:
                raise NotSupportedError("this Python's SQLite has no full-text search") from error

    monkeypatch.setattr(index, "TextIndex", Without)
    write(config)
    with pytest.raises(NotSupportedError, match="full-text search"):
        find(config, "prompt")


_SEARCH = """
import sys
from toolwire import sessions
print(len(sessions.search_sessions("prompt", config_dir=sys.argv[1], limit=0)))
print(len(sessions.list_sessions(config_dir=sys.argv[1])))
"""


@pytest.mark.process
def test_processes_that_build_it_at_once_find_the_same(config):
    """Each message is found once."""
    for number in range(1, 120):
        write(config, number)
    command = [sys.executable, "-c", _SEARCH, str(config)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
    found = [process.communicate(timeout=120) for process in running]
    assert {out.split()[0] for out, _ in found} == {b"238"}, found
    assert {out.split()[1] for out, _ in found} == {b"119"}
    assert len(find(config, "prompt", limit=0)) == 238


_KILLED = """
import os, signal, sys
from toolwire import sessions
from toolwire.sessions import index
index._BATCH = 20_000
def stop(done, total):
    if done > total / 2:
        os.kill(os.getpid(), signal.SIGKILL)
sessions.search_sessions("prompt", config_dir=sys.argv[1], on_progress=stop)
"""


@pytest.mark.process
def test_a_process_killed_while_it_builds_leaves_a_good_index(config):
    """The next process continues where it stopped."""
    for number in range(1, 120):
        write(config, number)
    done = subprocess.run([sys.executable, "-c", _KILLED, str(config)], timeout=120, check=False)
    assert done.returncode < 0
    before = index_file(config)
    assert len(find(config, "prompt", limit=0)) == 238
    assert index_file(config) == before


def test_a_temporary_index_leaves_no_file(config):
    """A temporary index is for callers that cannot have another one."""
    write(config)
    made = index.open_temporary_index()
    query = index.TextQuery('"prompt"')
    assert len(index._search(made, [config / "projects" / "-work"], query, None)) == 2
    assert open_index(config, create=False) is None
