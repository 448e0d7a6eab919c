"""Sessions on disk: what the official readers get wrong is read correctly, and no data of the user is lost."""

import json
import os
import stat
import subprocess
import sys
import tracemalloc
import uuid

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.transcripts import SESSION, Writer, texts
from toolwire import Session, SessionRunningError, sessions
from toolwire._support.processes import read_state
from toolwire.sessions import aio


@pytest.fixture
def config(tmp_path):
    """Return the path of a CLI's folder that does not exist yet."""
    return tmp_path / "config"


@pytest.fixture
def writer():
    """Return a transcript with one prompt and one answer."""
    writer = Writer()
    writer.answer(writer.ask(None, "hello"), "hi")
    return writer


def row(config, **more):
    """Return the only session in the list."""
    [found] = sessions.list_sessions(config_dir=config, **more)
    return found


def test_a_directory_with_an_emoji_is_found(config, tmp_path, writer):
    """The CLI replaces each UTF-16 unit, without Unicode normalisation."""
    directory = tmp_path / "rocket🚀x e\u0301"
    directory.mkdir()
    key = sessions.project_key_for_directory(directory)
    assert key.endswith("rocket--x-e-")
    writer.write(config, key)
    assert row(config, directory=directory).first_prompt == "hello"


def test_a_long_path_shows_no_other_projects_sessions(config, writer):
    """The first 200 characters of a path do not identify its directory."""
    first, second = "/" + "a" * 250 + "/one", "/" + "a" * 250 + "/two"
    writer.write(config, sessions.project_key_for_directory(first))
    assert len(sessions.list_sessions(first, config_dir=config)) == 1
    assert sessions.list_sessions(second, config_dir=config) == []


def test_what_a_tool_printed_names_no_session(config, writer):
    """Titles, branches and tags are only taken from entries of the right type."""
    hostile = json.dumps({"type": "custom-title", "customTitle": "evil", "gitBranch": "evil", "tag": "evil"})
    writer.ask(None, hostile)
    writer.write(config)
    found = row(config)
    assert (found.custom_title, found.git_branch, found.tag) == (None, None, None)


def test_a_title_in_the_middle_of_a_large_file_counts(config):
    """It is found although it is far from the file's beginning and end."""
    writer = Writer()
    writer.note(type="queue-operation", content="x" * 100_000)
    place = writer.ask(None, "the prompt")
    writer.note(type="custom-title", customTitle="Mine")
    writer.note(type="tag", tag="blue")
    writer.answer(place, "y" * 200_000)
    writer.write(config)
    found = row(config)
    assert (found.custom_title, found.tag, found.first_prompt) == ("Mine", "blue", "the prompt")


BAD_LINES = {
    "torn": b'{"type":"user","uuid":"',
    "invalid UTF-8": b'{"type":"user","message":"\xff\xfe"}',
    "deep": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "NUL": b"\0" * 5000,
    "not an object": b"[1, 2]",
    "wrong types": b'{"type":5,"uuid":{},"message":[],"timestamp":9,"cwd":7,"isSidechain":"no"}',
    "wrong message": b'{"type":"user","isMeta":true,"uuid":"u","message":{"content":[5,{"type":"tool_use"}]}}',
}


@pytest.mark.parametrize("bad", BAD_LINES.values(), ids=BAD_LINES.keys())
@pytest.mark.parametrize("at", [0, 1, 99])
def test_one_bad_line_hides_nothing(config, writer, bad, at):
    """Wherever that line is, the session is listed with its messages."""
    path = writer.write(config)
    lines = path.read_bytes().splitlines(keepends=True)
    lines.insert(at, bad + b"\n")
    path.write_bytes(b"".join(lines))
    assert row(config).first_prompt == "hello"
    assert texts(sessions.get_session_messages(SESSION, config_dir=config))[:2] == ["hello", "hi"]


