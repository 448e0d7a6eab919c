"""A session store in a Postgres database, for any number of machines.

Every line is stored exactly, as bytes; the searchable text is derived from it. An append and its summary are one
transaction. Blocking work runs in threads, on asyncio and on trio. A call that takes too long or is cancelled
closes its connection, so that a server that does not respond blocks no thread. The outcome of such a call is
unknown, but it is never partial.
"""

import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, LiteralString, TypeVar, cast

import anyio

from toolwire._support.secrets import keep_secret
from toolwire._support.threads import Workers
from toolwire.errors import SessionStoreError
from toolwire.messages.system import SessionKey
from toolwire.sessions.search import SearchHit, extract_text, read_query
from toolwire.sessions.stores.base import (
    Place,
    SqlStore,
    decode_entry,
    encode_entry,
    encode_uuid,
    fold_data,
    make_hit,
    read_place,
)
from toolwire.sessions.types import SessionStoreEntry

if TYPE_CHECKING:
    from psycopg import Connection

T = TypeVar("T")

_LOCK: Final = 0x746F6F6C77697265
"""Id of the advisory lock held while the tables are created."""
_TRUSTED_FOR: Final = 1.0
"""Seconds for which an idle connection is assumed to be alive."""
_CHUNK: Final = 32_000_000
"""Bytes of lines that are sent in one statement."""
_SEARCHED: Final = 100_000
"""The number of characters of a message that are searched: Postgres limits the words of one text."""

_MIGRATIONS: Final[tuple[LiteralString, ...]] = (
    """
    CREATE TABLE toolwire_transcripts (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        project text COLLATE "C" NOT NULL,
        session text COLLATE "C" NOT NULL,
        subpath text COLLATE "C" NOT NULL,
        mtime bigint NOT NULL,
        summary text,
        writer text,
        UNIQUE (project, session, subpath)
    );
    CREATE INDEX toolwire_transcripts_by_session ON toolwire_transcripts (session);
    CREATE TABLE toolwire_lines (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        transcript bigint NOT NULL REFERENCES toolwire_transcripts ON DELETE CASCADE,
        uuid bytea,
        line bytea NOT NULL,
        said tsvector NOT NULL,
        output tsvector NOT NULL
    );
    ALTER TABLE toolwire_lines ALTER COLUMN line SET STORAGE EXTERNAL;
    CREATE INDEX toolwire_lines_of_transcript ON toolwire_lines (transcript, number);
    CREATE UNIQUE INDEX toolwire_lines_by_uuid ON toolwire_lines (transcript, uuid) WHERE uuid IS NOT NULL;
    CREATE INDEX toolwire_lines_said ON toolwire_lines USING gin (said);
    CREATE INDEX toolwire_lines_output ON toolwire_lines USING gin (output);
    """,
)
"""The statements that lead from each version of the tables to the next."""

_INSERT: Final = """
    INSERT INTO toolwire_lines (transcript, uuid, line, said, output)
    SELECT %s, uuid, line, to_tsvector('simple', said), to_tsvector('simple', output)
    FROM unnest(%b::bytea[], %b::bytea[], %s::text[], %s::text[]) WITH ORDINALITY
        AS given (uuid, line, said, output, place)
    ORDER BY place
    ON CONFLICT DO NOTHING
    RETURNING uuid
"""
_LOCK_TRANSCRIPT: Final = """
    INSERT INTO toolwire_transcripts AS known (project, session, subpath, mtime) VALUES (%s, %s, %s, 0)
    ON CONFLICT (project, session, subpath) DO UPDATE SET mtime = known.mtime
    RETURNING id, summary, writer
"""
_UPDATE: Final = """
    UPDATE toolwire_transcripts SET summary = %s, writer = %s,
        mtime = greatest((extract(epoch FROM clock_timestamp()) * 1000)::bigint, mtime + 1)
    WHERE id = %s
"""
_LOAD: Final = """
    SELECT line FROM toolwire_transcripts LEFT JOIN toolwire_lines ON transcript = id
    WHERE project = %s AND session = %s AND subpath = %s ORDER BY number
"""
_DELETE: Final = """
    DELETE FROM toolwire_transcripts WHERE project = %s AND session = %s AND (%s = '' OR subpath = %s)
"""
_SEARCH: Final = """
    SELECT line, project, session, subpath
    FROM toolwire_lines JOIN toolwire_transcripts ON transcript = id
    WHERE (said @@ %(query)s::tsquery OR %(with_output)s AND output @@ %(query)s::tsquery)
        AND (%(project)s::text IS NULL OR project = %(project)s)
        AND (%(session)s::text IS NULL OR session = %(session)s)
    ORDER BY ts_rank_cd(said || output, %(query)s::tsquery) DESC, number DESC
    LIMIT %(limit)s
"""
_HEADLINE: Final = """
    SELECT ts_headline('simple', text, %s::tsquery, %s)
    FROM unnest(%s::text[]) WITH ORDINALITY AS given (text, place) ORDER BY place
"""
_SNIPPET: Final = (
    'StartSel="\x02", StopSel="\x03", MaxWords=24, MinWords=8, MaxFragments=2, FragmentDelimiter=" … "'
)


