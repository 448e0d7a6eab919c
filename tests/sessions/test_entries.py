"""The meaning of single transcript entries: titles, prompts, times, tags."""

import json

import claude_agent_sdk
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.sessions import entries

KEY = {"project_key": "p", "session_id": "11111111-1111-1111-1111-111111111111"}


def say(content, **more):
    """Return an entry with a user's message."""
    return {"type": "user", "message": {"role": "user", "content": content}, **more}


def fold(*given_entries, prev=None):
    """Return the data of the summary after these entries."""
    return entries.fold_session_summary(prev, KEY, list(given_entries))["data"]


PROMPTS = st.sampled_from(
    [
        "Hello there",
        "two\nlines ",
        "   ",
        "x" * 199 + " yz",
        "<command-name>/foo</command-name><command-args>x</command-args>",
        "<bash-input>ls</bash-input>",
        "<local-command-stdout>out</local-command-stdout>",
        "<tick>1</tick>",
        "<goal>win",
        "<session-start-hook>",
        "[Request interrupted by user]",
        "[Request interrupted by user for tool use]",
        "<ide_opened_file>a</ide_opened_file>",
        "<ide_opened_file>a</ide_opened_file> and more",
        "<ide_selection>a\nb</ide_selection>",
        "<ide_selection>a",
    ]
)
BLOCKS = st.lists(
    st.one_of(
        PROMPTS.map(lambda text: {"type": "text", "text": text}),
        st.just({"type": "tool_result", "content": "x"}),
        st.just({"type": "image"}),
        st.just("not a block"),
    ),
    max_size=3,
)
FLAGS = st.fixed_dictionaries(
    {},
    optional={
        "isMeta": st.booleans(),
        "isCompactSummary": st.booleans(),
        "isSidechain": st.booleans(),
        "cwd": st.sampled_from(["/a", "/b", ""]),
        "gitBranch": st.sampled_from(["main", "HEAD"]),
        "timestamp": st.sampled_from(["2026-01-02T03:04:05.678Z", "2026-01-02T00:00:00+02:00", "bad"]),
    },
)
ENTRIES = st.lists(
    st.one_of(
        st.builds(lambda content, more: say(content, **more), st.one_of(PROMPTS, BLOCKS), FLAGS),
        st.sampled_from(
            [
                {"type": "custom-title", "customTitle": "Mine"},
                {"type": "ai-title", "aiTitle": "Made"},
                {"type": "last-prompt", "lastPrompt": "last"},
                {"type": "summary", "summary": "sum"},
                {"type": "tag", "tag": "blue"},
                {"type": "tag", "tag": ""},
                {"type": "queue-operation", "timestamp": "2026-01-01T00:00:00.000Z"},
            ]
        ),
    ),
    max_size=6,
)


@given(ENTRIES, ENTRIES)
def test_a_summary_is_the_official_one(first, second):
    """So summaries that users have stored stay readable, and new ones are the same."""
    ours = theirs = None
    for batch in (first, second):
        ours = entries.fold_session_summary(ours, KEY, batch)
        theirs = claude_agent_sdk.fold_session_summary(theirs, KEY, batch)
    assert ours == theirs


def test_a_summary_is_not_changed_by_the_next_one():
    """The summary that was passed in is not modified, and its mtime is kept."""
    first = {"session_id": "s", "mtime": 7, "data": {"tag": "blue"}}
    second = entries.fold_session_summary(first, KEY, [{"type": "tag", "tag": ""}])
    assert (first["data"], second) == (
        {"tag": "blue"},
        {"session_id": "s", "mtime": 7, "data": {"is_sidechain": False}},
    )


def test_only_top_level_fields_of_the_right_type_count():
    """A title or branch in the output of a tool is ignored, and so is a number in place of a title."""
    hostile = json.dumps({"customTitle": "evil", "gitBranch": "evil", "summary": "evil"})
    assert fold(
        say([{"type": "tool_result", "content": hostile}]), {"type": "custom-title", "customTitle": 5}
    ) == {"is_sidechain": False}


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[1]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"a": 1}garbage']
)
def test_a_bad_line_is_none(line):
    """`read_line` returns None for a line that cannot be read, so that it is skipped."""
    assert entries.read_line(line) is None


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "user", "text": "\x00 \ud83d ☃ \u2028"},
        {"type": "user", "number": 2**70, "small": -(2**63), "float": 1e308},
        {"uuid": "u", "type": "tag"},
    ],
)
def test_entries_are_kept_exactly(entry):
    """Lone surrogates, NUL and integers over 64 bits come back unchanged, and an entry is one line."""
    line = entries.write_line(entry)
    assert (line.count(b"\n"), line.endswith(b"\n")) == (1, True)
    assert entries.read_line(line) == entry
    assert line.startswith(b'{"type":')


@pytest.mark.parametrize(
    "value", ["", "x", None, 5, "11111111-1111-1111-1111-111111111111\n", "../../etc/passwd"]
)
def test_an_id_must_be_a_uuid(value):
    """No other value may become part of a path."""
    with pytest.raises(ValueError, match="Invalid session_id"):
        entries.check_session_id(value)


@pytest.mark.parametrize(
    ("tag", "cleaned"), [(" a ", "a"), ("a\u200bb", "ab"), ("ﬁ", "fi"), ("\ue000x", "x")]
)
def test_a_tag_is_cleaned(tag, cleaned):
    """Invisible characters are removed, and the rest is normalised."""
    assert entries.clean_tag(tag) == cleaned


@pytest.mark.parametrize("tag", ["", "  ", "\u200b", "\u200b \u200b"])
def test_a_tag_of_nothing_is_refused(tag):
    """A tag that nobody can see would be useless."""
    with pytest.raises(ValueError, match="tag must be non-empty"):
        entries.clean_tag(tag)