@pytest.mark.parametrize("missing", range(9))
def test_a_gap_is_bridged(config, missing):
    """A line that is lost hides no other message."""
    writer = Writer()
    place = writer.answer(writer.ask(None, "one"), "two")
    place = writer.answer(writer.ask(place, "three"), "four")
    writer.ask(place, "five")
    kept = [line for number, line in enumerate(writer.lines) if number != missing]
    lost = writer.lines[missing] if missing < len(writer.lines) else {}
    writer.lines = kept
    writer.write(config)
    content = lost.get("message", {}).get("content")
    gone = content if isinstance(content, str) else (content or [{}])[0].get("text")
    expected = [each for each in ["one", "two", "three", "four", "five"] if each != gone]
    assert texts(sessions.get_session_messages(SESSION, config_dir=config)) == expected


def compacted():
    """Return a conversation that was compacted, with one message kept."""
    writer = Writer()
    place = writer.answer(writer.ask(None, "old prompt"), "old answer")
    place = writer.compact(place, keep=place)
    writer.answer(writer.ask(place, "new prompt"), "new answer")
    return writer


def test_after_a_compaction_what_was_kept_is_shown(config):
    """The messages are the summary, those that stay in the context, and those after it."""
    compacted().write(config)
    shown = texts(sessions.get_session_messages(SESSION, config_dir=config))
    assert shown == ["the summary", "old answer", "new prompt", "new answer"]


def test_the_whole_history_goes_back_before_a_compaction(config):
    """Each message is in its place, once."""
    compacted().write(config)
    shown = texts(sessions.get_session_messages(SESSION, config_dir=config, whole_history=True))
    assert shown == ["old prompt", "old answer", "the summary", "new prompt", "new answer"]


def test_lines_that_name_each_other_come_to_an_end(config, writer):
    """A cycle of parents is cut."""
    writer.lines[0]["parentUuid"] = writer.lines[-1]["uuid"]
    writer.write(config)
    assert len(sessions.get_session_messages(SESSION, config_dir=config)) <= len(writer.lines)


def test_only_the_files_of_a_page_are_read(config):
    """The order comes from the file system, so that a page costs no more than its own files."""
    for number in range(5):
        writer = Writer(str(uuid.UUID(int=number)))
        writer.ask(None, f"prompt {number}")
        os.utime(writer.write(config), (1000 + number, 1000 + number))
    unread = config / "projects" / "-work" / f"{uuid.UUID(int=0)}.jsonl"
    unread.unlink()
    os.mkfifo(unread)  # opening it would wait
    os.utime(unread, (1000, 1000))
    page = sessions.list_sessions(limit=2, offset=1, config_dir=config)
    assert [each.first_prompt for each in page] == ["prompt 3", "prompt 2"]


def test_a_page_is_filled_up_behind_sessions_that_are_not_shown(config):
    """Sessions without a prompt are not listed, and do not count for the page."""
    for number in range(6):
        writer = Writer(str(uuid.UUID(int=number)))
        if number % 2:
            writer.note(type="queue-operation")
        else:
            writer.ask(None, f"prompt {number}")
        os.utime(writer.write(config), (1000 + number, 1000 + number))
    page = sessions.list_sessions(limit=2, offset=1, config_dir=config)
    assert [each.first_prompt for each in page] == ["prompt 2", "prompt 0"]


def test_an_unreadable_file_is_named_and_hides_no_other(config, writer, caplog):
    """A folder in place of a file stands for anything that cannot be read."""
    writer.write(config)
    (config / "projects" / "-work" / f"{uuid.UUID(int=7)}.jsonl").mkdir()
    assert row(config).first_prompt == "hello"
    assert str(uuid.UUID(int=7)) in caplog.text


def test_deleting_leaves_no_trace(config, writer):
    """Copies of the user's files are deleted too; other sessions stay."""
    path = writer.write(config)
    traces = [
        path.with_suffix("") / "subagents",
        config / "file-history" / SESSION,
        config / "session-env" / SESSION,
    ]
    other = config / "file-history" / str(uuid.UUID(int=7))
    for folder in [*traces, other]:
        folder.mkdir(parents=True)
        (folder / "x").write_text("secret")
    sessions.delete_session(SESSION, config_dir=config)
    assert [each.name for each in config.rglob("*") if SESSION in str(each)] == []
    assert (other / "x").exists()


