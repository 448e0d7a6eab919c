"""Finds transcripts on disk: where the CLI keeps those of a directory, and everything that belongs to one session.

Owns the layout of the CLI's folder. The content of the files is handled in `sessions/entries` and `sessions/tree`.
"""

import itertools
import os
import re
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolwire._protocol import json_codec
from toolwire._support.log import logger_for
from toolwire._support.processes import is_running, read_state
from toolwire.sessions.entries import is_session_id, read_line

logger = logger_for("sessions")

Directory = str | os.PathLike[str]

_KEY_LENGTH: Final = 200
UNFINISHED: Final = ".unfinished"
"""The suffix of a transcript that was set aside because it has no messages."""
_GIT_TIMEOUT: Final = 5.0
_CWD_LINES: Final = 50
"""The number of lines of a transcript that are searched for its directory."""


@dataclass(frozen=True)
class SessionFile:
    """The transcript of one session, as it was found."""

    path: Path
    size: int
    mtime_ns: int
    version: str = ""
    """Changes whenever the file changes, as far as the file system shows."""

    @property
    def session_id(self) -> str:
        """The id, which is the file's name."""
        return self.path.stem

    @property
    def mtime(self) -> int:
        """When it was last written, in milliseconds since 1970."""
        return self.mtime_ns // 1_000_000

    @property
    def folder(self) -> Path:
        """The folder beside it, for subagents and large tool results. It need not exist."""
        return self.path.with_suffix("")

    @property
    def config_folder(self) -> Path:
        """The CLI's folder that contains it."""
        return self.path.parents[2]


