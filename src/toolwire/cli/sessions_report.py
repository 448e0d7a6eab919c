"""The reports of `toolwire sessions`: tables of sessions, search hits and problems, and whole conversations.

Everything in a transcript comes from models, tools and web pages, and is made safe for the terminal.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import typer

from toolwire._support.words import plain, plain_line
from toolwire.cli.shared.printing import markup, out, show, size, to_json
from toolwire.sessions.entries import format_time, shorten

if TYPE_CHECKING:
    from rich.table import Table

    from toolwire.sessions.check import SessionProblem
    from toolwire.sessions.prune import PrunedSession
    from toolwire.sessions.recorded import Call, Message, Part, RecordedSession, Result, Subagent
    from toolwire.sessions.search import SearchHit
    from toolwire.sessions.types import SDKSessionInfo

_SHORT_ID: Final = 8
_LONGEST_TITLE: Final = 200
_NARROW: Final = 70
_DATE: Final = 10
_SHORT_RESULT: Final = 5
_SHORT_LINE: Final = 160
_COLOURS: Final = {"user": "blue", "assistant": "green", "tool": "yellow"}


def as_json(row: Any) -> dict[str, Any]:
    """Return the fields of an object as JSON."""
    return dict(vars(row))


def shorten_id(session_id: str) -> str:
    """Return the first characters of an id on a terminal, and the whole id in a pipe."""
    return session_id[:_SHORT_ID] if out().is_terminal else session_id


def is_narrow() -> bool:
    """Return True for a terminal that has room only for the most important columns."""
    console = out()
    return console.is_terminal and console.width < _NARROW


def show_sessions(rows: "Sequence[SDKSessionInfo]", *, with_directory: bool) -> None:
    """Print a list of sessions."""
    narrow = is_narrow()
    tagged = any(row.tag for row in rows) and not narrow
    with_directory = with_directory and not narrow
    table = _make_table(narrow=narrow)
    if tagged:
        table.add_column("Tag", overflow="ellipsis", max_width=16)
    if with_directory:
        table.add_column("Directory", overflow="fold", max_width=40)
    table.add_column("Title", no_wrap=True, overflow="ellipsis", ratio=1)
    for row in rows:
        cells = _start_row(row, narrow=narrow)
        cells += [markup(plain_line(row.tag or ""))] if tagged else []
        cells += [markup(plain_line(row.cwd or ""))] if with_directory else []
        table.add_row(*cells, markup(make_title(row.summary)))
    show(table)


def show_hits(hits: "Sequence[SearchHit]") -> None:
    """Print the hits of a search, grouped by session."""
    coloured = has_colours()
    before = ""
    for hit in hits:
        if hit.session_id != before:
            if before:
                typer.echo()
            name = shorten_id(hit.session_id)
            shown = typer.style(name, fg="cyan") if coloured else name
            typer.echo(f"{shown}  {plain_line(hit.project_key)}")
            before = hit.session_id
        who = "subagent" if hit.subpath else plain_line(hit.type)
        when = plain_line((hit.timestamp or "")[:16].replace("T", " "))
        snippet = plain_line(hit.snippet)
        if coloured:
            pieces = snippet.split("**")
            pieces[1::2] = [typer.style(piece, fg="yellow", bold=True) for piece in pieces[1::2]]
            snippet = "".join(pieces)
        typer.echo(f"  {when}  {who}: {snippet}")


def show_pruned(rows: "Sequence[PrunedSession]") -> None:
    """Print the sessions that are, or would be, deleted."""
    narrow = is_narrow()
    table = _make_table(narrow=narrow)
    table.add_column("Size", no_wrap=True, justify="right")
    table.add_column("Why", overflow="fold")
    if not narrow:
        table.add_column("Title", no_wrap=True, overflow="ellipsis", ratio=1)
    for row in rows:
        why = f"[red]{markup(plain_line(row.error))}[/]" if row.error else markup(plain_line(row.reason))
        cells = [*_start_row(row, narrow=narrow), size(row.size), why]
        table.add_row(*cells, *([] if narrow else [markup(make_title(row.summary))]))
    show(table)


def _make_table(*, narrow: bool) -> "Table":
    from rich.table import Table  # noqa: PLC0415 - heavy

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Session", no_wrap=True, min_width=_SHORT_ID)
    table.add_column("Written" if narrow else "Last written (UTC)", no_wrap=True, min_width=_DATE)
    return table


def _start_row(row: "SDKSessionInfo | PrunedSession", *, narrow: bool) -> list[str]:
    when = format_time(row.last_modified).removesuffix(" UTC")
    return [f"[cyan]{shorten_id(row.session_id)}[/]", when[:_DATE] if narrow else when]


def show_problems(problems: "Sequence[SessionProblem]") -> None:
    """Print the problems of sessions."""
    coloured = has_colours()
    for each in problems:
        kind = each.kind.replace("_", " ")
        typer.echo(f"{typer.style(kind, fg='yellow') if coloured else kind}  {plain_line(each.path)}")
        typer.echo(f"  {plain_line(each.message)}")


def has_colours() -> bool:
    """Return True if stdout is a terminal on which colours are wanted."""
    console = out()
    return console.is_terminal and not console.no_color


def show_conversation(
    session: "RecordedSession", facts: Iterable[tuple[str, str]], title: str, *, full: bool, limit: int
) -> None:
    """Print a conversation a message at a time; `full` with thinking, all output, and subagents."""
    screen = _Screen(full=full)
    screen.print(make_title(title), bold=True)
    for name, value in facts:
        screen.print(f"{name}: {plain_line(value)}")
    conversation = session.read_conversation()
    screen.show_messages(deque(conversation, limit) if limit else conversation)
    if full and not limit:
        for subagent in conversation.list_remaining():
            screen.show_subagent(subagent, "")


class _Screen:
    """Prints the messages of a conversation. It sets colours itself: rich is slow for long texts."""

    def __init__(self, *, full: bool) -> None:
        self._colours = has_colours()
        self._full = full

    def print(self, text: str, indent: str = "", **style: Any) -> None:
        """Print text that was made safe, each line indented."""
        lines = f"\n{indent}".join(text.strip("\n").split("\n"))
        typer.echo(f"{indent}{typer.style(lines, **style) if self._colours and style else lines}")

    def show_messages(self, messages: "Iterable[Message]", indent: str = "") -> None:
        """Print messages, several of one speaker in a row as one."""
        before = ""
        for message in messages:
            if message.speaker != before or message.speaker == "user":
                when = plain_line(message.timestamp[:16].replace("T", " "))
                typer.echo()
                name = f"{message.speaker.capitalize()} {when}".rstrip()
                self.print(name, indent, bold=True, fg=_COLOURS[message.speaker])
                before = message.speaker
            for part in message.parts:
                self._show_part(part, indent)

    def _show_part(self, part: "Part", indent: str) -> None:
        from toolwire.sessions.recorded import Call, Other, Picture  # noqa: PLC0415

        match part:
            case Call():
                self._show_call(part, indent)
            case Picture():
                self.print(
                    f"(picture, {plain_line(part.media_type) or 'of an unknown type'})", indent, dim=True
                )
            case Other():
                self.print(f"({plain_line(part.kind)})", indent, dim=True)
            case _ if part.kind != "thinking":
                self.print(plain(part.text), indent)
            case _ if self._full:
                self.print(plain(part.text), indent, dim=True, italic=True)

    def _show_call(self, call: "Call", indent: str) -> None:
        gist = plain_line(call.gist)
        gist = gist if self._full else shorten(gist, _SHORT_LINE)
        self.print(f"→ {plain_line(call.name)} {gist}".rstrip(), indent, fg="cyan")
        below = f"{indent}  "
        if self._full:
            for name, text in call.list_inputs():
                if plain_line(text) != gist:
                    self.print(f"{plain_line(name)}: {plain(text)}", below)
            for subagent in call.subagents:
                self.show_subagent(subagent, below)
        if call.result is None:
            self.print("(no result)", below, dim=True)
        elif text := self._describe_result(call.result):
            self.print(text, below, **({"fg": "red"} if call.result.is_error else {"dim": True}))

    def _describe_result(self, result: "Result") -> str:
        from toolwire.sessions.recorded import Text  # noqa: PLC0415

        texts = [
            part.text if isinstance(part, Text) else f"({type(part).__name__.lower()})"
            for part in result.parts
        ]
        lines = plain("\n".join(texts)).strip("\n").split("\n")
        if self._full:
            return "\n".join(lines)
        shown = [shorten(each, _SHORT_LINE) for each in lines[:_SHORT_RESULT]]
        if len(lines) > len(shown):
            shown.append(f"… {len(lines) - len(shown)} more lines (--full)")
        return "\n".join(shown)

    def show_subagent(self, subagent: "Subagent", indent: str) -> None:
        """Print the conversation of a subagent."""
        name = plain_line(" ".join(filter(None, ("Subagent", subagent.agent_type, subagent.description))))
        self.print(name, indent, bold=True, fg="magenta")
        self.show_messages(subagent.messages, f"{indent}  ")


def show_session_json(facts: Mapping[str, Any], messages: Iterable[Any]) -> None:
    """Print a session as JSON, a message at a time, so that a large one is never in memory as a whole."""
    head = to_json(dict(facts)).removesuffix("\n}")
    typer.echo(f'{head},\n  "messages": [', nl=False)
    first = True
    for message in messages:
        text = to_json(as_json(message)).replace("\n", "\n    ")
        typer.echo(f"{'' if first else ','}\n    {text}", nl=False)
        first = False
    typer.echo("]\n}" if first else "\n  ]\n}")


def make_title(text: str) -> str:
    """Return a title on one line, safe for a terminal, and shortened if it is very long."""
    return shorten(plain_line(" ".join(text[: _LONGEST_TITLE * 4].split())), _LONGEST_TITLE)