def test_deleting_follows_no_link(config, writer, tmp_path):
    """A link is removed, but not its target."""
    path = writer.write(config)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").write_text("x")
    path.with_suffix("").symlink_to(elsewhere, target_is_directory=True)
    sessions.delete_session(SESSION, config_dir=config)
    assert (elsewhere / "mine").exists()
    assert not path.with_suffix("").is_symlink()


@pytest.mark.process
def test_a_running_session_is_not_deleted(config, writer):
    """Its CLI would create the file again, without its beginning."""
    path = writer.write(config)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        (config / "sessions").mkdir()
        (config / "sessions" / f"{process.pid}.json").write_text(json.dumps({"sessionId": SESSION}))
        with pytest.raises(SessionRunningError, match=f"process {process.pid}"):
            sessions.delete_session(SESSION, config_dir=config)
        assert path.exists()
        sessions.delete_session(SESSION, config_dir=config, force=True)
        assert not path.exists()
        process.communicate(b"\n")


@pytest.mark.process
def test_a_session_that_ended_is_deleted_though_a_note_stayed(config, writer):
    """A CLI that was killed leaves a file that names the session as running."""
    path = writer.write(config)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (config / "sessions").mkdir()
    (config / "sessions" / f"{ended.pid}.json").write_text(json.dumps({"sessionId": SESSION}))
    sessions.delete_session(SESSION, config_dir=config)
    assert not path.exists()


def test_a_title_after_a_torn_line_is_a_line_of_its_own(config, writer):
    """A line that a killed CLI left incomplete does not swallow the title."""
    path = writer.write(config)
    with path.open("ab") as file:
        file.write(b'{"type":"user","uu')
    sessions.rename_session(SESSION, "Mine", config_dir=config)
    assert row(config).custom_title == "Mine"


def add_subagent(path, name, call):
    """Write a subagent's transcript with its metadata."""
    folder = path.with_suffix("") / "subagents"
    folder.mkdir(parents=True, exist_ok=True)
    writer = Writer()
    place = writer.ask(None, f"do {name}", isSidechain=True)
    writer.answer(place, f"did {name}", calls=2, finish_order=(1, 0))
    for line in writer.lines:
        line.update(isSidechain=True, agentId=name)
    (folder / f"agent-{name}.jsonl").write_bytes(writer.encode())
    noted = {"agentType": "Explore", "toolUseId": call, "parentAgentId": "a0"}
    (folder / f"agent-{name}.meta.json").write_text(json.dumps(noted))


def test_a_subagents_messages_are_read_with_its_parallel_calls(config, writer):
    """Each message also names the call that started the subagent."""
    add_subagent(writer.write(config), "a1", "toolu_1")
    assert sessions.list_subagents(SESSION, config_dir=config) == ["a1"]
    messages = sessions.get_subagent_messages(SESSION, "a1", config_dir=config)
    assert len(messages) == 6
    assert {(each.parent_tool_use_id, each.parent_agent_id) for each in messages} == {("toolu_1", "a0")}
    assert sessions.get_subagent_messages(SESSION, "../../x", config_dir=config) == []


def test_a_fork_has_the_subagents_of_its_part(config):
    """Subagents of calls after the fork point are left out."""
    writer = Writer()
    place = writer.answer(writer.ask(None, "one"), "two", calls=1)
    first_call = writer.lines[-1]["message"]["content"][0]["tool_use_id"]
    writer.answer(writer.ask(place, "three"), "four", calls=1)
    path = writer.write(config)
    add_subagent(path, "a1", first_call)
    add_subagent(path, "a2", writer.lines[-1]["message"]["content"][0]["tool_use_id"])
    copy = sessions.fork_session(SESSION, up_to_message_id=place, config_dir=config).session_id
    assert sessions.list_subagents(copy, config_dir=config) == ["a1"]
    whole = sessions.fork_session(SESSION, config_dir=config, title=" Mine ").session_id
    assert sessions.list_subagents(whole, config_dir=config) == ["a1", "a2"]
    assert sessions.get_session_info(whole, config_dir=config).custom_title == "Mine"
    said = [
        texts(sessions.get_session_messages(each, config_dir=config))[:2] for each in (SESSION, copy, whole)
    ]
    assert said == [["one", "two"]] * 3


