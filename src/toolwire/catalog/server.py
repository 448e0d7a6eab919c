"""`Catalog`: a server whose tools are the entries of a REST catalogue.

Owns which tools there are and when that changes: cached definitions are available at once, the list is fetched in
the background after the handshake and again at intervals, and clients are notified of added and removed tools. What
a call does is in `purchase`. All of it runs in the server's lifespan: nothing runs while no client is connected.
"""

import hashlib
import os
import secrets as random_bytes
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Final, Literal

import anyio
from platformdirs import user_cache_path

from toolwire._support.log import logger_for
from toolwire._support.scrubber import Scrubber
from toolwire._support.secrets import keep_secret
from toolwire._support.threads import Workers
from toolwire.catalog.http.api import Api
from toolwire.catalog.http.connection import Retry
from toolwire.catalog.ledger.async_ledger import AsyncLedger
from toolwire.catalog.ledger.opening import (
    Address,
    default_address,
    is_url,
    open_ledger,
    recover,
    state_folder,
)
from toolwire.catalog.ledger.sql_ledger import Ledger
from toolwire.catalog.ledger.sqlite import MEMORY
from toolwire.catalog.ledger.types import Limits
from toolwire.catalog.money import dollars, micros
from toolwire.catalog.observe import Observer
from toolwire.catalog.profile.model import Profile
from toolwire.catalog.purchase.limits import Breaker, RateLimit, ResultCache, SharedRateLimit
from toolwire.catalog.purchase.purchase import MAX_IN_FLIGHT, QUEUE_TIMEOUT, Buyer
from toolwire.catalog.refresh import RefreshedServer, Status
from toolwire.catalog.secrets import CREDENTIALS, find_credentials
from toolwire.catalog.tools.build import Offer, Selection, build_offer, build_tool, drop_masked
from toolwire.catalog.tools.definitions import (
    Definition,
    Entry,
    Repairs,
    Skipped,
    identity,
    merge_names,
    parse_names,
    price_for,
    slug,
)
from toolwire.catalog.tools.entry_cache import load_entries, save_entries
from toolwire.catalog.tools.pins import Pins
from toolwire.errors import CatalogError, ToolDefinitionError, UsageError
from toolwire.tools.context import Context
from toolwire.tools.dispatch.interface import PlannedCall, Reservation, Reserver
from toolwire.tools.server import ToolServer

logger = logger_for("catalog")

DEFAULT_PRICE: Final = "TOOLWIRE_DEFAULT_PRICE"
"""The environment variable with the price, in dollars, that a call without a known price counts as."""
IN_LEDGER: Final = "ledger"
"""The value of `pins` that means the pins kept in the ledger."""
# Of agreeing on names; another round is needed only if another machine wrote names meanwhile.
_MAX_ROUNDS: Final = 3
SESSION: Final = "TOOLWIRE_SESSION"
"""The environment variable that gives several processes one session, and so one budget."""


