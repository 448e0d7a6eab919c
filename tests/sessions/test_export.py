"""Exports: exact JSONL that can be resumed elsewhere, formats chosen by file name, and no partial files."""

import json
import stat

import pytest

from shared.transcripts import SESSION, Writer, harbour
from toolwire import InMemorySessionStore, sessions
from toolwire.sessions import export, recorded

pytestmark = pytest.mark.anyio


def test_jsonl_is_the_transcript_byte_for_byte(tmp_path):
    """This includes bytes that are not UTF-8 and lines that are not JSON."""
    path = harbour(tmp_path)
    with path.open("ab") as file:
        file.write(b'{"type":"user","x":"\xff\xfe"}\nnot json\n\n')
    text = sessions.export_session(SESSION, "jsonl", config_dir=tmp_path)
    assert text.encode(errors="surrogateescape") == path.read_bytes()


@pytest.mark.parametrize(
    ("last", "kept"), [(b'{"type":"us', b""), (b'{"type":"tag"}', b'{"type":"tag"}\n'), (b"", b"")]
)
def test_a_line_that_is_being_written_is_left_out(tmp_path, last, kept):
    """The CLI may be writing it; a complete last line that only lacks its line break is included."""
    path = harbour(tmp_path)
    before = path.read_bytes()
    path.write_bytes(before + last)
    text = sessions.export_session(SESSION, "jsonl", config_dir=tmp_path)
    assert text.encode() == before + kept


def test_a_folder_gets_everything_that_resumes(tmp_path):
    """It gets the transcript, its subagents with their metadata, and large results, in the CLI's own layout."""
    path = harbour(tmp_path)
    results = path.with_suffix("") / "tool-results"
    results.mkdir()
    (results / "big.txt").write_text("large")
    target = tmp_path / "backup"
    target.mkdir()
    assert sessions.export_session_to_file(SESSION, target, config_dir=tmp_path) == target / path.name
    names = ["", "/subagents/agent-a1", "/subagents/agent-a1.meta"]
    for name in names[:2]:
        copied = target / f"{SESSION}{name}.jsonl"
        assert (
            copied.read_bytes()
            == path.with_name(copied.relative_to(target).parts[0])
            .parent.joinpath(copied.relative_to(target))
            .read_bytes()
        )
    noted = json.loads((target / f"{SESSION}{names[2]}.json").read_text())
    assert noted == {"agentType": "scout", "toolUseId": "t3", "description": "compare"}
    assert (target / SESSION / "tool-results" / "big.txt").read_text() == "large"
    elsewhere = tmp_path / "elsewhere" / "projects"
    elsewhere.mkdir(parents=True)
    target.rename(elsewhere / "-work")
    assert sessions.list_subagents(SESSION, config_dir=elsewhere.parent) == ["a1"]
    assert len(sessions.get_session_messages(SESSION, config_dir=elsewhere.parent)) == 12


async def test_a_store_exports_the_same(tmp_path):
    """Each format is the same for a session in a store, and so is the folder with its subagents."""
    path = harbour(tmp_path)
    store = InMemorySessionStore()
    await sessions.import_session_to_store(SESSION, store, config_dir=tmp_path)
    there = await sessions.export_session_from_store(store, SESSION, "jsonl", "/work")
    assert [json.loads(line) for line in there.splitlines()] == [
        json.loads(line) for line in path.read_text().splitlines()
    ]
    for kind in ("markdown", "html"):
        there = await sessions.export_session_from_store(store, SESSION, kind, "/work")
        here = sessions.export_session(SESSION, kind, config_dir=tmp_path)
        changed = [
            pair for pair in zip(there.splitlines(), here.splitlines(), strict=True) if len(set(pair)) > 1
        ]
        assert len(changed) == 1  # a store does not know when it was last written
        assert "Last written" in changed[0][0]
    loaded = await recorded.load_session(store, SESSION, "/work")
    export.write_export(loaded, tmp_path, "jsonl")
    assert (
        json.loads((tmp_path / SESSION / "subagents" / "agent-a1.meta.json").read_text())["toolUseId"] == "t3"
    )


async def test_a_store_cannot_write_elsewhere(tmp_path, caplog):
    """The names of subagents in a store are not trusted as paths."""
    harbour(tmp_path)
    store = InMemorySessionStore()
    await sessions.import_session_to_store(SESSION, store, config_dir=tmp_path)
    key = {"project_key": "-work", "session_id": SESSION, "subpath": "subagents/../../../agent-evil"}
    await store.append(key, [{"type": "user", "uuid": "u"}])
    loaded = await recorded.load_session(store, SESSION, "/work")
    folder = tmp_path / "a" / "b" / "c"
    folder.mkdir(parents=True)
    export.write_export(loaded, folder, "jsonl")
    assert "unsafe name: 'subagents/../../../agent-evil'" in caplog.text
    assert not list(tmp_path.glob("**/agent-evil*"))
    assert (folder / SESSION / "subagents" / "agent-a1.jsonl").exists()


@pytest.mark.parametrize(
    ("name", "begins"), [("x.md", "# Harbour"), ("x.HTML", "<!doctype html>"), ("x.jsonl", '{"parent')]
)
def test_the_format_follows_from_the_name(tmp_path, name, begins):
    """Only the owner can read the file, and no temporary file is left beside it."""
    harbour(tmp_path)
    target = tmp_path / "out" / name
    target.parent.mkdir()
    assert sessions.export_session_to_file(SESSION, target, config_dir=tmp_path) == target
    assert target.read_text().startswith(begins)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert list(target.parent.iterdir()) == [target]


def test_wrong_use_is_named(tmp_path):
    """For formats, names and ids, the error says what is wrong and what to do."""
    harbour(tmp_path)
    with pytest.raises(ValueError, match="format must be one of markdown, jsonl, html, got 'pdf'"):
        sessions.export_session(SESSION, "pdf", config_dir=tmp_path)
    with pytest.raises(ValueError, match="use the suffix .md, .html or .jsonl"):
        sessions.export_session_to_file(SESSION, tmp_path / "x.pdf", config_dir=tmp_path)
    with pytest.raises(ValueError, match="Invalid session_id"):
        sessions.export_session("--x", config_dir=tmp_path)
    with pytest.raises(FileNotFoundError, match="not found"):
        sessions.export_session(SESSION, config_dir=tmp_path / "empty")


def test_an_export_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    """A partial page could not be told from a complete one."""
    harbour(tmp_path)
    target = tmp_path / "x.html"
    target.write_text("old")

    def fail(_):
        yield "<!doctype html>"
        raise OSError("the disk is gone")

    monkeypatch.setattr("toolwire.sessions.export_html.render", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        sessions.export_session_to_file(SESSION, target, config_dir=tmp_path)
    assert target.read_text() == "old"
    assert not list(tmp_path.glob(".x.html*"))


def test_an_empty_conversation_is_exported(tmp_path):
    """The session has state entries only."""
    writer = Writer()
    writer.note(type="mode", mode="normal")
    writer.write(tmp_path)
    for kind in ("markdown", "html", "jsonl"):
        assert SESSION in sessions.export_session(SESSION, kind, config_dir=tmp_path)