def test_a_fork_that_fails_leaves_nothing(config, writer):
    """No partial file is left, and the original is unchanged."""
    path = writer.write(config)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="not found"):
        sessions.fork_session(SESSION, up_to_message_id=str(uuid.UUID(int=999)), config_dir=config)
    assert list(path.parent.iterdir()) == [path]
    assert path.read_bytes() == before


@pytest.mark.anyio
async def test_the_functions_can_be_awaited(config, writer):
    """They return the same results, without blocking the event loop."""
    writer.write(config)
    assert await aio.list_sessions(config_dir=config) == sessions.list_sessions(config_dir=config)
    streamed = [each async for each in aio.iter_session_messages(SESSION, config_dir=config)]
    assert streamed == sessions.get_session_messages(SESSION, config_dir=config)
    assert len(await aio.search_sessions("hello", config_dir=config)) == 1
    assert await aio.prune_sessions(keep=1, config_dir=config) == []
    assert await aio.check_sessions(config_dir=config) == sessions.check_sessions(config_dir=config)
    await aio.rename_session(SESSION, "Mine", config_dir=config)
    assert (await aio.get_session_info(SESSION, config_dir=config)).custom_title == "Mine"
    with pytest.raises(ValueError, match="Invalid session_id"):
        await aio.delete_session("x", config_dir=config)


