"""The spool: private files in the CLI's layout, inside its own folder only."""

import stat
from pathlib import Path

import pytest

from shared.transcripts import SESSION, Writer
from toolwire import sessions
from toolwire.sessions.spool import Spool, find_transcript_path, is_temporary

KEY = {"project_key": "-work", "session_id": SESSION}


def test_every_session_function_works_on_a_spool(tmp_path):
    """Its folder is passed as `config_dir`; only the owner can read it."""
    spool, writer = Spool(tmp_path / "spool"), Writer()
    writer.answer(writer.ask(None, "Where is the key?"), "Under the mat.")
    for line in writer.lines:
        path = spool.add(KEY, [line])
    assert len(sessions.get_session_messages(SESSION, config_dir=spool.folder)) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    spool.remove(KEY)
    assert spool.find(KEY) is None
    spool.remove(KEY)


def test_a_copy_leaves_out_what_a_store_never_gets(tmp_path):
    """A newer copy replaces an older one."""
    spool, writer = Spool(tmp_path / "spool"), Writer()
    writer.ask(None, "x")
    writer.note(type="api-request")
    (tmp_path / "source.jsonl").write_bytes(writer.encode())
    for _ in range(2):
        path = spool.copy(KEY, tmp_path / "source.jsonl")
    assert len(path.read_text().splitlines()) == len(writer.lines) - 1


@pytest.mark.parametrize("project", ["../x", "", "a/b", "..", "a\0b", "C:", "n" * 500])
def test_no_project_leads_out_of_it(tmp_path, project):
    """No file is found or written for such a key."""
    spool = Spool(tmp_path / "deep" / "spool")
    assert spool.find({**KEY, "project_key": project}) is None
    with pytest.raises(OSError, match="cannot be used as a file name"):
        spool.add({**KEY, "project_key": project}, [{"type": "user"}])
    assert not list(tmp_path.rglob("*.jsonl"))


def test_a_subpath_is_a_file_below():
    """A subpath that leads elsewhere gives None."""
    assert find_transcript_path(Path("/s"), "subagents/agent-a.b") == Path("/s/subagents/agent-a.b.jsonl")
    assert find_transcript_path(Path("/s"), "a/../b") is None


def test_files_for_a_while_are_known(tmp_path, monkeypatch):
    """A path through a link is recognised too."""
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "tmp")
    assert is_temporary(tmp_path / "link" / "x.jsonl")
    assert not is_temporary(tmp_path / "home" / "x.jsonl")
