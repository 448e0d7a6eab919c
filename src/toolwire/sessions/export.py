"""Exports a session: as Markdown or an HTML page for people, or as JSONL from which it can be resumed elsewhere."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, Literal, get_args

from toolwire._support.files import replace_file
from toolwire._support.log import logger_for
from toolwire.sessions import paths, recorded
from toolwire.sessions.paths import Directory
from toolwire.sessions.recorded import RecordedSession
from toolwire.sessions.spool import find_transcript_path
from toolwire.sessions.types import SessionStore

logger = logger_for("sessions")

ExportFormat = Literal["markdown", "jsonl", "html"]

SUFFIXES: Final[dict[ExportFormat, str]] = {"markdown": ".md", "jsonl": ".jsonl", "html": ".html"}
_OTHER_SUFFIXES: Final[dict[str, ExportFormat]] = {".markdown": "markdown", ".htm": "html"}


def export_session(
    session_id: str,
    format: ExportFormat = "markdown",
    directory: Directory | None = None,
    *,
    config_dir: Directory | None = None,
) -> str:
    """Return a session as text. FileNotFoundError if there is no such session.

    `markdown` and `html` are for people, with subagents at the call that started them. `jsonl` is the main
    transcript, line by line; bytes in it that are not UTF-8 are decoded with `surrogateescape`. For a large
    session, or to include subagents as `jsonl`, use `export_session_to_file`.
    """
    check_format(format)
    session = recorded.open_session(session_id, directory, config_dir)
    return _join(render(session, format))


async def export_session_from_store(
    session_store: SessionStore,
    session_id: str,
    format: ExportFormat = "markdown",
    directory: Directory | None = None,
) -> str:
    """Return a session in a store as text, as `export_session` does."""
    check_format(format)
    return _join(render(await recorded.load_session(session_store, session_id, directory), format))


def export_session_to_file(
    session_id: str,
    path: Directory,
    format: ExportFormat | None = None,
    directory: Directory | None = None,
    *,
    config_dir: Directory | None = None,
) -> Path:
    """Write a session to a file in pieces, and return its path. The file name determines the format.

    If `path` is a folder, the file is named by the session id; as `jsonl` (the default there) it gets its subagents
    and large tool results beside it, as the CLI keeps them. The file is written completely or not at all, and only
    its owner can read it.
    """
    target = Path(path)
    chosen = choose_format(target, format)
    return write_export(recorded.open_session(session_id, directory, config_dir), target, chosen)


def choose_format(path: Path, format: str | None = None) -> ExportFormat:
    """Return the format of a file: the given one, else by its name. ValueError if the name has no known suffix."""
    if format is not None:
        return check_format(format)
    if path.is_dir():
        return "jsonl"
    by_suffix = {suffix: name for name, suffix in SUFFIXES.items()} | _OTHER_SUFFIXES
    found = by_suffix.get(path.suffix.lower())
    if found is None:
        raise ValueError(
            f"the format of {path.name!r} is unknown: use the suffix .md, .html or .jsonl, or pass format="
        )
    return found


def check_format(format: str) -> ExportFormat:
    """Return the format. ValueError if there is no such format."""
    for each in get_args(ExportFormat):
        if each == format:
            return each  # type: ignore[no-any-return]
    raise ValueError(f"format must be one of {', '.join(get_args(ExportFormat))}, got {format!r}")


def render(session: RecordedSession, format: ExportFormat) -> Iterator[bytes]:
    """Yield a session in a format, in pieces."""
    if format == "jsonl":
        return session.main.read_lines()
    if format == "html":
        from toolwire.sessions import export_html  # noqa: PLC0415 - loads a Markdown parser

        return _encode(export_html.render(session))
    from toolwire.sessions import export_markdown  # noqa: PLC0415

    return _encode(export_markdown.render(session))


def write_export(
    session: RecordedSession,
    path: Path,
    format: ExportFormat,
    on_progress: Callable[[int, int], object] | None = None,
) -> Path:
    """Write a session to a file, or into a folder; return the file.

    `on_progress(done, total)` is called with bytes; the total is estimated from the size of the transcript.
    """
    into_folder = path.is_dir()
    target = path / f"{session.session_id}{SUFFIXES[format]}" if into_folder else path
    if into_folder and format == "jsonl":
        _write_beside(session, path / session.session_id)
    replace_file(target, _watch(render(session, format), session.file_size or 0, on_progress))
    return target


def _watch(
    pieces: Iterable[bytes], total: int, on_progress: Callable[[int, int], object] | None
) -> Iterator[bytes]:
    done = 0
    for piece in pieces:
        yield piece
        done += len(piece)
        if on_progress is not None:
            on_progress(min(done, total), total)


def _write_beside(session: RecordedSession, folder: Path) -> None:
    """Write the files that the CLI keeps beside a transcript: subagents, and large tool results."""
    for subpath, each in session.subagents.items():
        target = find_transcript_path(folder, subpath)
        if target is None:
            logger.warning(
                "skipped a transcript of session %s with an unsafe name: %r", session.session_id, subpath
            )
            continue
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(target, each.read_lines())
        if each.metadata:
            metadata = recorded.write_value(dict(each.metadata)).encode()
            replace_file(target.with_suffix(".meta.json"), [metadata])
    for path in [] if session.folder is None else paths.list_tool_results(session.folder):
        target = folder / "tool-results" / path.name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with path.open("rb") as file:
            replace_file(target, iter(lambda: file.read(1 << 20), b""))


def _encode(pieces: Iterable[str]) -> Iterator[bytes]:
    return (piece.encode() for piece in pieces)


def _join(pieces: Iterable[bytes]) -> str:
    return b"".join(pieces).decode(errors="surrogateescape")
