"""`toolwire sessions`: the command group for past conversations, on disk and in stores.

`sessions_place` finds and changes sessions; `sessions_report` and `sessions_cost` print them.
"""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolwire._support.words import count, plain
from toolwire.cli.shared.app import make_app
from toolwire.cli.shared.printing import FAILURE, note, show_json, size
from toolwire.cli.shared.progress import show_progress
from toolwire.cli.shared.quantities import parse_age, parse_size, parse_time
from toolwire.cli.shared.target_options import JsonOption
from toolwire.errors import UsageError

if TYPE_CHECKING:
    from toolwire.cli.sessions_place import Place, Scope

SessionArgument = Annotated[
    str, typer.Argument(metavar="SESSION", help="The id of the session, or its first characters.")
]
DirectoryArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="DIRECTORY",
        help="Sessions of this directory and its git worktrees. Default: the current one.",
    ),
]
DirectoryOption = Annotated[
    Path | None,
    typer.Option(
        "--directory",
        "-C",
        metavar="DIRECTORY",
        help="Only sessions of this directory and its git worktrees.",
    ),
]
AllOption = Annotated[bool, typer.Option("--all", "-a", help="Sessions of all directories.")]
ConfigOption = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="The CLI's folder. Default: $CLAUDE_CONFIG_DIR, or ~/.claude."),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        metavar="STORE", help="Use a store instead of the disk: sqlite:FILE, postgresql://..., redis://..."
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
SinceOption = Annotated[
    str | None,
    typer.Option(
        metavar="WHEN", help="Only since then: 12h, 7d, 4w (today included), or 2026-11-01, in UTC."
    ),
]


@dataclass(frozen=True)
class Where:
    """Where a command looks for single sessions: in all directories, unless one is named."""

    directory: DirectoryOption = None
    store: StoreOption = None
    config_dir: ConfigOption = None

    def open(self) -> "AbstractContextManager[Place]":
        """Open the place with these sessions."""
        scope = _make_scope(self.directory, self.directory is None, self.config_dir)
        return _open(self.store, scope)


class Format(StrEnum):
    """The formats of an export."""

    MARKDOWN = "markdown"
    JSONL = "jsonl"
    HTML = "html"


class By(StrEnum):
    """How the costs are grouped."""

    SESSION = "session"
    DAY = "day"
    PROJECT = "project"
    MODEL = "model"
    TAG = "tag"


def list_(  # noqa: PLR0917 - typer takes them by position
    directory: DirectoryArgument = None,
    everything: AllOption = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="How many to show; 0 for all.")] = 20,
    offset: Annotated[int, typer.Option(min=0, help="Skip this many of the newest.")] = 0,
    tag: Annotated[str | None, typer.Option(metavar="TAG", help="Only sessions with this tag.")] = None,
    store: StoreOption = None,
    config_dir: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """List sessions, newest first. Ids are shortened on a terminal, and complete in a pipe.

    Examples:

      toolwire sessions list

      toolwire sessions list --all --tag travel

      toolwire sessions list --all --json
    """
    from toolwire.cli import sessions_report  # noqa: PLC0415

    with _open(store, _make_scope(directory, everything, config_dir)) as place:
        if tag is None:
            rows = place.list_rows(limit, offset)
        else:
            rows = [row for row in place.list_rows(0) if row.tag == tag][offset:]
            rows = rows[:limit] if limit else rows
        name = place.name
    if json:
        show_json([sessions_report.as_json(row) for row in rows])
    elif not rows:
        where = "" if everything else f" of {directory or Path.cwd()}"
        note(f"No sessions{where} in {name}.{'' if everything else ' --all lists those of all directories.'}")
    else:
        sessions_report.show_sessions(rows, with_directory=everything)


