"""A session store in a Redis server, for any number of machines.

Every line is stored exactly. An append is prepared here and written by one script, which writes only if the
transcript is unchanged since it was read: an append and its summary are stored completely or not at all. Blocking
work runs in threads, on asyncio and on trio.

The keys, after the prefix, are listed below. All keys of a project have its name as their hash tag, so that they
are in one slot of a cluster. Names are percent-encoded, so that keys cannot collide.

    {PROJECT}:sessions               sorted set: session by time of its last append
    {PROJECT}:SESSION:subpaths       sorted set: subpath by time of its first append
    {PROJECT}:SESSION:SUBPATH:lines  list: entries in order; SUBPATH is empty for the main transcript
    {PROJECT}:SESSION:SUBPATH:uuids  set: the ids of these entries
    {PROJECT}:SESSION:SUBPATH:state  hash: count of appends, time of the last, its writer, summary
    projects                         set: names of the projects
    of:SESSION                       set: names of the projects that may have a session
    format                           version of all this
"""

import json
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import parse_qs, quote, unquote, urlsplit

from toolwire._support.secrets import keep_secret
from toolwire._support.threads import Workers
from toolwire.errors import NotSupportedError, SessionStoreError
from toolwire.messages.system import SessionKey
from toolwire.sessions.search import SearchHit
from toolwire.sessions.stores.base import (
    DatabaseStore,
    Place,
    decode_entry,
    encode_entry,
    encode_uuid,
    fold_data,
    read_place,
)
from toolwire.sessions.types import (
    SessionListSubkeysKey,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
)

if TYPE_CHECKING:
    from redis import Redis

T = TypeVar("T")
_Row = tuple[SessionStoreEntry, bytes, bytes]
"""An entry, its id (empty if it has none) and its line."""

_MIGRATIONS: Final[tuple[Callable[["Redis", str], None], ...]] = ()
"""Functions that convert the keys under a prefix to the next version, from version 1 on. Each may run again."""
_TRIES: Final = 200
"""How often an append is retried because another one came first. In each round, one of them succeeds."""

_APPEND: Final = """
local base, session, subpath, expected, summary, writer, ttl = unpack(ARGV, 1, 7)
local own = base .. ':' .. session .. ':' .. subpath
local state = redis.call('HMGET', own .. ':state', 'count', 'mtime')
if (state[1] or '0') ~= expected then return 0 end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
if state[2] and now <= tonumber(state[2]) then now = tonumber(state[2]) + 1 end
now = string.format('%.0f', now)
for at = 8, #ARGV, 2 do
    redis.call('RPUSH', own .. ':lines', ARGV[at + 1])
    if ARGV[at] ~= '' then redis.call('SADD', own .. ':uuids', ARGV[at]) end
end
redis.call('HSET', own .. ':state', 'count', expected + 1, 'mtime', now, 'writer', writer, 'summary', summary)
if subpath == '' then
    redis.call('ZADD', base .. ':sessions', now, session)
else
    redis.call('ZADD', base .. ':' .. session .. ':subpaths', 'NX', now, subpath)
end
if ttl ~= '' then
    local subpaths = redis.call('ZRANGE', base .. ':' .. session .. ':subpaths', 0, -1)
    table.insert(subpaths, '')
    for _, each in ipairs(subpaths) do
        for _, part in ipairs({'lines', 'uuids', 'state'}) do
            redis.call('EXPIRE', base .. ':' .. session .. ':' .. each .. ':' .. part, ttl)
        end
    end
    redis.call('EXPIRE', base .. ':' .. session .. ':subpaths', ttl)
end
return 1
"""
_DELETE: Final = """
local base, session, subpath = unpack(ARGV)
local all = {subpath}
if subpath == '' then
    for _, each in ipairs(redis.call('ZRANGE', base .. ':' .. session .. ':subpaths', 0, -1)) do
        table.insert(all, each)
    end
    redis.call('ZREM', base .. ':sessions', session)
    redis.call('DEL', base .. ':' .. session .. ':subpaths')
else
    redis.call('ZREM', base .. ':' .. session .. ':subpaths', subpath)
end
for _, each in ipairs(all) do
    for _, part in ipairs({'lines', 'uuids', 'state'}) do
        redis.call('DEL', base .. ':' .. session .. ':' .. each .. ':' .. part)
    end
end
"""


def _name(entry: SessionStoreEntry) -> bytes:
    uuid = encode_uuid(entry)
    return b"" if uuid is None else b"=" + uuid