class PostgresSessionStore(SqlStore):
    """Keeps transcripts in a Postgres database: `PostgresSessionStore("postgresql://user:password@host/name")`.

    The tables are created on first use; their names begin with `toolwire_`. The database must be in UTF-8.
    `timeout`: seconds that a call may take. `connect_timeout`: seconds for a new connection (at least 2).
    `connections`: the maximum number of connections. Needs `pip install 'toolwire[postgres]'`.
    """

    def __init__(
        self, url: str, *, timeout: float = 60.0, connect_timeout: float = 10.0, connections: int = 4
    ) -> None:
        try:
            import psycopg.conninfo  # noqa: PLC0415 - an optional dependency
        except ImportError as error:
            raise ImportError(
                "PostgresSessionStore needs psycopg: pip install 'toolwire[postgres]'"
            ) from error
        try:
            given = psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.Error:
            given = None
        # outside the `except`, whose error may show parts of the password
        if given is None or not _is_plain(given):
            raise ValueError(
                "the URL of the Postgres database is not valid: write it as "
                "postgresql://user:password@host:port/name, with special characters of the password percent-encoded"
            )
        keep_secret(str(given[name]) for name in ("password", "sslpassword") if given.get(name))
        self._name = _describe(given)
        self._pool = _Pool({"connect_timeout": max(2, int(connect_timeout)), "keepalives_idle": 30, **given})
        weakref.finalize(self, self._pool.close)
        self._timeout = timeout
        self._workers = Workers(connections)
        self._is_prepared = False

    def __repr__(self) -> str:
        return f"PostgresSessionStore({self._name!r})"

    async def search(
        self,
        query: str,
        *,
        project_key: str | None = None,
        session_id: str | None = None,
        include_output: bool = False,
        limit: int = 20,
    ) -> list[SearchHit]:
        """Return the messages that contain all words of a query, best first. Text in quotes is a phrase.

        `include_output`: also search the output of tools. Of a very long message only the first 100,000 characters
        are searched.
        """
        words, is_beginning = read_query(query)
        if not words:
            return []
        given = {"project": project_key, "session": session_id, "limit": limit, "with_output": include_output}
        return await self._run(lambda db: _search(db, words, is_beginning, given))

    async def aclose(self) -> None:
        """Close all connections. New ones are opened when the store is used again."""
        await self._workers.run(self._pool.close)

    def _append(
        self, db: "Connection", key: SessionKey, entries: list[SessionStoreEntry], writer: str | None
    ) -> str | None:
        place = read_place(key)
        rows = [(encode_uuid(entry), encode_entry(entry), *_texts(entry)) for entry in entries]
        # The row stays locked until the end, so that batches of several writers do not mix.
        [[number, data, last]] = db.execute(_LOCK_TRANSCRIPT, place).fetchall()
        added: set[bytes] = set()
        for chunk in _split(rows):
            columns = [list(column) for column in zip(*chunk, strict=True)]
            added.update(name for (name,) in db.execute(_INSERT, (number, *columns)) if name is not None)
        new = []
        for entry, (name, *_) in zip(entries, rows, strict=True):
            if name is None or name in added:
                new.append(entry)
                added.discard(cast(bytes, name))
        if new:
            summary = None if place[2] else fold_data(data, key, new)
            db.execute(_UPDATE, (summary, writer, number))
        return last if last != writer else None

    def _load(self, db: "Connection", place: Place) -> list[SessionStoreEntry] | None:
        rows = db.execute(_LOAD, place, binary=True).fetchall()
        return [decode_entry(line) for (line,) in rows if line is not None] if rows else None

    def _delete(self, db: "Connection", place: Place) -> None:
        db.execute(_DELETE, (*place, place[2]))

    async def _select(self, columns: str, where: str, *parameters: str) -> list[tuple[Any, ...]]:
        statement: Any = f"SELECT {columns} FROM toolwire_transcripts WHERE {where}"  # noqa: S608 - constants only
        statement = statement.replace("?", "%s")
        return await self._run(lambda db: db.execute(statement, parameters).fetchall())

    async def _run(self, work: "Callable[[Connection], T]") -> T:
        """Run `work` in a transaction, in a thread and within the time limit."""
        call = _Call()
        try:
            with anyio.fail_after(self._timeout):
                return await self._workers.run(lambda: self._work(call, work))
        except TimeoutError as error:
            raise SessionStoreError(
                f"the session store {self._name} did not respond within {self._timeout:g} s"
            ) from error
        finally:
            call.interrupt()

    def _work(self, call: "_Call", work: "Callable[[Connection], T]") -> T:
        import psycopg  # noqa: PLC0415 - as above

        try:
            with self._pool.lend(call) as db:
                if not self._is_prepared:
                    with db.transaction():
                        _prepare(db, self._name)
                    self._is_prepared = True
                with db.transaction():
                    limit = str(int(self._timeout * 1000) or 1)
                    db.execute("SELECT set_config('statement_timeout', %s, true)", (limit,))
                    return work(db)
        except psycopg.Error as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise SessionStoreError(f"the session store {self._name}: {reason}") from error