def show(
    *,
    session: SessionArgument,
    full: Annotated[
        bool, typer.Option("--full", help="Also show thinking, all output of tools, and subagents.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, help="Show only this many of the last messages; 0 for all.")
    ] = 0,
    where: Where,
    json: JsonOption = False,
) -> None:
    """Show a conversation.

    Examples:

      toolwire sessions show 6f1c2d

      toolwire sessions show 6f1c2d --full | less

      toolwire sessions show 6f1c2d --json --limit 10
    """
    from toolwire.cli import sessions_report  # noqa: PLC0415
    from toolwire.sessions.cost import read_cost  # noqa: PLC0415
    from toolwire.sessions.export_header import describe_header  # noqa: PLC0415

    with where.open() as place:
        found = place.open(place.find(session))
        info = found.describe()
        if json:
            messages = found.read_messages(limit)
            sessions_report.show_session_json(sessions_report.as_json(info), messages)
            return
        header = describe_header(info, read_cost(found))
        sessions_report.show_conversation(found, header.facts, header.title, full=full, limit=limit)


def search(  # noqa: PLR0917
    words: Annotated[
        list[str], typer.Argument(metavar="WORD", help="Words that must all occur; 'in quotes' for a phrase.")
    ],
    directory: DirectoryOption = None,
    everything: AllOption = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="How many to show; 0 for all.")] = 20,
    tag: Annotated[str | None, typer.Option(metavar="TAG", help="Only sessions with this tag.")] = None,
    since: SinceOption = None,
    until: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only before this time. As for --since.")
    ] = None,
    tool: Annotated[
        str | None, typer.Option(metavar="TOOL", help="Only calls of this tool; mcp__shop__* for several.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Only messages of models whose name contains this.")
    ] = None,
    branch: Annotated[
        str | None, typer.Option(metavar="BRANCH", help="Only messages on this git branch.")
    ] = None,
    output: Annotated[bool, typer.Option("--output", help="Also search the output of tools.")] = False,
    store: StoreOption = None,
    config_dir: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Search messages, best matches first. The first search reads all transcripts, later ones only new entries.

    Exits with 1 if nothing was found.

    Examples:

      toolwire sessions search --all harbour festival

      toolwire sessions search --all --since 2026-01-01 --tool Bash visitors
    """
    from toolwire.cli import sessions_report  # noqa: PLC0415

    now = datetime.now(UTC)
    filters = {
        "tag": tag,
        "since": None if since is None else parse_time("--since", since, now),
        "until": None if until is None else parse_time("--until", until, now),
        "tool": tool,
        "model": model,
        "branch": branch,
    }
    query = " ".join(f'"{word}"' if " " in word and '"' not in word else word for word in words)
    scope = _make_scope(directory, everything, config_dir)
    with _open(store, scope) as place, show_progress("Reading transcripts") as move:
        hits = place.search(query, limit, filters, move, output=output)
    if json:
        show_json([sessions_report.as_json(hit) for hit in hits])
    elif hits:
        sessions_report.show_hits(hits)
    else:
        note(f"Nothing found.{'' if everything else ' --all searches in all directories.'}")
    if not hits:
        raise typer.Exit(FAILURE)


def export(
    *,
    session: SessionArgument,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE|FOLDER", help="Where to write. Default: stdout."),
    ] = None,
    format: Annotated[
        Format | None,
        typer.Option(
            "--format", "-f", help="The format. Default: by the ending of the file, or else markdown."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    where: Where,
) -> None:
    """Export a session: as Markdown or one HTML page to read, or as JSONL to resume it elsewhere.

    JSONL in a folder includes the subagents, in separate files as Claude Code stores them.

    Examples:

      toolwire sessions export 6f1c2d > conversation.md

      toolwire sessions export 6f1c2d -o conversation.html

      toolwire sessions export 6f1c2d -f jsonl -o backup/
    """
    from toolwire.sessions import export as exports  # noqa: PLC0415

    with where.open() as place:
        found = place.open(place.find(session))
        if output is None:
            _write_to_stdout(exports.render(found, exports.check_format(format or Format.MARKDOWN)))
            return
        goal = Path(output)
        if output.endswith(("/", os.sep)):
            goal.mkdir(parents=True, exist_ok=True)
        chosen = exports.choose_format(goal, format)
        target = goal / f"{found.session_id}{exports.SUFFIXES[chosen]}" if goal.is_dir() else goal
        if target.exists() and not force:
            raise UsageError(f"{target} already exists; --force replaces it")
        with show_progress("Exporting") as move:
            written = exports.write_export(found, goal, chosen, move)
        left_out = len(found.subagents) if chosen == "jsonl" and not goal.is_dir() else 0
    typer.echo(plain(f"Wrote {written} ({size(written.stat().st_size)})"))
    if left_out:
        note(f"The file does not include {count(left_out, 'subagent')}: export to a folder to include them")


def _write_to_stdout(pieces: Iterator[bytes]) -> None:
    """Write bytes as they are; on a terminal, without control characters."""
    if sys.stdout.isatty():
        for piece in pieces:
            typer.echo(plain(piece.decode(errors="replace")), nl=False)
        return
    stdout = typer.get_binary_stream("stdout")
    for piece in pieces:
        stdout.write(piece)
    stdout.flush()


def cost(  # noqa: PLR0917
    session: Annotated[
        str | None,
        typer.Argument(metavar="SESSION", help="Only this session: its id, or its first characters."),
    ] = None,
    directory: DirectoryOption = None,
    everything: AllOption = False,
    by: Annotated[By | None, typer.Option(help="Group by this. Default: by day, then by model.")] = None,
    since: SinceOption = None,
    until: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only up to this day, included. As for --since.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Also draw a chart.")] = None,
    store: StoreOption = None,
    config_dir: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Show the cost of sessions, including all their resumes and subagents.

    The dollars are those that Claude Code recorded. Where it did not (it was killed, or still runs), only tokens
    are known, and a + after the dollars means that the cost is higher.

    Examples:

      toolwire sessions cost

      toolwire sessions cost --all --by project --since 4w

      toolwire sessions cost 6f1c2d --json

      toolwire sessions cost --all --by day --plot cost.svg
    """
    from toolwire.cli import sessions_cost  # noqa: PLC0415
    from toolwire.sessions.cost import read_cost  # noqa: PLC0415

    if session is not None:
        given = {"--all": everything, "--by": by, "--since": since, "--until": until, "--plot": plot}
        if wrong := [name for name, value in given.items() if value]:
            raise UsageError(f"{', '.join(wrong)} cannot be used with the cost of a single session")
        with Where(directory, store, config_dir).open() as place:
            single = read_cost(place.open(place.find(session)))
        if json:
            show_json(sessions_cost.cost_as_json(single))
        else:
            sessions_cost.show_session_cost(single)
        return
    now = datetime.now(UTC)
    start = None if since is None else parse_time("--since", since, now)
    end = None if until is None else parse_time("--until", until, now)
    with _open(store, _make_scope(directory, everything, config_dir)) as place:
        with show_progress("Reading transcripts") as move:
            report = place.report_costs(start, end, move)
        if plot is not None:
            plot.write_text(sessions_cost.draw_svg(report, by.value if by else "day"), encoding="utf-8")
    if json:
        show_json(sessions_cost.report_as_json(report))
    else:
        sessions_cost.show_report(report, (by.value,) if by else ("day", "model"))
    if plot is not None:
        note(f"Wrote {plot}")