class RedisSessionStore(DatabaseStore):
    """Keeps transcripts in a Redis server: `RedisSessionStore("redis://:password@host:6379/0")`.

    `ttl`: seconds after the last append at which a session expires; None keeps it. `prefix` is put before every
    key. `timeout`: seconds that the server may take for each response. Redis has no full-text search. The server
    must not evict keys (`maxmemory-policy noeviction`), or transcripts lose parts. Needs
    `pip install 'toolwire[redis]'`.
    """

    def __init__(
        self,
        url: str,
        *,
        ttl: int | None = None,
        prefix: str = "toolwire",
        timeout: float = 30.0,
        connect_timeout: float = 10.0,
        connections: int = 4,
    ) -> None:
        if ttl is not None and ttl < 1:
            raise ValueError(f"ttl must be at least one second, got {ttl!r}")
        try:
            from redis import Redis  # noqa: PLC0415 - an optional dependency
            from redis.backoff import NoBackoff  # noqa: PLC0415 - as above
            from redis.retry import Retry  # noqa: PLC0415 - as above
        except ImportError as error:
            raise ImportError("RedisSessionStore needs redis: pip install 'toolwire[redis]'") from error
        self._name = ""
        try:
            parts = urlsplit(url)
            secrets = [unquote(parts.password or ""), *parse_qs(parts.query).get("password", [])]
            keep_secret(each for each in secrets if each)
            if "@" in parts.path + parts.fragment:  # a "/" or "#" in the password ended the address
                raise ValueError  # noqa: TRY301 - as for other bad URLs
            self._name = f"{parts.scheme}://{parts.hostname or ''}:{parts.port or ''}{parts.path}"
            self._redis: Redis = Redis.from_url(
                url,
                socket_timeout=timeout,
                socket_connect_timeout=connect_timeout,
                health_check_interval=1,
                retry=Retry(NoBackoff(), 0),  # an append whose outcome is unknown must not be sent again
                max_connections=connections,
                decode_responses=False,
            )
        except ValueError:
            self._name = ""
        if not self._name:  # outside the `except`, whose error may show parts of the password
            raise ValueError(
                "the URL of the Redis server is not valid: write it as redis://:password@host:port/number, with "
                "special characters of the password percent-encoded"
            )
        self._ttl = ttl
        self._prefix = prefix
        self._workers = Workers(connections)
        self._is_prepared = False

    def __repr__(self) -> str:
        return f"RedisSessionStore({self._name!r})"

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project, newest first."""
        listed = await self.list_session_summaries(project_key)
        return [{"session_id": each["session_id"], "mtime": each["mtime"]} for each in listed]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the summaries of a project's sessions, newest first."""

        def read(db: "Redis") -> list[SessionSummaryEntry]:
            names: Any = db.zrange(self._base(project_key) + ":sessions", 0, -1, desc=True)
            sessions = [unquote(name.decode()) for name in names]
            found: list[SessionSummaryEntry] = []
            expired = []
            with db.pipeline(transaction=False) as pipe:
                for each in sessions:
                    pipe.hmget(self._key_of((project_key, each, ""), "state"), "mtime", "summary")
                for name, session, (mtime, data) in zip(names, sessions, pipe.execute(), strict=True):
                    if mtime is None:
                        expired.append(name)
                    else:
                        found.append({"session_id": session, "mtime": int(mtime), "data": json.loads(data)})
            if expired:
                db.zrem(self._base(project_key) + ":sessions", *expired)
            return found

        return await self._run(read)

    async def list_projects(self) -> list[str]:
        """Return the keys of the projects that have, or had, sessions."""
        names: Any = await self._run(lambda db: db.smembers(f"{self._prefix}:projects"))
        return sorted(unquote(name.decode()) for name in names)

    async def find_projects(self, session_id: str) -> list[str]:
        """Return the keys of the projects that have a session, the one written last first."""

        def find(db: "Redis") -> list[str]:
            names: Any = db.smembers(self._projects_of(session_id))
            found = []
            for name in names:
                project = unquote(name.decode())
                mtime: Any = db.hget(self._key_of((project, session_id, ""), "state"), "mtime")
                if mtime is not None:
                    found.append((int(mtime), project))
            return [project for _, project in sorted(found, reverse=True)]

        return await self._run(find)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of a session's other transcripts."""
        base = f"{self._base(key['project_key'])}:{quote(key['session_id'], safe='')}"
        names: Any = await self._run(lambda db: db.zrange(f"{base}:subpaths", 0, -1))
        return [unquote(name.decode()) for name in names]

    async def search(self, query: str, **_: Any) -> list[SearchHit]:
        """Raise NotSupportedError: Redis has no full-text search."""
        raise NotSupportedError(
            f"cannot search for {query!r}: Redis has no full-text search; use SQLiteSessionStore or "
            "PostgresSessionStore"
        )

    async def aclose(self) -> None:
        """Close all connections. New ones are opened when the store is used again."""
        await self._workers.run(self._redis.close)

    async def _run(self, work: "Callable[[Redis], T]") -> T:
        return await self._workers.run(lambda: self._work(work))

    def _work(self, work: "Callable[[Redis], T]") -> T:
        from redis import RedisError  # noqa: PLC0415 - as above

        try:
            if not self._is_prepared:
                self._prepare()
                self._is_prepared = True
            return work(self._redis)
        except RedisError as error:
            reason = str(error) or type(error).__name__
            raise SessionStoreError(f"the session store {self._name}: {reason}") from error

    def _prepare(self) -> None:
        """Check the version of the keys, and migrate older ones."""
        key, newest = f"{self._prefix}:format", 1 + len(_MIGRATIONS)
        self._redis.set(key, newest, nx=True)
        version = int(cast(Any, self._redis.get(key)))
        if version > newest:
            raise SessionStoreError(
                f"the keys in {self._name} were written by a newer version of toolwire (their format is {version}, "
                f"this one supports {newest}); update toolwire, or use another prefix"
            )
        for number, migrate in enumerate(_MIGRATIONS[version - 1 :], version + 1):
            migrate(self._redis, self._prefix)
            self._redis.set(key, number)

    def _load(self, db: "Redis", place: Place) -> list[SessionStoreEntry] | None:
        lines = cast(list[bytes], db.lrange(self._key_of(place, "lines"), 0, -1))
        return [decode_entry(line) for line in lines] or None

    def _delete(self, db: "Redis", place: Place) -> None:
        base, names = self._base(place[0]), [quote(each, safe="") for each in place[1:]]
        db.eval(_DELETE, 1, f"{base}:sessions", base, *names)

    def _append(
        self, db: "Redis", key: SessionKey, entries: list[SessionStoreEntry], writer: str | None
    ) -> str | None:
        place = read_place(key)
        rows = [(entry, _name(entry), encode_entry(entry)) for entry in entries]
        base, state = self._base(place[0]), self._key_of(place, "state")
        names = [quote(each, safe="") for each in place]
        # These keys locate the session. They are in other slots of a cluster, so the script cannot write them.
        db.sadd(f"{self._prefix}:projects", names[0])
        db.sadd(self._projects_of(place[1]), names[0])
        for attempt in range(_TRIES):
            count, data, last = cast(Any, db.hmget(state, "count", "summary", "writer"))
            new = self._take_new(db, place, rows)
            previous = (last or b"").decode() or None
            if not new:
                return previous if previous != writer else None
            summary = "" if place[2] else fold_data(data, key, [entry for entry, *_ in new])
            given = (base, *names[1:], count or 0, summary, writer or "", self._ttl or "")
            lines = [each for _, name, line in new for each in (name, line)]
            if db.eval(_APPEND, 1, state, *given, *lines):
                return previous if previous != writer else None
            time.sleep(random.uniform(0, 0.002 * min(attempt + 1, 10)))  # noqa: S311 - so that not all try at once
        raise SessionStoreError(f"the session store {self._name}: too many concurrent writers of {key!r}")

    def _take_new(self, db: "Redis", place: Place, rows: "list[_Row]") -> "list[_Row]":
        """Return the entries that a transcript does not have yet, without duplicates."""
        asked = list(dict.fromkeys(name for _, name, _ in rows if name))
        known: set[bytes] = set()
        if asked:
            found = cast(Any, db.smismember(self._key_of(place, "uuids"), asked))
            known = {name for name, is_there in zip(asked, found, strict=True) if is_there}
        new = []
        for row in rows:
            if row[1] not in known:
                new.append(row)
                if row[1]:
                    known.add(row[1])
        return new

    def _projects_of(self, session: str) -> str:
        return f"{self._prefix}:of:{quote(session, safe='')}"

    def _base(self, project: str) -> str:
        return f"{self._prefix}:{{{quote(project, safe='')}}}"

    def _key_of(self, place: Place, part: str) -> str:
        project, session, subpath = place
        return f"{self._base(project)}:{quote(session, safe='')}:{quote(subpath, safe='')}:{part}"