@pytest.mark.process
def test_worktrees_are_listed_with_their_repository(config, tmp_path):
    """They are left out with `include_worktrees=False`."""
    main, side = tmp_path / "main", tmp_path / "side"
    main.mkdir()
    git = ["git", "-C", str(main), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for command in (
        ["init", "-q"],
        ["commit", "-q", "--allow-empty", "-m", "x"],
        ["worktree", "add", "-q", str(side)],
    ):
        subprocess.run([*git, *command], check=True, capture_output=True)
    writer = Writer()
    writer.ask(None, "in the side tree")
    writer.write(config, sessions.project_key_for_directory(side))
    below = side / "below"
    below.mkdir()
    assert sessions.list_sessions(below, config_dir=config)[0].first_prompt == "in the side tree"
    assert row(config, directory=main).first_prompt == "in the side tree"
    assert sessions.list_sessions(main, include_worktrees=False, config_dir=config) == []
    assert sessions.get_session_info(SESSION, main, config_dir=config) is not None


def test_folders_that_older_clis_named_otherwise_are_found_by_their_directory(config):
    """Older CLIs ended a long name with another hash; `cwd` in the transcript shows whose it is."""
    first, second = "/" + "a" * 250 + "/one", "/" + "a" * 250 + "/two"
    old = sessions.project_key_for_directory(first)[:200] + "-0ldhash"
    writer = Writer()
    writer.ask(None, "hello")
    for line in writer.lines:
        line["cwd"] = first
    writer.write(config, old)
    assert row(config, directory=first).first_prompt == "hello"
    assert sessions.get_session_info(SESSION, first, config_dir=config) is not None
    assert sessions.list_sessions(second, config_dir=config) == []
    assert sessions.get_session_info(SESSION, second, config_dir=config) is None


def test_fields_inside_of_tools_inputs_and_results_name_no_session(config):
    """Only fields of the entry itself count, and only if they are strings."""
    hostile = {
        "customTitle": "evil",
        "aiTitle": "evil",
        "summary": "evil",
        "gitBranch": "evil",
        "tag": "evil",
    }
    writer = Writer()
    place = writer.answer(writer.ask(None, "hello"), "calling", calls=1)
    writer.lines[3]["message"]["content"][0]["input"] = hostile
    writer.lines[4]["toolUseResult"] = hostile
    writer.lines[4]["message"]["content"][0]["content"] = [{"type": "text", "text": json.dumps(hostile)}]
    writer.add(
        "system", place, subtype="local_command", content=hostile, customTitle=["evil"], gitBranch={"x": 1}
    )
    writer.write(config)
    found = row(config)
    assert (found.summary, found.custom_title, found.git_branch, found.tag) == ("hello", None, None, None)


def test_a_prompt_longer_than_any_window_is_listed(config):
    """The list shows its beginning."""
    writer = Writer()
    writer.ask(None, "long " * 40_000)
    writer.write(config)
    found = row(config)
    assert found.first_prompt == ("long " * 40).rstrip() + "…"


def test_a_session_in_a_mounted_or_linked_folder_is_listed(config, tmp_path, writer):
    """Links are followed, where they lead to files."""
    path = writer.write(tmp_path / "elsewhere")
    (config / "projects").mkdir(parents=True)
    (config / "projects" / "-work").symlink_to(path.parent, target_is_directory=True)
    assert row(config).first_prompt == "hello"
    assert row(config, directory="/work").first_prompt == "hello"


@pytest.mark.parametrize("kind", ["pipe", "folder", "loop", "device", "socket"])
def test_what_is_no_file_hides_no_session(config, writer, kind):
    """No function waits for it either."""
    folder = writer.write(config).parent
    name = str(uuid.UUID(int=7))
    path = folder / f"{name}.jsonl"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "loop":
            path.symlink_to(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "socket":
            os.mknod(path, stat.S_IFSOCK | 0o600)
    assert row(config).first_prompt == "hello"
    assert sessions.get_session_info(name, config_dir=config) is None
    assert sessions.get_session_messages(name, config_dir=config) == []
    assert list(sessions.iter_session_messages(name, config_dir=config)) == []
    assert sessions.list_subagents(name, config_dir=config) == []
    for change in (sessions.rename_session, sessions.tag_session):
        with pytest.raises(FileNotFoundError, match="not found"):
            change(name, "x", config_dir=config)
    with pytest.raises(FileNotFoundError, match="not found"):
        sessions.fork_session(name, config_dir=config)


def test_a_huge_line_without_content_takes_no_memory(config, writer):
    """A full disk or a power failure can leave zeros in a file."""
    path = writer.write(config)
    lines = path.read_bytes().splitlines(keepends=True)
    with path.open("wb") as file:
        file.write(b"".join(lines[:2]))
        file.truncate(100 * 1024 * 1024)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + b"".join(lines[2:]))
    tracemalloc.start()
    try:
        assert texts(sessions.get_session_messages(SESSION, config_dir=config)) == ["hello", "hi"]
        assert row(config).first_prompt == "hello"
        assert tracemalloc.get_traced_memory()[1] < 20 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_the_longest_chain_is_read_without_recursion(config):
    """The chain of messages is longer than Python's recursion limit."""
    writer = Writer()
    place = None
    for number in range(5_000):
        place = writer.add("user", place, message={"role": "user", "content": f"{number}"})
    writer.write(config)
    found = sessions.get_session_messages(SESSION, config_dir=config)
    assert [each.message["content"] for each in found] == [f"{number}" for number in range(5_000)]
    copy = sessions.fork_session(SESSION, config_dir=config).session_id
    assert len(sessions.get_session_messages(copy, limit=5, offset=4_990, config_dir=config)) == 5


def test_a_large_session_is_streamed(config):
    """Memory holds one message at a time, whatever the size of the file."""
    writer = Writer()
    place = None
    for number in range(300):
        place = writer.answer(writer.ask(place, f"prompt {number}"), "x" * 100_000)
    size = writer.write(config).stat().st_size
    assert size > 30_000_000
    writer.lines.clear()
    tracemalloc.start()
    try:
        lengths = [
            len(each.message["content"])
            for each in sessions.iter_session_messages(SESSION, config_dir=config)
        ]
        peak = tracemalloc.get_traced_memory()[1]
        assert len(sessions.get_session_messages(SESSION, limit=10, config_dir=config)) == 10
        assert max(peak, tracemalloc.get_traced_memory()[1]) < 4_000_000
    finally:
        tracemalloc.stop()
    assert len(lengths) == 600


@pytest.mark.parametrize("number", [1, 2, 4])
def test_lines_that_name_themselves_or_later_ones_hide_nothing(config, number):
    """Such a parent counts as missing, and the gap is bridged."""
    writer = Writer()
    place = writer.answer(writer.ask(None, "one"), "two")
    writer.answer(writer.ask(place, "three"), "four")
    for other in (writer.lines[number]["uuid"], writer.lines[-1]["uuid"]):
        writer.lines[number]["parentUuid"] = other
        writer.write(config)
        shown = texts(sessions.get_session_messages(SESSION, config_dir=config))
        assert shown == ["one", "two", "three", "four"]


def test_entries_that_are_there_twice_are_shown_once(config, writer):
    """A file may have been joined from two copies."""
    path = writer.write(config)
    path.write_bytes(path.read_bytes() * 2)
    assert texts(sessions.get_session_messages(SESSION, config_dir=config)) == ["hello", "hi"]


def test_all_copies_of_a_session_are_deleted(config, writer):
    """Otherwise an older copy would be listed in its place."""
    writer.write(config)
    writer.write(config, "-other")
    sessions.delete_session(SESSION, config_dir=config)
    assert sessions.list_sessions(config_dir=config) == []


def test_only_the_named_directorys_copy_is_deleted(config, writer):
    """Another directory's copy belongs to another project."""
    writer.write(config)
    writer.write(config, "-other")
    sessions.delete_session(SESSION, "/other", config_dir=config)
    assert row(config, directory="/work").first_prompt == "hello"


def test_a_process_id_that_was_given_to_another_process_does_not_count(config, writer):
    """The CLI records the start time of its process, which must match."""
    path = writer.write(config)
    (config / "sessions").mkdir()
    note = config / "sessions" / f"{os.getpid()}.json"
    note.write_text(json.dumps({"sessionId": SESSION, "procStart": read_state(os.getpid())[1] or "1"}))
    with pytest.raises(SessionRunningError):
        sessions.delete_session(SESSION, config_dir=config)
    if not read_state(os.getpid())[1]:
        pytest.skip("this system does not tell when a process was started")
    note.write_text(json.dumps({"sessionId": SESSION, "procStart": "1"}))
    sessions.delete_session(SESSION, config_dir=config)
    assert not path.exists()


def test_folders_without_end_are_walked(config, writer):
    """The folders are deeper than Python's recursion limit, and a link leads back to the first."""
    folder = writer.write(config).with_suffix("") / "subagents"
    folder.mkdir(parents=True)
    made = [folder]
    try:
        for _ in range(1100):
            made.append(made[-1] / "d")
            made[-1].mkdir()
        (made[-1] / "agent-deep.jsonl").write_text("{}\n")
        (folder / "agent-a1.jsonl").write_text("{}\n")
        (folder / "loop").symlink_to(folder)
        assert sessions.list_subagents(SESSION, config_dir=config) == ["a1", "deep"]
    finally:  # pytest's own clean-up cannot remove such deep folders
        (made[-1] / "agent-deep.jsonl").unlink()
        for each in reversed(made[1:]):
            each.rmdir()


def test_a_session_is_read_while_it_is_written(config):
    """At each length of the file, only complete messages are shown, and never fewer than before."""
    writer = Writer()
    place = None
    for number in range(10):
        place = writer.answer(writer.ask(place, f"prompt {number}"), f"answer {number}")
    raw, path = writer.encode(), writer.write(config)
    shown = []
    for end in range(0, len(raw) + 1, 331):
        path.write_bytes(raw[:end])
        found = texts(sessions.get_session_messages(SESSION, config_dir=config))
        assert found[: len(shown)] == shown
        shown = found
        assert len(sessions.list_sessions(config_dir=config)) == (1 if found else 0)
    path.write_bytes(raw)
    assert len(sessions.get_session_messages(SESSION, config_dir=config)) == 20


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(["u1", "u2", "u3", "u4", None, 5, "\ud800"])
BLOCKS = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "tool_use", "tool_result", "thinking", None])},
        optional={
            "text": VALUES,
            "id": st.sampled_from(["c1", "c2"]) | VALUES,
            "tool_use_id": st.sampled_from(["c1", "c2"]) | VALUES,
            "name": VALUES,
            "input": VALUES,
            "content": VALUES,
        },
    )
    | VALUES,
    max_size=3,
)
ENTRIES = st.fixed_dictionaries(
    {"type": st.sampled_from(["user", "assistant", "system", "attachment", "progress", "tag", "summary", 7])},
    optional={
        "uuid": NAMES,
        "parentUuid": NAMES,
        "logicalParentUuid": NAMES,
        "sourceToolAssistantUUID": NAMES,
        "message": VALUES
        | st.fixed_dictionaries({"content": BLOCKS | VALUES}, optional={"id": NAMES, "model": VALUES}),
        "compactMetadata": VALUES
        | st.fixed_dictionaries(
            {
                "preservedSegment": st.fixed_dictionaries(
                    dict.fromkeys(("headUuid", "anchorUuid", "tailUuid"), NAMES)
                )
            }
        ),
        "replacements": VALUES,
        "toolUseResult": VALUES,
        **dict.fromkeys(
            ("timestamp", "cwd", "gitBranch", "customTitle", "aiTitle", "lastPrompt", "summary", "tag"),
            VALUES,
        ),
        **dict.fromkeys(
            ("isSidechain", "isMeta", "isCompactSummary", "teamName", "sessionId", "origin"), VALUES
        ),
    },
)