def rename(
    session: SessionArgument,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="The new title.")],
    where: Where,
    json: JsonOption = False,
) -> None:
    """Give a session a title.

    Examples:

      toolwire sessions rename 6f1c2d 'Harbour festival'
    """
    with where.open() as place:
        chosen = place.find(session)
        place.rename(chosen, title)
    _report(f"Renamed {chosen}.", {"session_id": chosen, "title": title.strip()}, json=json)


def tag(
    *,
    session: SessionArgument,
    name: Annotated[
        str | None, typer.Argument(metavar="TAG", help="The new tag. Without it, the tag is removed.")
    ] = None,
    where: Where,
    json: JsonOption = False,
) -> None:
    """Give a session a tag, which replaces the one it had, or remove its tag.

    Examples:

      toolwire sessions tag 6f1c2d travel

      toolwire sessions tag 6f1c2d
    """
    with where.open() as place:
        chosen = place.find(session)
        place.tag(chosen, name)
    done = f"Tagged {chosen}." if name else f"Removed the tag of {chosen}."
    _report(done, {"session_id": chosen, "tag": name}, json=json)


def fork(
    *,
    session: SessionArgument,
    up_to: Annotated[
        str | None,
        typer.Option(metavar="UUID", help="Only up to this message (`show --json` lists their ids)."),
    ] = None,
    title: Annotated[str | None, typer.Option(metavar="TITLE", help="The title of the copy.")] = None,
    where: Where,
    json: JsonOption = False,
) -> None:
    """Copy a session under a new id, as a whole or up to a message. Prints the id.

    Examples:

      toolwire sessions fork 6f1c2d --title 'Second thoughts'
    """
    with where.open() as place:
        chosen = place.find(session)
        made = place.fork(chosen, up_to, title)
    _report(made, {"session_id": made, "forked_from": chosen}, json=json)


