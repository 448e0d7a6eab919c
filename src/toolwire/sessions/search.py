"""Full-text search in transcripts: what is searched, how a query is read, what is found; and SQLite's FTS5 for it.

Used by the index over files on disk and by the stores. Which entries there are is theirs to know.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from toolwire._support.record import Record, record
from toolwire.errors import NotSupportedError
from toolwire.sessions import entries

if TYPE_CHECKING:
    import sqlite3

_START, _END = "\x02", "\x03"
_SNIPPET_WORDS: Final = 24


@record
class SearchHit(Record):
    """A message that was found. In `snippet` the words that were searched for are between `**`."""

    session_id: str
    project_key: str
    snippet: str
    uuid: str | None = None
    type: str = ""
    timestamp: str | None = None
    subpath: str | None = None
    """The subagent's transcript that it is in; None for the main one."""
    score: float = 0.0
    """How well it fits: the first hit has the highest. Only hits of one search can be compared."""


def extract_text(entry: Mapping[str, Any]) -> tuple[str, str]:
    """Return what was said in an entry, with the names and inputs of tools; and apart, what tools returned."""
    if entry.get("type") not in {"user", "assistant"} or entry.get("isMeta"):
        return "", ""
    said: list[str] = []
    output: list[str] = []
    for block in entries.read_blocks(entry):
        match block.get("type"):
            case "text" if isinstance(text := block.get("text"), str):
                said.append(text)
            case "tool_use":
                said.append(f"{block.get('name')} {_write_input(block.get('input'))}")
            case "tool_result":
                output += entries.list_texts(entries.list_blocks(block.get("content")))
    return clean_text("\n".join(said)), clean_text("\n".join(output))


def _write_input(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return ""  # nested too deeply to mean anything


def clean_text(text: str) -> str:
    """Replace what databases cannot hold as text, and the signs that mark a snippet."""
    return re.sub("[\x00\x02\x03\ud800-\udfff]", "\ufffd", text)


def read_query(query: str) -> tuple[list[str], bool]:
    """Return the words and phrases (text in quotes) of a query, and whether the last one may be a beginning.

    Nothing in it is an operator, so that any text can be searched for.
    """
    parts = [phrase or word for phrase, word in re.findall(r'"([^"]*)"|([^\s"]+)', clean_text(query))]
    return [part for part in parts if re.search(r"[^\W_]", part)], query[-1:] not in {'"', " "}


def make_match(query: str, *, include_output: bool) -> str | None:
    """Turn what a user typed into a query of FTS5: all words, the last one as a beginning; None without a word."""
    parts, is_beginning = read_query(query)
    terms = ['"' + part.replace('"', '""') + '"' for part in parts]
    if not terms:
        return None
    if is_beginning:
        terms[-1] += "*"
    columns = "" if include_output else "said : "
    return f"{columns}({' AND '.join(terms)})"


class TextIndex:
    """A table of texts in a SQLite database, by number."""

    def __init__(self, connection: "sqlite3.Connection") -> None:
        self._connection = connection

    def create(self) -> None:
        """Make the table unless it is there. NotSupportedError if this Python's SQLite has no full-text search."""
        import sqlite3  # noqa: PLC0415 - not every Python has it

        try:
            self._connection.execute("CREATE VIRTUAL TABLE IF NOT EXISTS texts USING fts5(said, output)")
        except sqlite3.OperationalError as error:
            if "no such module" not in str(error):
                raise
            raise NotSupportedError(
                f"this Python's SQLite ({sqlite3.sqlite_version}) has no full-text search (FTS5); "
                "use a Python that was built with it"
            ) from error

    def add(self, texts: Iterable[tuple[int, str, str]]) -> None:
        """Add texts: number, what was said, what tools returned."""
        self._connection.executemany("INSERT INTO texts(rowid, said, output) VALUES (?, ?, ?)", texts)

    def find(
        self, match: str, select: str, parameters: tuple[Any, ...], limit: int, offset: int = 0
    ) -> Iterator[tuple[Any, ...]]:
        """Yield a snippet of each text that matches with what `select` takes beside it, best first.

        `select`: columns, tables (`texts` among them) and conditions. A negative limit is none.
        """
        snippet = f"snippet(texts, -1, '{_START}', '{_END}', ' … ', {_SNIPPET_WORDS})"
        whole = f"SELECT {snippet}, {select} AND texts MATCH ? ORDER BY rank LIMIT ? OFFSET ?"
        yield from self._connection.execute(whole, (*parameters, match, limit, offset))


def mark_snippet(text: str) -> str:
    """Turn the marks of a snippet into `**`."""
    return text.replace(_START, "**").replace(_END, "**")