@given(lines=st.lists(ENTRIES | VALUES, min_size=1, max_size=8), cut=st.integers(0, 40))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_in_a_file_is_no_error(config, lines, cut):
    """Files have any JSON in any field, and are cut anywhere: every function works; only a fork may be refused."""
    folder = config / "projects" / "-work"
    (folder / SESSION / "subagents").mkdir(parents=True, exist_ok=True)
    raw = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    for path in (folder / f"{SESSION}.jsonl", folder / SESSION / "subagents" / "agent-a.jsonl"):
        path.write_bytes(raw[: len(raw) - cut] if cut < len(raw) else raw)
    shown = sessions.list_sessions(config_dir=config)
    info = sessions.get_session_info(SESSION, config_dir=config)
    assert shown == ([] if info is None else [info])
    messages = sessions.get_session_messages(SESSION, config_dir=config, whole_history=True)
    assert len({each.uuid for each in messages}) == len(messages)
    assert list(sessions.iter_session_messages(SESSION, config_dir=config)) is not None
    assert sessions.list_subagents(SESSION, config_dir=config) == ["a"]
    sessions.get_subagent_messages(SESSION, "a", config_dir=config)
    sessions.search_sessions("a", config_dir=config, include_tool_output=True)
    sessions.check_sessions(config_dir=config)
    sessions.prune_sessions(keep=0, config_dir=config)
    past = Session(SESSION, config_dir=config)
    assert len(past._read_messages(None, 0, whole_history=True)) == len(messages)
    try:
        copy = sessions.fork_session(SESSION, config_dir=config).session_id
    except (ValueError, FileNotFoundError) as error:
        assert "no messages to fork" in str(error) or "not found" in str(error)  # noqa: PT017 - or it is another
    else:
        assert len(sessions.get_session_messages(copy, config_dir=config)) <= len(lines)
        sessions.delete_session(copy, config_dir=config)