def delete(
    *,
    sessions: Annotated[
        list[str],
        typer.Argument(metavar="SESSION", help="The ids of the sessions, or their first characters."),
    ],
    yes: YesOption = False,
    force: Annotated[
        bool, typer.Option("--force", help="Delete a session even while a CLI has it open.")
    ] = False,
    where: Where,
    json: JsonOption = False,
) -> None:
    """Delete sessions with everything that belongs to them. Asks first; in a script it needs --yes.

    Examples:

      toolwire sessions delete 6f1c2d --yes
    """
    from toolwire.cli.sessions_report import make_title  # noqa: PLC0415

    with where.open() as place:
        chosen = list(dict.fromkeys(place.find(each) for each in sessions))
        if not yes:
            if not sys.stdin.isatty():
                raise UsageError("there is no terminal to ask for confirmation on: use --yes")
            for each in chosen:
                note(f"{each}  {make_title(place.open(each).describe().summary)}")
            typer.confirm(f"Delete {count(len(chosen), 'session')}?", abort=True, err=True)
        for each in chosen:
            place.delete(each, force=force)
            if not json:
                typer.echo(f"Deleted {each}.")
    if json:
        show_json({"deleted": chosen})


def import_(  # noqa: PLR0917
    store: Annotated[
        str, typer.Option(metavar="STORE", help="The store: sqlite:FILE, postgresql://..., redis://...")
    ],
    sessions: Annotated[
        list[str] | None,
        typer.Argument(metavar="SESSION", help="The ids of the sessions, or their first characters."),
    ] = None,
    directory: DirectoryOption = None,
    everything: AllOption = False,
    config_dir: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Copy sessions from disk into a store. Only missing entries are added, so it can be repeated.

    Without ids, all sessions of the current directory are copied (--directory: of another one, --all: of all).

    Examples:

      toolwire sessions import --store sqlite:sessions.db --all

      toolwire sessions list --store sqlite:sessions.db

      toolwire sessions import --store postgresql://localhost/claude --all    # needs a server

      toolwire sessions import --store redis://localhost 6f1c2d    # needs a server
    """
    from toolwire.cli.sessions_place import DiskPlace, open_store  # noqa: PLC0415
    from toolwire.sessions import paths  # noqa: PLC0415

    scope = _make_scope(directory, everything or (bool(sessions) and directory is None), config_dir)
    with _open(None, scope) as disk:
        assert isinstance(disk, DiskPlace)  # noqa: S101 - no store was named
        if sessions:
            chosen = list(dict.fromkeys(disk.find(each) for each in sessions))
        else:
            folders = paths.find_project_folders(scope.directory, scope.config_dir)
            chosen = [each.session_id for each in paths.list_session_files(folders)]
        with open_store(store, scope, create=True) as target, show_progress("Importing") as move:
            failed = {}
            for number, each in enumerate(chosen, 1):
                try:
                    target.add(each, scope)
                except OSError as error:  # one that cannot be read must not prevent the import of the others
                    failed[each] = str(error)
                if move is not None:
                    move(number, len(chosen))
    done = [each for each in chosen if each not in failed]
    _report(
        f"Imported {count(len(done), 'session')} into {target.name}.",
        {"imported": done, "failed": failed},
        json=json,
    )
    for each, reason in failed.items():
        note(f"Not imported: {each}: {reason}")
    if failed:
        raise typer.Exit(FAILURE)


def prune(  # noqa: PLR0917
    older_than: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Delete those last written longer ago than this: 30d, 8w."),
    ] = None,
    keep: Annotated[int | None, typer.Option(min=0, help="Delete all but this many of the newest.")] = None,
    max_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Delete the oldest until at most this is left: 500MB, 2G."),
    ] = None,
    tag: Annotated[str | None, typer.Option(metavar="TAG", help="Only sessions with this tag.")] = None,
    keep_tag: Annotated[
        list[str] | None, typer.Option(metavar="TAG", help="Never delete sessions with this tag. Repeatable.")
    ] = None,
    export_to: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Export each session into this folder first.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Delete them. Without it, they are only shown.")
    ] = False,
    directory: DirectoryOption = None,
    everything: AllOption = False,
    config_dir: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Delete old sessions from disk by age, number, size or tag. Without --yes it only shows which.

    Sessions that a CLI has open are kept. Exits with 1 if a session could not be deleted.

    Examples:

      toolwire sessions prune --older-than 30d

      toolwire sessions prune --all --max-size 2G --keep-tag keep --export-to archive --yes
    """
    from toolwire.cli import sessions_report  # noqa: PLC0415
    from toolwire.sessions.prune import prune_sessions  # noqa: PLC0415

    if older_than is None and keep is None and max_size is None and tag is None:
        raise UsageError("choose what to delete: --older-than 30d, --keep 100, --max-size 2G or --tag TAG")
    scope = _make_scope(directory, everything, config_dir)
    given: dict[str, Any] = {
        "older_than": None if older_than is None else parse_age("--older-than", older_than),
        "keep": keep,
        "max_bytes": None if max_size is None else parse_size("--max-size", max_size),
        "tag": tag,
        "directory": scope.directory,
        "keep_tags": keep_tag or [],
        "export_to": export_to,
        "config_dir": scope.config_dir,
    }
    with _open(None, scope):
        rows = prune_sessions(**given, dry_run=not yes)
    failed = [row for row in rows if row.error]
    freed = size(sum(row.size for row in rows if row.deleted or not yes))
    if json:
        show_json({"dry_run": not yes, "sessions": [sessions_report.as_json(row) for row in rows]})
    elif not rows:
        note("Nothing to delete.")
    else:
        sessions_report.show_pruned(rows)
        number = len(rows) - len(failed)
        done = f"{'Deleted' if yes else 'Would delete'} {count(number, 'session')}"
        note(f"\n{done}, {freed}.{'' if yes else ' Nothing was deleted: --yes deletes them.'}")
    if failed:
        raise typer.Exit(FAILURE)


def doctor(
    directory: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIRECTORY",
            help="Only sessions of this directory and its git worktrees. Default: all directories.",
        ),
    ] = None,
    config_dir: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Report damaged and leftover session files, of all directories unless one is named. Changes nothing.

    Exits with 1 if there is something to report.

    Examples:

      toolwire sessions doctor

      toolwire sessions doctor . --json
    """
    from toolwire.cli import sessions_report  # noqa: PLC0415
    from toolwire.sessions.check import check_sessions  # noqa: PLC0415

    scope = _make_scope(directory, directory is None, config_dir)
    with _open(None, scope) as place, show_progress("Reading transcripts") as move:
        problems = check_sessions(scope.directory, config_dir=scope.config_dir, on_progress=move)
        name = place.name
    if json:
        show_json({"ok": not problems, "problems": [sessions_report.as_json(each) for each in problems]})
    elif problems:
        sessions_report.show_problems(problems)
    else:
        typer.echo(f"OK: nothing wrong with the sessions in {plain(name)}")
    if problems:
        raise typer.Exit(FAILURE)


def _make_scope(directory: Path | None, everything: bool, config_dir: Path | None) -> "Scope":
    from toolwire.cli.sessions_place import Scope  # noqa: PLC0415

    if everything and directory is not None:
        raise UsageError("--all and a directory exclude each other")
    if config_dir is not None and not config_dir.is_dir():
        raise UsageError(f"there is no folder {config_dir} (--config-dir)")
    chosen = None if everything else str(directory or Path.cwd())
    return Scope(chosen, None if config_dir is None else str(config_dir))


@contextmanager
def _open(store: str | None, scope: "Scope") -> "Iterator[Place]":
    from toolwire.cli.sessions_place import open_place  # noqa: PLC0415

    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal with an old encoding shows what it can
        sys.stdout.reconfigure(errors="replace")
    with open_place(store, scope) as place:
        yield place


def _report(text: str, facts: dict[str, Any], *, json: bool) -> None:
    if json:
        show_json(facts)
    else:
        typer.echo(plain(text))


sessions_app = make_app(
    "sessions",
    "List, read, search and export past conversations, on disk or in a store, and show their cost.",
    (list_, show, search, export, cost, rename, tag, fork, delete, import_, prune, doctor),
)
