"""Full-text search in transcripts: which text of an entry is searched, how a query is parsed, and SQLite's FTS5.

Used by the index over files on disk and by the stores, which provide the entries.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
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
    """A message that a search found. In `snippet` the words of the query are enclosed in `**`."""

    session_id: str
    project_key: str
    snippet: str
    uuid: str | None = None
    type: str = ""
    timestamp: str | None = None
    subpath: str | None = None
    """The subagent's transcript that contains it; None for the main one."""
    score: float = 0.0
    """How well it matches: the first hit has the highest score. Only comparable within one search."""


def extract_text(entry: Mapping[str, Any]) -> tuple[str, str]:
    """Return the text of an entry, including names and inputs of tools; and separately the output of tools."""
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
    """Replace characters that databases cannot store as text, and those that mark a snippet."""
    return re.sub("[\x00\x02\x03\ud800-\udfff]", "\ufffd", text)


def read_query(query: str) -> tuple[list[str], bool]:
    """Return the words and phrases (text in quotes) of a query, and True if the last one may be incomplete.

    There are no operators, so that any text can be searched for.
    """
    parts = [phrase or word for phrase, word in re.findall(r'"([^"]*)"|([^\s"]+)', clean_text(query))]
    return [part for part in parts if re.search(r"[^\W_]", part)], query[-1:] not in {'"', " "}


def make_match(query: str, *, include_output: bool) -> str | None:
    """Turn a query into an FTS5 query for all words, the last one as a prefix; None if it has no words."""
    parts, is_beginning = read_query(query)
    terms = ['"' + part.replace('"', '""') + '"' for part in parts]
    if not terms:
        return None
    if is_beginning:
        terms[-1] += "*"
    columns = "" if include_output else "said : "
    return f"{columns}({' AND '.join(terms)})"


@contextmanager
def transaction(connection: "sqlite3.Connection") -> Iterator[None]:
    """Run statements in SQLite as one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if (
            connection.in_transaction
        ):  # after some errors, such as a full disk, SQLite has already rolled back
            connection.execute("ROLLBACK")
        raise


class TextIndex:
    """A full-text table in a SQLite database, in which each text has a number."""

    def __init__(self, connection: "sqlite3.Connection") -> None:
        self._connection = connection

    def create(self) -> None:
        """Create the table if it does not exist. NotSupportedError if SQLite has no full-text search here."""
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
        """Add texts, each as number, message text and tool output."""
        self._connection.executemany("INSERT INTO texts(rowid, said, output) VALUES (?, ?, ?)", texts)

    def find(
        self, match: str, select: str, parameters: tuple[Any, ...], limit: int, offset: int = 0
    ) -> Iterator[tuple[Any, ...]]:
        """Yield a snippet of each matching text, followed by the columns of `select`, best first.

        `select` has columns, tables (`texts` among them) and conditions. A negative limit means no limit.
        """
        snippet = f"snippet(texts, -1, '{_START}', '{_END}', ' … ', {_SNIPPET_WORDS})"
        whole = f"SELECT {snippet}, {select} AND texts MATCH ? ORDER BY rank LIMIT ? OFFSET ?"
        yield from self._connection.execute(whole, (*parameters, match, limit, offset))


def mark_snippet(text: str) -> str:
    """Turn the marks of a snippet into `**`."""
    return text.replace(_START, "**").replace(_END, "**")
