"""`check_sessions` finds problems in session files and names them."""

import errno
import os
import uuid

import pytest

from shared.transcripts import SESSION, Writer
from toolwire import sessions
from toolwire.sessions import transcript

pytestmark = pytest.mark.skipif(os.name != "posix", reason="permissions and pipes")


@pytest.fixture
def config(tmp_path):
    """Return a CLI's folder with one good session."""
    config = tmp_path / "config"
    save(good(), config)
    return config


def good():
    """Return a conversation without problems."""
    writer = Writer()
    writer.answer(writer.ask(None, "hello"), "hi", calls=2)
    return writer


def save(writer, config, key="-work"):
    """Write a session as the CLI does, for its owner only."""
    path = writer.write(config, key)
    path.chmod(0o600)
    return path


def kinds(config, **more):
    """Return the kinds of the problems that are found."""
    return [problem.kind for problem in sessions.check_sessions(config_dir=config, **more)]


def test_a_good_session_has_no_problem(config):
    """Parallel calls are no problem either."""
    assert kinds(config) == []


def test_no_sessions_are_no_problem(tmp_path):
    """A folder that does not exist yet is no problem."""
    assert kinds(tmp_path / "nothing") == []


def change(number, **fields):
    """Return a function that changes an entry of the good session."""

    def apply(config):
        writer = good()
        writer.lines[number].update(fields)
        save(writer, config)

    return apply


def write_bytes(make):
    """Return a function that changes the bytes of the good session."""

    def apply(config):
        path = save(good(), config)
        path.write_bytes(make(path.read_bytes()))

    return apply


def add_file(name, content=b"{}\n", mode=0o600):
    """Return a function that adds a file to the CLI's folder."""

    def apply(config):
        path = config / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)

    return apply


OTHER = str(uuid.UUID(int=77))
FOLDER = f"projects/-work/{SESSION}/subagents"
LINE = Writer()
LINE.ask(None, "x")


@pytest.mark.parametrize(
    ("spoil", "kind", "text"),
    [
        (write_bytes(lambda raw: raw + b'{"type":"us'), "torn_line", "is torn"),
        (
            write_bytes(lambda raw: b"\xff\xfe\n" + raw),
            "bad_line",
            "1 lines cannot be read, the first at byte 0",
        ),
        (write_bytes(lambda raw: raw.replace(b"\n", b"\n\0\0\n", 1)), "bad_line", "1 lines"),
        (write_bytes(lambda _: b""), "empty", "is empty"),
        (write_bytes(lambda raw: raw[raw.index(b"\n") + 1 :]), "gap", "1 entries have a missing parent"),
        (write_bytes(lambda raw: raw + raw.splitlines(keepends=True)[0]), "duplicate_uuid", "1 entries"),
        (change(0, parentUuid=str(uuid.UUID(int=3))), "cycle", "cycle"),
        (change(0, parentUuid=str(uuid.UUID(int=1))), "cycle", "cycle"),
        (add_file(f"projects/-other/{SESSION}.jsonl", LINE.encode()), "duplicate_session", "also in"),
        (
            add_file(f"projects/-work/{OTHER}/subagents/agent-a1.jsonl", LINE.encode()),
            "orphan",
            "without a transcript",
        ),
        (add_file(f"{FOLDER}/agent-a1.meta.json"), "orphan", "whose transcript is missing"),
        (add_file(f"file-history/{OTHER}/x"), "orphan", "copies of your files"),
        (add_file(f"session-env/{OTHER}/x"), "orphan", "a session that no longer exists"),
        (add_file(f"projects/-work/{OTHER}.jsonl", LINE.encode(), 0o644), "permissions", "0644"),
        (add_file(f"{FOLDER}/agent-a1.jsonl", b"nothing\n"), "bad_line", "1 lines"),
    ],
)
def test_a_problem_is_found(config, spoil, kind, text):
    """It is reported with its kind, the file, the session, and what it means."""
    spoil(config)
    [problem] = sessions.check_sessions(config_dir=config)
    assert problem.kind == kind
    assert text in problem.message
    assert problem.session_id in {SESSION, OTHER}
    assert str(config) in problem.path


def test_what_is_no_file_is_not_opened(config):
    """Reading a pipe would wait forever."""
    folder = config / "projects" / "-work"
    os.mkfifo(folder / f"{uuid.UUID(int=1)}.jsonl")
    (folder / f"{uuid.UUID(int=2)}.jsonl").mkdir()
    (folder / f"{uuid.UUID(int=3)}.jsonl").symlink_to(folder / f"{uuid.UUID(int=3)}.jsonl")
    (folder / f"{uuid.UUID(int=4)}.jsonl").symlink_to("/dev/zero")
    assert kinds(config) == ["unreadable"] * 4


def test_only_a_directorys_sessions_are_checked_if_it_is_named(config):
    """Problems of other directories are then not reported."""
    add_file(f"file-history/{OTHER}/x")(config)
    add_file(f"projects/-other/{OTHER}.jsonl", b"bad\n")(config)
    assert kinds(config, directory="/work") == []
    assert kinds(config, directory="/other") == ["bad_line"]
    assert sorted(kinds(config)) == ["bad_line"]


def test_progress_is_reported_in_bytes(config):
    """The last report has the total."""
    seen = []
    sessions.check_sessions(config_dir=config, on_progress=lambda *step: seen.append(step))
    size = next(config.rglob("*.jsonl")).stat().st_size
    assert seen == [(size, size)]


def test_a_transcript_whose_disk_fails_is_named(config, monkeypatch):
    """An error of reading knows no path."""

    def fail(*_, **__):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(transcript, "read_entries", fail)
    [problem] = sessions.check_sessions(config_dir=config)
    assert (problem.kind, problem.session_id) == ("unreadable", SESSION)
    assert problem.path.endswith(f"{SESSION}.jsonl")