def find_config_folder(config_dir: Directory | None = None) -> Path:
    """Return the CLI's folder: the given one, else `CLAUDE_CONFIG_DIR`, else `~/.claude`."""
    return Path(config_dir or os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")


def find_config_dir(env: Mapping[str, str]) -> Directory | None:
    """Return the CLI's folder if the environment of a run sets it, else None."""
    if folder := env.get("CLAUDE_CONFIG_DIR"):
        return folder
    return (
        Path(home, ".claude") if (home := env.get("HOME")) and "CLAUDE_CONFIG_DIR" not in os.environ else None
    )


def project_key_for_directory(directory: Directory | None = None) -> str:
    """Return the name of the folder in which the CLI keeps the sessions of a directory (None: the current one).

    Several directories can have the same key (`/a/b-c` and `/a/b/c`); only `cwd` in the transcript is unambiguous.
    """
    return make_key(find_directory(directory))


def find_directory(directory: Directory | None = None) -> str:
    """Return the absolute path of a directory with links resolved, as the CLI uses it (None: the current one)."""
    return os.path.realpath(directory or os.curdir)


def make_key(path: str) -> str:
    """Return the key of an absolute path. The CLI is JavaScript: it counts UTF-16 units, not characters."""
    raw = os.fsencode(path).decode(errors="replace").encode("utf-16-le")
    units = [int.from_bytes(raw[at : at + 2], "little") for at in range(0, len(raw), 2)]
    key = "".join(chr(unit) if chr(unit).isascii() and chr(unit).isalnum() else "-" for unit in units)
    return key if len(key) <= _KEY_LENGTH else f"{key[:_KEY_LENGTH]}-{_hash(units)}"


def _hash(units: list[int]) -> str:
    """Return JavaScript's usual 32-bit hash of a text, in base 36."""
    number = 0
    for unit in units:
        number = (number * 31 + unit) & 0xFFFFFFFF
    number = abs(number - (1 << 32) if number >= 1 << 31 else number)
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits or "0"


def find_project_folders(
    directory: Directory | None, config_dir: Directory | None, *, include_worktrees: bool = True
) -> list[Path]:
    """Return the folders with the sessions of a directory and its git worktrees; with None, of all directories."""
    projects = find_config_folder(config_dir) / "projects"
    if directory is None:
        return sorted(
            (Path(each.path) for each in _scan(projects) if each.is_dir()), key=lambda each: each.name
        )
    places = [os.path.realpath(directory)]
    if include_worktrees:
        places += [os.path.realpath(each) for each in find_worktrees(directory)]
    folders = [folder for place in places for folder in _find_folders(projects, place)]
    return list(dict.fromkeys(folders))


def _find_folders(projects: Path, place: str) -> list[Path]:
    """Return the folder with the sessions of an absolute path, also under the names that older CLIs use."""
    key = make_key(place)
    folders = [projects / key]
    if len(key) > _KEY_LENGTH:  # older CLIs had another hash: compare the first part, and check `cwd`
        alike = (each for each in _scan(projects) if each.name.startswith(key[: _KEY_LENGTH + 1]))
        folders += [
            Path(each.path) for each in alike if each.name != key and _belongs_to(Path(each.path), place)
        ]
    return folders


def _belongs_to(folder: Path, place: str) -> bool:
    """Return True if the transcripts in a folder belong to a directory, judging by the first `cwd` found."""
    for file in list_session_files([folder]):
        with suppress(OSError), file.path.open("rb") as lines:
            for line in itertools.islice(lines, _CWD_LINES):
                cwd = (read_line(line) or {}).get("cwd")
                if isinstance(cwd, str):
                    return os.path.realpath(cwd) == place
    return False


def find_worktrees(directory: Directory) -> list[str]:
    """Return the git worktrees that share a repository with a directory; an empty list if there are none."""
    if not _may_have_worktrees(Path(directory)):
        return []
    try:
        done = subprocess.run(  # noqa: S603 - no shell, and the directory is an argument of its own
            ["git", "-C", os.fspath(directory), "worktree", "list", "--porcelain"],  # noqa: S607 - the user's own git
            capture_output=True,
            timeout=_GIT_TIMEOUT,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    lines = done.stdout.splitlines()
    return [os.fsdecode(each.removeprefix(b"worktree ")) for each in lines if each.startswith(b"worktree ")]


def _may_have_worktrees(directory: Path) -> bool:
    """Return False if a directory is certainly in no repository with worktrees, so that git need not be started."""
    with suppress(OSError):
        place = directory.resolve()
        for each in (place, *place.parents):
            if (git := each / ".git").exists():
                return git.is_file() or (git / "worktrees").exists()
    return False


def list_session_files(folders: Iterable[Path]) -> Iterator[SessionFile]:
    """Yield the transcripts in these folders, newest first; if a session is in several folders, its newest file.

    All files are listed before the first one is yielded; none is opened.
    """
    found: dict[str, tuple[int, str, int, int, int]] = {}
    for folder in folders:
        place = os.fspath(folder)
        for name, status in _stat_sessions(folder):
            older = -status.st_mtime_ns
            other = found.get(name)
            if status.st_size and (other is None or older < other[0]):
                found[name] = older, place, status.st_size, status.st_ctime_ns, status.st_ino
    for older, name in sorted((seen[0], name) for name, seen in found.items()):
        _, place, size, changed, number = found.pop(name)
        yield _make_file(Path(place, name), size, -older, changed, number)


def _stat_sessions(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield name and status of each transcript in a folder."""
    for each in _scan(folder):
        if each.name.endswith(".jsonl") and is_session_id(each.name[:-6]):
            status = _stat(each.path, each.stat)
            if status is not None:
                yield each.name, status


def list_transcripts(folder: Path) -> Iterator[tuple[str, str, SessionFile]]:
    """Yield every transcript in a project's folder: session, subpath (empty for the main one), and the file."""
    folders = {each.name for each in _scan(folder) if not each.name.endswith(".jsonl")}
    for name, status in _stat_sessions(folder):
        if not status.st_size:
            continue
        file = _make_file_of(folder / name, status)
        yield file.session_id, "", file
        for below in list_subagent_files(file.folder) if name[:-6] in folders else []:
            if (found := stat_session(below)) is not None:
                yield file.session_id, below.relative_to(file.folder).with_suffix("").as_posix(), found


def stat_session(path: Path) -> SessionFile | None:
    """Return the status of a transcript; None if it does not exist or is not a regular file."""
    status = _stat(path, path.stat)
    return None if status is None else _make_file_of(path, status)


def _stat(path: Directory, look: Callable[[], os.stat_result]) -> os.stat_result | None:
    try:
        status = look()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        logger.warning("cannot read the session %s: %s", path, error)
        return None
    if not stat.S_ISREG(status.st_mode):
        logger.warning("cannot read the session %s: it is not a plain file", path)
        return None
    return status


def _make_file_of(path: Path, status: os.stat_result) -> SessionFile:
    return _make_file(path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def _make_file(path: Path, size: int, modified: int, changed: int, number: int) -> SessionFile:
    return SessionFile(path, size, modified, f"{size}:{modified}:{changed}:{number}")


def find_session(
    session_id: str, directory: Directory | None = None, config_dir: Directory | None = None
) -> SessionFile | None:
    """Return the transcript of a session of a directory or its worktrees; with None, of any directory.

    An empty file is ignored. The id may be in upper case; the CLI writes it in lower case.
    """
    if not is_session_id(session_id):
        return None
    own = find_project_folders(directory, config_dir, include_worktrees=False)
    file = _newest_of(session_id, own)
    if file is None and directory is not None:
        file = _newest_of(session_id, find_project_folders(directory, config_dir))
    return file


def _newest_of(session_id: str, folders: list[Path]) -> SessionFile | None:
    files = find_copies(session_id, folders)
    return max((each for each in files if each.size), key=lambda each: each.mtime_ns, default=None)


def find_copies(session_id: str, folders: list[Path]) -> list[SessionFile]:
    """Return the transcripts of a session in these folders, including empty ones. Usually there is one."""
    names = dict.fromkeys((session_id, session_id.lower()))
    files = [stat_session(folder / f"{name}.jsonl") for folder in folders for name in names]
    return [each for each in files if each is not None]


def list_subagent_files(folder: Path) -> list[Path]:
    """Return the transcripts of a session's subagents, including workflows, sorted by name within each folder."""
    found = walk(folder / "subagents")
    return [
        Path(each.path) for each in found if re.fullmatch(r"agent-.+\.jsonl", each.name) and each.is_file()
    ]


def walk(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield all files below a folder, at any depth, sorted by name within each folder. Follows no links."""
    waiting = [folder]
    while waiting:
        entries = sorted(_scan(waiting.pop()), key=lambda each: each.name)
        folders = [each for each in entries if each.is_dir(follow_symlinks=False)]
        yield from (each for each in entries if each not in folders)
        waiting += [Path(each.path) for each in reversed(folders)]


def read_subagent_metadata(path: Path) -> dict[str, Any]:
    """Return the metadata that the CLI keeps beside a subagent's transcript; empty if missing or unreadable."""
    try:
        metadata = json_codec.loads(path.with_suffix(".meta.json").read_bytes(), lone_surrogates=True)
    except (OSError, ValueError):
        return {}
    return metadata if isinstance(metadata, dict) else {}


def list_traces(file: SessionFile) -> list[Path]:
    """Return every file and folder that is kept for a session, its transcript last."""
    folder, name = file.config_folder, file.session_id
    others = [file.folder, folder / "file-history" / name, folder / "session-env" / name]
    others.append(file.path.with_name(file.path.name + UNFINISHED))
    return [*(each for each in others if os.path.lexists(each)), file.path]


def list_tool_results(folder: Path) -> list[Path]:
    """Return the files with large tool results, in the folder beside a transcript."""
    entries = sorted(_scan(folder / "tool-results"), key=lambda each: each.name)
    return [Path(each.path) for each in entries if each.is_file(follow_symlinks=False)]


def find_running_process(session_id: str, config_dir: Directory | None = None) -> int | None:
    """Return the id of the process that has a session open, or None."""
    return list_running_sessions(config_dir).get(session_id)


def list_running_sessions(config_dir: Directory | None = None) -> dict[str, int]:
    """Return the open sessions and the ids of their processes, from the files in which the CLI records them."""
    running: dict[str, int] = {}
    for each in _scan(find_config_folder(config_dir) / "sessions"):
        try:
            noted = json_codec.loads(Path(each.path).read_bytes())
            process = int(each.name.removesuffix(".json"))
        except (OSError, ValueError):
            continue
        session_id = noted.get("sessionId") if isinstance(noted, dict) else None
        if isinstance(session_id, str) and is_running(process):
            started, now = noted.get("procStart"), read_state(process)[1]
            if not isinstance(started, str) or not now or now == started:  # otherwise the id was reused
                running[session_id] = process
    return running


def list_folder(folder: Path, on_error: Callable[[OSError], object] | None = None) -> list[Path]:
    """Return the content of a folder, sorted by name; an empty list if it does not exist."""
    return sorted(Path(each.path) for each in _scan(folder, on_error))


def _scan(folder: Path, on_error: Callable[[OSError], object] | None = None) -> Iterator[os.DirEntry[str]]:
    """Yield the content of a folder; nothing if it does not exist. Errors are logged, or passed to `on_error`."""
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        if on_error is None:
            logger.warning("cannot read the folder of sessions %s: %s", folder, error)
        else:
            on_error(error)