class _Call:
    """A call in a thread that can be interrupted from another thread while it waits for the server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._is_over = False

    @contextmanager
    def using(self, connection: "Connection") -> Iterator[None]:
        """Allow `interrupt()` to close this connection meanwhile."""
        with self._lock:
            if self._is_over:
                raise SessionStoreError("the call was cancelled")
            self._connection = connection
        try:
            yield
        finally:
            with self._lock:
                self._connection = None

    def interrupt(self) -> None:
        """Close the connection in use, if any, so that the thread that waits for the server gets an error."""
        with self._lock:
            self._is_over = True
            if self._connection is not None and not self._connection.closed:
                with suppress(OSError), socket.socket(fileno=os.dup(self._connection.fileno())) as peer:
                    peer.shutdown(socket.SHUT_RDWR)


class _Pool:
    """Connections to one database, as many as are used by threads at the same time.

    Unlike psycopg's own pool it reports at once why there is no connection, and has no threads of its own.
    """

    def __init__(self, parameters: dict[str, Any]) -> None:
        self._parameters = parameters
        self._lock = threading.Lock()
        self._idle: list[tuple[Connection, float]] = []
        self._process = os.getpid()

    @contextmanager
    def lend(self, call: "_Call") -> "Iterator[Connection]":
        """Lend a connection. It is closed if its use raises an error."""
        db = self._take_idle(call) or self._connect()
        try:
            with call.using(db):
                yield db
        except BaseException:
            with suppress(Exception):
                db.close()
            raise
        with self._lock:
            self._idle.append((db, time.monotonic()))

    def _take_idle(self, call: "_Call") -> "Connection | None":
        """Return an idle connection that is alive, or None. Dead ones are closed."""
        import psycopg  # noqa: PLC0415 - as above

        while True:
            with self._lock:
                self._drop_inherited()
                if not self._idle:
                    return None
                db, since = self._idle.pop()
            if time.monotonic() - since < _TRUSTED_FOR:
                return db
            try:
                with call.using(db):
                    db.execute("SELECT 1")
            except psycopg.Error:
                db.close()
            else:
                return db

    def _connect(self) -> "Connection":
        import psycopg  # noqa: PLC0415 - as above

        parameters = {**self._parameters, "client_encoding": "utf8"}
        # No prepared statements: connection poolers may not support them.
        return psycopg.connect(**parameters, autocommit=True, prepare_threshold=None)

    def close(self) -> None:
        """Close the connections that are not in use."""
        with self._lock:
            self._drop_inherited()
            idle, self._idle = self._idle, []
        for db, _ in idle:
            db.close()

    def _drop_inherited(self) -> None:
        """Drop connections that were opened before a fork, without closing them on the server."""
        if self._process != os.getpid():
            self._idle, self._process = [], os.getpid()


def _prepare(db: "Connection", name: str) -> None:
    """Create the tables, or migrate them."""
    encoding = db.execute("SHOW server_encoding").fetchone()
    if encoding != ("UTF8",):
        raise SessionStoreError(
            f"the session store {name} is a database in {encoding and encoding[0]}, which cannot store every text; "
            "create one with ENCODING 'UTF8'"
        )
    db.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    db.execute("CREATE TABLE IF NOT EXISTS toolwire_sessions_format (version integer NOT NULL)")
    found = db.execute("SELECT version FROM toolwire_sessions_format").fetchone()
    version: int = found[0] if found else 0
    if version > len(_MIGRATIONS):
        raise SessionStoreError(
            f"the tables in {name} were written by a newer version of toolwire (their format is {version}, "
            f"this one supports {len(_MIGRATIONS)}); update toolwire, or use another database"
        )
    if version == len(_MIGRATIONS):
        return
    for statements in _MIGRATIONS[version:]:
        db.execute(statements)
    db.execute("DELETE FROM toolwire_sessions_format")
    db.execute("INSERT INTO toolwire_sessions_format VALUES (%s)", (len(_MIGRATIONS),))


_Row = tuple[bytes | None, bytes, str, str]


def _split(rows: Iterable[_Row]) -> Iterator[list[_Row]]:
    """Yield the rows in chunks that fit into a statement."""
    chunk: list[_Row] = []
    size = 0
    for row in rows:
        if chunk and size + len(row[1]) > _CHUNK:
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += len(row[1])
    yield chunk


def _texts(entry: SessionStoreEntry) -> tuple[str, str]:
    said, output = extract_text(entry)
    return said[:_SEARCHED], output[:_SEARCHED]


def _search(db: "Connection", words: list[str], is_beginning: bool, given: dict[str, Any]) -> list[SearchHit]:
    terms = ["phraseto_tsquery('simple', %s)"] * len(words)
    if is_beginning:
        terms[-1] = "to_tsquery('simple', %s)"
        words = [*words[:-1], "'" + words[-1].replace("\\", "\\\\").replace("'", "''") + "':*"]
    select: Any = f"SELECT ({' && '.join(terms)})::text"
    [[query]] = db.execute(select, words).fetchall()
    found = [
        (decode_entry(line), place)
        for line, *place in db.execute(_SEARCH, {**given, "query": query}, binary=True)
    ]
    parts = 2 if given["with_output"] else 1
    texts = ["\n".join(filter(None, _texts(entry)[:parts])) for entry, _ in found]
    snippets = db.execute(_HEADLINE, (query, _SNIPPET, texts)).fetchall()
    return [
        make_hit(entry, snippet, cast(tuple[str, str, str], tuple(place)))
        for (entry, place), (snippet,) in zip(found, snippets, strict=True)
    ]


def _is_plain(given: dict[str, Any]) -> bool:
    """Return False if a password with special characters was parsed as another part of the URL."""
    parts = [str(given.get(name) or "") for name in ("user", "host", "dbname")]
    return not any("@" in each for each in parts) and str(given.get("port") or "0").replace(",", "").isdigit()


def _describe(given: dict[str, Any]) -> str:
    """Return the address of a database without secrets."""
    user = f"{given['user']}@" if given.get("user") else ""
    port = f":{given['port']}" if given.get("port") else ""
    return f"postgresql://{user}{given.get('host', '')}{port}/{given.get('dbname', '')}"