class Catalog(RefreshedServer):
    """The tools of a REST catalogue, kept up to date, whose calls are paid within a budget.

        shop = Catalog("agentpmt", budget=5)
        options = ClaudeAgentOptions(mcp_servers={"shop": shop}, allowed_tools=["mcp__shop"])

    It is a `ToolServer`: it is served, wrapped and tested like any other.
    """

    _LOADING = "The catalogue is still being loaded."
    _DOWN = "The catalogue is down"
    _FAILED = "the catalogue cannot be read"

    def __init__(
        self,
        profile: Profile | str = "agentpmt",
        *,
        name: str | None = None,
        budget: float | str | Limits | None = None,
        budget_day: float | str | None = None,
        budget_total: float | str | None = None,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        rename: Mapping[str, str] | None = None,
        namespace: str = "",
        group: bool = False,
        refresh: float | None = 300.0,
        default_price: float | str | None = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        credentials_file: str | Path | None = None,
        cache: str | Path | Literal[False] | None = None,
        pins: str | Path | None = None,
        audit: str | Path | Literal[False] | None = None,
        cache_results: Mapping[str, float] | None = None,
        rate: float | None = None,
        max_in_flight: int = MAX_IN_FLIGHT,
        queue_timeout: float = QUEUE_TIMEOUT,
        retry: Retry | None = None,
        breaker: Breaker | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """Create a catalogue. Nothing is fetched before a client connects.

        `profile` is the name of a built-in profile, a file, or a `Profile`. `budget` is a hard limit in dollars
        for this process (or for all that share `TOOLWIRE_SESSION`), `budget_day` one for each day (UTC) and
        `budget_total` one for all time, both over everything in the ledger; `budget` may be `Limits` too. A call
        of a tool without a known price counts as `default_price` dollars; without a default, such a tool is
        bought only once under a limit. `include`, `exclude`, `rename`, `namespace` and `group` choose and name
        tools (see `Selection`). `refresh` is in seconds, 1 or more, None for never. `pins` is a file of accepted
        definitions, or "ledger" for those in the ledger: entries that differ from them are not offered. `ledger`
        is a file, the URL of a Postgres database that several machines share (`postgresql://...`), or a `Ledger`.
        `cache_results` maps a tool to the seconds for which its result is returned again instead of being bought
        anew. `rate` is the number of calls per second of all processes that use the ledger. At most
        `max_in_flight` calls are in flight at once; another call waits at most `queue_timeout` seconds, and then
        fails without being sent. `cache` and `audit` are files, False for none.

        Raises `UsageError` that names the variables missing in the environment.
        """
        self.profile = (Profile.find(profile) if isinstance(profile, str) else profile).resolved(environ)
        super().__init__(
            name or slug(self.profile.name), refresh, logger, lifespan=self._live, always_load=False
        )
        self.session = environ.get(SESSION) or random_bytes.token_hex(8)
        self._credentials = find_credentials(
            self.profile, environ, credentials_file or environ.get(CREDENTIALS)
        )
        self._scrubber = Scrubber(self._credentials.values)
        keep_secret(self._credentials.values)
        self._limits = _combine_limits(budget, budget_day, budget_total, self.profile, environ)
        self._selection = Selection(
            include=tuple(include),
            exclude=tuple(exclude),
            rename=dict(rename or {}),
            namespace=namespace,
            group=group,
            separator=self.profile.entry.name_separator,
        )
        self._narrowed = Selection(include=_parse_filter(self.profile, environ))
        self._default_price = _resolve_default_price(default_price, environ)
        # Without the key, so that prices stay valid with a new key.
        self._scope = _digest(self.profile.base_url.rstrip("/"))
        self._account = _digest(self.profile.base_url, self._credentials.digest)
        self._tool_limits: dict[str, int] = {}  # the limits of single tools, by entry
        self._ids_of_tool: dict[str, set[str]] = {}  # the entries that each limited tool has had so far
        self._warned_limits: set[str] = set()
        self._names: dict[str, str] = {}  # tool names by entry id; they survive a restart
        self._agreed: dict[str, str] = {}  # the names that all machines with this ledger use
        self._ledger_at = default_address(environ) if ledger is None else ledger
        self._ledger: Ledger | None = None
        usual = user_cache_path("toolwire", appauthor=False) / f"{self.name}-{self._account}.json"
        self._cache_file = _choose_file(cache, usual)
        self._pinned_in_ledger = pins == IN_LEDGER
        self._pins_file = None if pins is None or self._pinned_in_ledger else Path(pins)
        self._audit_file = _choose_file(audit, _default_audit_path(self._ledger_at))
        self._rate = rate
        self._own_rate = None if rate is None else RateLimit(rate, burst=max(1, int(rate)))
        self._retry = retry
        self._breaker = breaker or Breaker()
        self._max_in_flight = _check_count("max_in_flight", max_in_flight)
        self._queue_timeout = _check_positive("queue_timeout", queue_timeout)
        self._cached_for = dict(cache_results or {})
        self._results = ResultCache(max(self._cached_for.values())) if self._cached_for else None
        self._definitions: dict[str, Definition] = {}
        self._io = Workers(4)
        self._buyer: Buyer | None = None
        self._observer: Observer | None = None
        self._was_empty = False
        self._entries: Sequence[Entry] | None = None  # the list that was fetched last
        self._pins_then: tuple[int, int] | None = None
        self._repairs: Repairs = {}
        if self._pins_file is not None:
            self._pins()  # a file that cannot be read is an error already here

    # For users and clients.

    @property
    def definitions(self) -> Mapping[str, Definition]:
        """The definitions of the tools, by tool name."""
        return self._definitions

    @property
    def limits(self) -> Limits:
        """The budget."""
        return self._limits

    def entry_id(self, id: str) -> str:
        """Return the id of an entry in the ledger, which is unique across APIs."""
        return f"{self._scope}:{id}"

    @property
    def pins_document(self) -> str:
        """The name of the document with the pins of this API in the ledger."""
        return f"pins {self._scope}"

    @property
    def ledger(self) -> "Ledger | str | os.PathLike[str]":
        """The `ledger` argument: a `Ledger` or its address."""
        return self._ledger_at

    @property
    def ledgers(self) -> "Sequence[Ledger | str | os.PathLike[str]]":
        """The ledger, in a list: a server that combines several catalogues has theirs."""
        return [self._ledger_at]

    @property
    def metrics_registry(self) -> Any:
        """The Prometheus registry of the calls; a served catalogue includes it in `/metrics`."""
        return self._observe().registry

    @property
    def _has_list(self) -> bool:
        return bool(self._definitions)

    def _scrub(self, text: str) -> str:
        return self._scrubber.text(text)

    def find_reserver(self, tool: str) -> tuple[Reserver, str] | None:
        """Return this catalogue for its own tools, which cost money; None for a tool that was added by hand."""
        return (self, tool) if tool in self._definitions else None

    def quote(self, calls: Sequence[PlannedCall]) -> str:
        """Return a sentence about what these calls cost together; "" if one has no known price."""
        found = [(self._definitions.get(call.tool), call.arguments) for call in calls]
        prices = [price_for(each, arguments)[1] for each, arguments in found if each is not None]
        known = [price for price in prices if price is not None]
        return f"Costs up to {dollars(sum(known))} a call." if len(known) == len(calls) else ""

    async def reserve(self, calls: Sequence[PlannedCall]) -> Reservation:
        """Reserve the money for planned calls, for all of them or none. Raises CatalogError with the reason."""
        try:
            await self.wait_until_ready()
        except UsageError as error:
            raise CatalogError(str(error)) from error
        if self._buyer is None:
            raise CatalogError("the catalogue is closed")
        found = [(self._definitions.get(call.tool), call) for call in calls]
        known = [(definition, call) for definition, call in found if definition is not None]
        if len(known) < len(found):
            raise CatalogError(
                next(self.unknown(call.tool) for definition, call in found if definition is None)
            )
        return await self._buyer.reserve(known)

    # The lifespan.

    @asynccontextmanager
    async def _live(self, _server: ToolServer[None]) -> AsyncIterator[None]:
        try:
            connected = Api(self.profile, self._credentials, retry=self._retry, workers=self._io)
            ledger, observer = await self._io.run(self._open_ledger), self._observe()
        except (CatalogError, UsageError) as error:
            self.status = replace(self.status, state="down", error=str(error))
            self._schedule.release_waiters()
            self._listable.set()
            raise
        async with connected as api, anyio.create_task_group() as tasks:
            books = AsyncLedger(ledger)
            buyer = self._buyer = Buyer(
                api=api,
                profile=self.profile,
                ledger=books,
                limits=self._limits_by_entry(),
                entry_id=self.entry_id,
                default_price=self._default_price,
                session=self.session,
                identity=self._account,
                scrubber=self._scrubber,
                observer=observer,
                breaker=self._breaker,
                workers=self._io,
                rate=self._limit_rate(books),
                cache=self._results,
                cached_for=self._cached_for,
                max_in_flight=self._max_in_flight,
                queue_timeout=self._queue_timeout,
            )
            tasks.start_soon(self._load, api)
            if ledger.remote:
                tasks.start_soon(self._recover_regularly, books)
            try:
                yield
            finally:
                if self._buyer is buyer:  # else the next lifespan has begun already
                    self._buyer = None
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await books.aclose()
                    await self._io.run(partial(self._close_ledger, ledger))

    async def _recover_regularly(self, books: AsyncLedger) -> None:
        """Book the open calls of processes on other machines that have died, at regular intervals."""
        while True:
            await anyio.sleep(books.ledger.lease)
            try:
                await books.query(recover, books.ledger)
            except CatalogError as error:  # unreachable: retried at the next interval
                logger.warning("the open calls of dead processes could not be booked: %s", error)

    def _limit_rate(self, books: AsyncLedger) -> RateLimit | SharedRateLimit | None:
        """Return the rate limit: shared by all who use the ledger, unless the ledger is in memory."""
        if self._rate is None or books.ledger.path == MEMORY:
            return self._own_rate
        return SharedRateLimit(self._rate, max(1, int(self._rate)), books, self._account)

    def _open_ledger(self) -> Ledger:
        """Open the ledger. Each lifespan opens a file itself: one lifespan may begin while another still ends."""
        at = self._ledger_at
        if self._ledger is None or self._closes(self._ledger):
            self._ledger = open_ledger(at) if isinstance(at, str | os.PathLike) else at
        return recover(self._ledger)

    def _close_ledger(self, ledger: Ledger) -> None:
        if self._closes(ledger):
            ledger.close()
            if self._ledger is ledger:
                self._ledger = None

    def _closes(self, ledger: Ledger) -> bool:
        """True if a ledger is closed at the end of the lifespan. One in memory, or opened by the caller, is not."""
        return ledger is not self._ledger_at and ledger.path != MEMORY

    def _observe(self) -> Observer:
        if self._observer is None:
            self._observer = Observer(self.name, self.session, self._audit_file)
        return self._observer

    # The list.

    async def _load(self, api: Api) -> None:
        """Offer the cached entries, then fetch the list, now and whenever it is due."""
        if self._cache_file is not None and not self._definitions:
            await self._io.run(self._offer_cached)
            if self._definitions:
                self._listable.set()
        await self._schedule.keep(partial(self._fetch, self._listable, partial(self._update_list, api)))

    def _offer_cached(self) -> None:
        kept = None if self._cache_file is None else load_entries(self._cache_file, self.profile.base_url)
        if kept is None or not kept.entries:
            return
        self._names = dict(kept.names)
        self._read_agreed_names()
        try:
            self._offer(kept.entries, "cached", kept.at)
        except (CatalogError, UsageError) as error:  # the pins cannot be read: each fetch reports it again
            logger.warning("%s: the cached definitions are not used: %s", self.name, error)

    async def _update_list(self, api: Api) -> None:
        """Fetch the list, and offer its entries. Uses a thread: thousands of entries take seconds."""
        entries = await api.entries()
        if not entries and self._definitions and not self._was_empty:
            self._was_empty = True
            raise CatalogError(
                "the list is empty; the present tools are kept unless the next list is empty too"
            )
        self._was_empty = not entries
        pins = await self._io.run(self._pins_state) if self._is_pinned else None
        if entries is self._entries and pins == self._pins_then and self.status.state == "live":
            # Nothing has changed, so the differences from the pins are still the same.
            changes = self.status.changes if self._is_pinned else ()
            self.status = replace(self.status, changes=changes, error=None, at=time.time())
            return
        await self._io.run(partial(self._offer_fetched, entries))
        self._entries, self._pins_then = entries, pins

    def _offer_fetched(self, entries: Sequence[Entry]) -> None:
        whole = drop_masked(entries, self._scrubber.mask)
        self._read_agreed_names()
        for _ in range(_MAX_ROUNDS):
            self._offer(whole, "live", time.time())
            self._remember_names(whole)
            if self._agree_on_names(whole):
                break
        self._warn_of_limits()
        if self._cache_file is not None and whole:  # an empty list never replaces cached definitions
            save_entries(self._cache_file, whole, self.profile.base_url, self._names)

    # The tools.

    @property
    def _is_pinned(self) -> bool:
        return self._pinned_in_ledger or self._pins_file is not None

    def _pins(self) -> Pins | None:
        if self._pins_file is not None:
            return Pins.load(self._pins_file)
        if not self._pinned_in_ledger:
            return None
        if self._ledger is None:
            raise CatalogError("the pins cannot be read: their ledger is closed")
        found = self._ledger.document(self.pins_document)
        return Pins() if found is None else Pins.parse(found.content, f"the document in {self._ledger.path}")

    def _pins_state(self) -> tuple[int, int] | None:
        """Return a fingerprint of the pins; None if there are none."""
        if self._pinned_in_ledger and self._ledger is not None:
            return self._ledger.document_version(self.pins_document), 0
        try:
            found = self._pins_file.stat() if self._pins_file is not None else None
        except OSError:
            return None
        return None if found is None else (found.st_mtime_ns, found.st_size)

    def _offer(self, entries: Sequence[Entry], state: Literal["live", "cached"], at: float) -> None:
        """Build tools from entries and replace the present tools with them. Runs in a thread."""
        own = set(self.tools) - self._definitions.keys()  # added by hand: they keep their names
        made = build_offer(
            entries,
            self._selection,
            self._definitions,
            self._pins(),
            taken=own,
            known=self._names,
            agreed=self._agreed,
            narrowed=self._narrowed,
            repairs=self._repairs,
        )
        if self.status.error is not None:
            self._log_and_notify("the catalogue can be read again", "notice")
        self._log_offer(made)
        refused = self._register(made.definitions)
        skipped = (*made.skipped, *refused)
        registered = len(self._definitions)
        self.status = Status(state, made.entries, registered, skipped, made.changes, None, at)

    def _log_offer(self, made: Offer) -> None:
        """Log what a list contains: each entry that is left out, and each change, once."""
        logger.info("%d entries fetched, %d tools to register", made.entries, len(made.definitions))
        for each in made.skipped:
            if each not in self.status.skipped:
                logger.warning("entry %s (%s) is left out: %s", each.id, each.name, each.reason)
        for change in made.changes:
            if change not in self.status.changes:
                kind = change.kind.replace("_", " ")
                logger.warning("catalogue: %s %s\n%s", change.name, kind, change.diff)

    def _remember_names(self, entries: Iterable[Entry]) -> None:
        """Remember the names of the tools, and of listed entries that the filters exclude here."""
        now = {definition.id: name for name, definition in self._definitions.items()}
        ids, used = {each.id for each in entries}, set(now.values())
        self._names = {
            who: name for who, name in self._names.items() if who in ids and name not in used
        } | now

    @property
    def _names_document(self) -> str:
        """The name of the ledger document with the tool names: one for each combination of naming settings."""
        chosen = self._selection
        settings = [
            chosen.namespace,
            str(chosen.group),
            *(f"{a}={b}" for a, b in sorted(chosen.rename.items())),
        ]
        return f"names {self._scope} {_digest(*settings)}"

    def _read_agreed_names(self) -> None:
        """Read the names that other machines use, if the ledger is shared with any."""
        if self._ledger is None or not self._ledger.remote:
            return
        try:
            found = self._ledger.document(self._names_document)
        except CatalogError as error:  # not fatal: without the ledger nothing can be bought anyway
            logger.warning("the tool names could not be read from the ledger: %s", error)
        else:
            self._agreed = parse_names(None if found is None else found.content)

    def _agree_on_names(self, entries: Iterable[Entry]) -> bool:
        """Share our tool names with other machines. Returns False if they already use others, which then apply."""
        if self._ledger is None or not self._ledger.remote or self._names == self._agreed:
            return True
        listed = {each.id for each in entries}
        try:
            agreed = self._ledger.change_document(
                self._names_document, lambda document: merge_names(document, self._names, listed)
            )
        except CatalogError as error:
            logger.warning("the tool names could not be written to the ledger: %s", error)
            return True
        self._agreed = parse_names(agreed.content)
        return all(self._agreed.get(id) == name for id, name in self._names.items())  # noqa: A001

    def _register(self, definitions: Sequence[Definition]) -> list[Skipped]:
        """Replace the tools with those of these definitions. Returns the entries that cannot be a tool."""
        wanted = {definition.name: definition for definition in definitions}
        refused, changed = [], []
        for name, definition in list(wanted.items()):
            if self._definitions.get(name) == definition:
                continue
            try:
                changed.append(build_tool(definition, self._buy))
            except ToolDefinitionError as error:  # one bad entry must not affect the others
                logger.warning("%s (%s) is left out: %s", name, definition.id, error)
                refused.append(Skipped(definition.id, name, str(error)))
                del wanted[name]
        self._note_entries(wanted.values())
        self._bind_limits(wanted)  # before any of them can be called
        if changed or wanted.keys() != self._definitions.keys():
            self.swap([name for name in self._definitions if name not in wanted], changed)
        self._definitions = wanted
        return refused

    def _note_entries(self, definitions: Iterable[Definition]) -> None:
        """Tell the ledger which entries exist: a new id with a known name inherits the price and the stop."""
        if self._ledger is None:
            return
        try:
            self._ledger.note_entries({self.entry_id(each.id): identity(each.base) for each in definitions})
        except CatalogError as error:  # each entry is noted again when it is bought
            logger.warning("the ledger could not note the entries of the list: %s", error)

    def _bind_limits(self, definitions: Mapping[str, Definition]) -> None:
        """Apply the limits of single tools to their entries, which keep them whatever they are called later."""
        for name, definition in definitions.items():
            if (most := self._limits.per_tool.get(name)) is not None:
                entry = self.entry_id(definition.id)
                self._tool_limits[entry] = min(most, self._tool_limits.get(entry, most))
                self._ids_of_tool.setdefault(name, set()).add(entry)  # all ids of a tool share one limit
        if self._buyer is not None:
            self._buyer.limits = self._limits_by_entry()

    def _warn_of_limits(self) -> None:
        """Warn once for each limit whose tool does not exist: a misspelt name would mean no limit at all."""
        for name in self._limits.per_tool.keys() - self._ids_of_tool.keys() - self._warned_limits:
            self._warned_limits.add(name)
            logger.warning("per_tool has a limit for %s, but %s has no tool of that name", name, self.name)

    def _limits_by_entry(self) -> Limits:
        same = {
            entry: tuple(sorted(entries - {entry}))
            for entries in self._ids_of_tool.values()
            for entry in entries
            if len(entries) > 1
        }
        return replace(self._limits, per_tool=dict(self._tool_limits), same_tool=same)

    async def _buy(
        self, definition: Definition, arguments: dict[str, Any], context: Context[Any]
    ) -> dict[str, Any]:
        if self._buyer is None:
            raise CatalogError("the catalogue is closed")
        return await self._buyer.call(definition, arguments, context)


def _combine_limits(
    budget: float | str | Limits | None,
    per_day: float | str | None,
    total: float | str | None,
    profile: Profile,
    environ: Mapping[str, str],
) -> Limits:
    """Combine the budgets of the caller and of the environment: the smaller one applies."""
    limits = budget if isinstance(budget, Limits) else Limits()
    variable = profile.environment.budget
    given = {
        "per_session": [
            ("budget", None if isinstance(budget, Limits) else budget),
            (variable, environ.get(variable) if variable else None),
        ],
        "per_day": [("budget_day", per_day)],
        "total": [("budget_total", total)],
    }
    found: dict[str, Any] = {}
    for name, sources in given.items():
        amounts = [_read_amount(source, value) for source, value in sources if value is not None]
        amounts += [] if (known := getattr(limits, name)) is None else [known]
        found[name] = min(amounts) if amounts else None
    return replace(limits, **found)


def _read_amount(source: str, value: float | str) -> int:
    """Read a budget. An empty one is rejected: a variable set to an empty text does not mean "no limit"."""
    try:
        return micros(value)
    except ValueError as error:
        hint = " (unset the variable for no limit)" if value == "" else ""
        raise UsageError(f"{source} is not an amount of dollars: {error}{hint}") from None


def _check_positive(name: str, value: float) -> Any:
    """Reject a value that is not a number over 0."""
    if isinstance(value, (bool, str)) or not 0 < value < inf:
        raise UsageError(f"{name} must be a number over 0, got {value!r}")
    return value


def _check_count(name: str, value: int) -> int:
    """Reject a value that is not a whole number of 1 or more."""
    if type(value) is not int or value < 1:
        raise UsageError(f"{name} must be a whole number, 1 or more, got {value!r}")
    return value


def _resolve_default_price(given: float | str | None, environ: Mapping[str, str]) -> int | None:
    """Return the price that a call without a known price counts as, from the caller or the environment."""
    price = environ.get(DEFAULT_PRICE, "").strip() or None if given is None else given
    try:
        return None if price is None else micros(price)
    except ValueError as error:
        raise UsageError(f"the default price is not an amount of dollars: {error}") from None


def _parse_filter(profile: Profile, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Parse the filter in the environment: words separated by commas."""
    words = environ.get(profile.environment.filter, "") if profile.environment.filter else ""
    return tuple(each.strip() for each in words.split(",") if each.strip())


def _choose_file(given: str | Path | Literal[False] | None, default: Path | None) -> Path | None:
    """Return the given file, or the default; None for False."""
    if given is False:
        return None
    return default if given is None else Path(given)


def _default_audit_path(ledger: Ledger | Address) -> Path | None:
    """Return the default path of the audit file: beside the ledger's file, or where that is by default."""
    if is_url(ledger):
        return state_folder() / "audit.jsonl"
    if not isinstance(ledger, str | os.PathLike) or os.fspath(ledger) == MEMORY:
        return None
    return Path(ledger).parent / "audit.jsonl"


def _digest(*texts: str) -> str:
    """Return a short hash of these texts."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]
