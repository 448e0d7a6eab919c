"""The cost of sessions: dollars as the CLI recorded them, and tokens; by session, day, project, model and tag.

Dollars are always the CLI's own figure. When a CLI ends it writes the total cost of the session so far, including
all resumes and subagents. If it could not (it was killed, or still runs), only the tokens that the model's API
reported are known, counted once per response. There are no dollars then, since toolwire has no price list.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from operator import add
from typing import Any, Final, Literal, get_args

from toolwire._support.log import logger_for
from toolwire._support.record import Record, record
from toolwire.sessions import entries, paths, recorded
from toolwire.sessions.paths import Directory
from toolwire.sessions.recorded import RecordedSession, Transcript
from toolwire.sessions.types import SessionStore

logger = logger_for("sessions")

CostGrouping = Literal["session", "day", "project", "model", "tag"]

_ROUNDING: Final = 1e-9
_TOO_MANY: Final = 1 << 50
"""Numbers of tokens or dollars from here on are implausible, and ignored."""
API_KEYS: Final = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
"""The keys of a `TokenUsage`, in its order, in the usage of a response of the API."""
MODEL_KEYS: Final = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
"""The same in the CLI's totals by model."""
UNKNOWN: Final = "unknown"
"""Stands for the model or the day of usage for which it is not recorded."""


@record
class TokenUsage(Record):
    """Tokens, and dollars if the CLI recorded them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float | None = None
    """None if the CLI recorded nothing."""

    @property
    def tokens(self) -> int:
        """The number of all tokens."""
        return sum(_list_tokens(self))

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        """Return the sum. Dollars are unknown (None) only if both are."""
        known = [each.cost_usd for each in (self, other) if each.cost_usd is not None]
        tokens = map(add, _list_tokens(self), _list_tokens(other))
        return _make_usage(tokens, sum(known) if known else None)


def _list_tokens(usage: TokenUsage) -> tuple[int, ...]:
    return usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens


def _make_usage(tokens: Iterable[int], dollars: float | None) -> TokenUsage:
    usage = TokenUsage(*tokens)
    usage.cost_usd = dollars
    return usage


@dataclass(frozen=True)
class CostPart:
    """The cost of one model on one day (UTC)."""

    day: str
    model: str
    usage: TokenUsage


@record
class SessionCost(Record):
    """The cost of a session, including all resumes and subagents."""

    session_id: str
    cost_usd: float | None = None
    """The total that the CLI recorded; None if it recorded none."""
    is_estimate: bool = False
    """True if the CLI's total is incomplete: the rest has tokens, counted from responses, but no dollars."""
    parts: list[CostPart] = field(default_factory=list)
    """The cost by day and model. Dollars between two totals of the CLI are divided by the tokens of each day."""
    project: str = ""
    """The directory in which the session began."""
    tag: str | None = None
    title: str = ""
    inherited_usd: float | None = None
    """For a fork made by the CLI: the cost of its source until then. In the CLI's total, but not in a report."""

    @property
    def usage(self) -> TokenUsage:
        """The sum of all parts."""
        return _add_up(each.usage for each in self.parts)

    @property
    def models(self) -> dict[str, TokenUsage]:
        """The sums by model."""
        names = dict.fromkeys(each.model for each in self.parts)
        return {name: _add_up(each.usage for each in self.parts if each.model == name) for name in names}


@record
class CostGroup(Record):
    """A row of a report: the cost of the sessions of one group."""

    name: str
    sessions: int
    usage: TokenUsage
    is_estimate: bool = False
    """True if usage of some sessions was counted from their responses, so that dollars are missing."""


@record
class CostReport(Record):
    """The cost of several sessions."""

    sessions: list[SessionCost] = field(default_factory=list)
    since: str | None = None
    until: str | None = None
    unreadable: list[str] = field(default_factory=list)
    """Ids of sessions that could not be read, and so are missing from the report."""

    @property
    def total(self) -> CostGroup:
        """The sum of all sessions."""
        return _make_group("", [(session, part.usage) for session in self.sessions for part in session.parts])

    def group(self, by: CostGrouping) -> list[CostGroup]:
        """Return the sums by session, day, project, model or tag: days in order, the rest by cost."""
        if by not in get_args(CostGrouping):
            raise ValueError(f"by must be one of {', '.join(get_args(CostGrouping))}, got {by!r}")
        found: dict[str, list[tuple[SessionCost, TokenUsage]]] = {}
        for session in self.sessions:
            own = {
                "session": session.session_id,
                "project": session.project or UNKNOWN,
                "tag": session.tag or "",
            }
            for part in session.parts:
                name = own.get(by) if by in own else part.day if by == "day" else part.model
                found.setdefault(name or "", []).append((session, part.usage))
        groups = [_make_group(name, parts) for name, parts in found.items()]
        if by == "day":
            return sorted(groups, key=lambda each: each.name)
        return sorted(groups, key=lambda each: (-(each.usage.cost_usd or 0), -each.usage.tokens, each.name))


def _make_group(name: str, parts: list[tuple[SessionCost, TokenUsage]]) -> CostGroup:
    sessions = {id(session): session for session, _ in parts}.values()
    is_estimate = any(each.is_estimate for each in sessions)
    return CostGroup(name, len(sessions), _add_up(usage for _, usage in parts), is_estimate)


def _add_up(parts: Iterable[TokenUsage]) -> TokenUsage:
    return reduce(TokenUsage.__add__, parts, TokenUsage())


def session_cost(
    session_id: str, directory: Directory | None = None, *, config_dir: Directory | None = None
) -> SessionCost:
    """Return the cost of a session. FileNotFoundError if there is no such session."""
    return read_cost(recorded.open_session(session_id, directory, config_dir))


async def session_cost_from_store(
    session_store: SessionStore, session_id: str, directory: Directory | None = None
) -> SessionCost:
    """Return the cost of a session in a store. FileNotFoundError if there is no such session."""
    return read_cost(await recorded.load_session(session_store, session_id, directory))


def cost_report(
    directory: Directory | None = None,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    include_worktrees: bool = True,
    config_dir: Directory | None = None,
    on_progress: Callable[[int, int], object] | None = None,
) -> CostReport:
    """Return the cost of the sessions of a directory and its git worktrees; with None, of all directories.

    `since` and `until` limit the report to the days between them, in UTC, both included. `on_progress(done, total)`
    is called after each session.
    """
    folders = paths.find_project_folders(directory, config_dir, include_worktrees=include_worktrees)
    files = list(paths.list_session_files(folders))
    if since is not None:
        start = _first_moment(since)
        files = [each for each in files if each.mtime >= start]
    report = _Report(since, until, len(files), on_progress)
    for file in files:
        try:
            report.add(recorded.open_file(file))
        except OSError as error:
            report.skip(file.session_id, error)
    found = {file.session_id: file for file in files}
    for session_id, inherited in report.find_forks():
        report.correct(recorded.open_file(found[session_id]), inherited)
    return report.finish()


async def cost_report_from_store(
    session_store: SessionStore,
    directory: Directory | None = None,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    on_progress: Callable[[int, int], object] | None = None,
) -> CostReport:
    """Return the cost of the sessions that a store has for a directory (None: the current one)."""
    from toolwire.sessions import store_functions  # noqa: PLC0415 - loads anyio, which the rest does not need

    rows = await store_functions.list_sessions_from_store(session_store, directory)
    report = _Report(since, until, len(rows), on_progress)
    for row in rows:
        try:
            report.add(await recorded.load_session(session_store, row.session_id, directory))
        except Exception as error:  # noqa: BLE001 - whatever a store raises, one bad session must not hide the others
            report.skip(row.session_id, error)
    for session_id, inherited in report.find_forks():
        report.correct(await recorded.load_session(session_store, session_id, directory), inherited)
    return report.finish()


class _Report:
    """Collects the costs of sessions, limited to some days."""

    def __init__(
        self,
        since: datetime | None,
        until: datetime | None,
        count: int,
        on_progress: Callable[[int, int], object] | None,
    ) -> None:
        self._since, self._until = (None if each is None else _day_of(each) for each in (since, until))
        self._count = count
        self._done = 0
        self._on_progress = on_progress
        self._costs: dict[str, SessionCost] = {}
        self._responses: dict[str, array[int]] = {}
        self._totals: dict[int, _Total] = {}
        self._unreadable: list[str] = []

    def add(self, session: RecordedSession) -> None:
        count = _Count(session)
        self._costs[session.session_id] = count.cost
        self._responses[session.session_id] = array("q", map(hash, count.before_first_total))
        self._totals |= {hash(each.uuid): each for each in count.totals if each.uuid}
        self._advance()

    def skip(self, session_id: str, error: Exception) -> None:
        logger.warning("cannot read the cost of session %s: %s", session_id, error)
        self._unreadable.append(session_id)
        self._advance()

    def find_forks(self) -> "Iterator[tuple[str, _Total]]":
        """Yield the sessions that the CLI forked from another one, each with the total that it inherited."""
        for session_id, responses in self._responses.items():
            for each in reversed(responses):
                total = self._totals.get(each)
                if total is not None and total.session_id != session_id:
                    yield session_id, total
                    break

    def correct(self, session: RecordedSession, inherited: "_Total") -> None:
        """Count a fork again, without the cost of its source."""
        cost = _Count(session, inherited).cost
        cost.inherited_usd = inherited.cost_usd
        if cost.cost_usd is not None:
            cost.cost_usd = max(cost.cost_usd - inherited.cost_usd, 0.0)
        self._costs[session.session_id] = cost

    def finish(self) -> CostReport:
        for cost in self._costs.values():
            if self._since is not None or self._until is not None:
                inside = [each for each in cost.parts if self._is_inside(each.day)]
                if len(inside) < len(cost.parts):
                    cost.parts = inside
                    cost.cost_usd = cost.usage.cost_usd
        return CostReport(
            [each for each in self._costs.values() if each.parts], self._since, self._until, self._unreadable
        )

    def _is_inside(self, day: str) -> bool:
        return day != UNKNOWN and (self._since or "") <= day <= (self._until or "9999")

    def _advance(self) -> None:
        self._done += 1
        if self._on_progress is not None:
            self._on_progress(self._done, self._count)


@dataclass(frozen=True)
class _Total:
    """A total that the CLI recorded when it ended. `uuid` is that of the entry of the last response before it."""

    session_id: str
    uuid: str
    cost_usd: float
    models: Mapping[str, TokenUsage]


@dataclass(frozen=True)
class _Response:
    day: str
    model: str
    usage: TokenUsage
    at: int


def read_cost(session: RecordedSession) -> SessionCost:
    """Compute the cost of a session."""
    return _Count(session).cost


class _Count:
    """One pass over a session. `inherited` is the total of a fork's source, which is not part of its own cost."""

    def __init__(self, session: RecordedSession, inherited: _Total | None = None) -> None:
        self.totals: list[_Total] = []
        self.before_first_total: list[str] = []
        self._parts: dict[tuple[str, str], TokenUsage] = {}
        self._open: dict[str, _Response] = {}  # responses that no total includes yet
        self._closed: set[str] = set()
        self._before = inherited
        self._copied = inherited.uuid if inherited else ""
        self._last_uuid = ""
        self._last_day = UNKNOWN
        self._covered_until = 0
        self._unknown_price = False
        data: dict[str, Any] = {}
        for _, entry in session.main.read_all():
            entries.fold_entry(data, entry)
            self._add_entry(entry, session.session_id)
        if self._open or not self.totals:
            self._add_subagents(session.subagents.values())
        for each in self._open.values():
            self._add(each.day, each.model, each.usage)
        self.cost = SessionCost(
            session.session_id,
            self.totals[-1].cost_usd if self.totals else None,
            bool(self._open) or self._unknown_price,
            [CostPart(day, model, usage) for (day, model), usage in self._parts.items()],
            data.get("cwd", ""),
            data.get("tag"),
            entries.choose_title(data),
        )

    def _add_entry(self, entry: Mapping[str, Any], session_id: str) -> None:
        if "forkedFrom" in entry:  # copied by fork_session(); its cost belongs to the source
            self._covered_until = max(self._covered_until, entries.read_time(entry.get("timestamp")) or 0)
            return
        if entry.get("type") == "cost-state":
            if total := _read_total(entry, session_id, self._last_uuid):
                self._close(total)
                self._unknown_price = entry.get("hasUnknownModelCost") is True
        elif found := _read_response(entry):
            name, response = found
            self._last_uuid, self._last_day = str(entry.get("uuid") or ""), response.day
            if not self.totals:
                self.before_first_total.append(self._last_uuid)
            if name not in self._closed:
                self._open[name] = response
            if self._last_uuid == self._copied:
                self._closed |= self._open.keys()
                self._open.clear()

    def _close(self, total: _Total) -> None:
        """Distribute the cost since the last total over the days of the responses since then."""
        before = self._before
        if before is not None and total.cost_usd < before.cost_usd:  # the CLI started counting from 0 again
            self._parts.clear()
            before = None
        weights: Counter[tuple[str, str]] = Counter()
        for each in self._open.values():
            weights[each.day, each.model] += each.usage.tokens or 1
        attributed = 0.0
        for model, usage in total.models.items():
            added = subtract(usage, before.models.get(model) if before else None)
            attributed += added.cost_usd or 0.0
            own = {day: count for (day, name), count in weights.items() if name == model}
            self._share_out(model, added, own or _by_day(weights))
        rest = total.cost_usd - (before.cost_usd if before else 0.0) - attributed
        if abs(rest) > _ROUNDING:
            self._share_out(UNKNOWN, TokenUsage(cost_usd=rest), _by_day(weights))
        self._covered_until = max([self._covered_until, *(each.at for each in self._open.values())])
        self._closed |= self._open.keys()
        self._open.clear()
        self._before = total
        self.totals.append(total)

    def _share_out(self, model: str, usage: TokenUsage, weights: Mapping[str, int]) -> None:
        whole = sum(weights.values())
        left = usage
        for day, weight in list(weights.items())[:-1]:
            part = _scale(usage, weight / whole)
            self._add(day, model, part)
            left = subtract(left, part)
        self._add(next(reversed(list(weights)), self._last_day), model, left)

    def _add(self, day: str, model: str, usage: TokenUsage) -> None:
        if usage.tokens or usage.cost_usd:
            self._parts[day, model] = self._parts.get((day, model), TokenUsage()) + usage

    def _add_subagents(self, transcripts: Iterable[Transcript]) -> None:
        """Add the responses of subagents after the last total, which no total includes."""
        for each in transcripts:
            for _, entry in each.read_all():
                found = _read_response(entry)
                if found is None or found[0] in self._closed:
                    continue
                if not self._covered_until or found[1].at > self._covered_until:
                    self._open[found[0]] = found[1]


def _read_response(entry: Mapping[str, Any]) -> tuple[str, _Response] | None:
    """Return the usage of a response, and the id that all entries of one response share."""
    message = entry.get("message")
    if entry.get("type") != "assistant" or not isinstance(message, dict):
        return None
    usage = message.get("usage")
    if not isinstance(usage, dict):
        return None
    names = [message.get("id"), entry.get("requestId"), entry.get("uuid")]
    name = next((each for each in names if isinstance(each, str) and each), None)
    model = message.get("model")
    at = entries.read_time(entry.get("timestamp")) or 0
    counted = TokenUsage(*(_count(usage.get(key)) for key in API_KEYS))
    if name is None or not counted.tokens:
        return None
    try:
        day = datetime.fromtimestamp(at / 1000, UTC).date().isoformat() if at else UNKNOWN
    except (OverflowError, ValueError):  # a year out of range
        day = UNKNOWN
    return name, _Response(day, model if isinstance(model, str) and model else UNKNOWN, counted, at)


def _read_total(entry: Mapping[str, Any], session_id: str, uuid: str) -> _Total | None:
    total = _dollars(entry.get("totalCostUSD"))
    if total is None:
        return None
    found = entry.get("modelUsage")
    models = {
        name: _make_usage((_count(each.get(key)) for key in MODEL_KEYS), _dollars(each.get("costUSD")))
        for name, each in (found.items() if isinstance(found, dict) else ())
        if isinstance(each, dict)
    }
    return _Total(session_id, uuid, total, models)


def _count(value: object) -> int:
    return value if type(value) is int and 0 < value < _TOO_MANY else 0


def _dollars(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        amount = float(value)
    except OverflowError:
        return None
    return amount if 0 <= amount < _TOO_MANY else None


def _by_day(weights: Mapping[tuple[str, str], int]) -> dict[str, int]:
    days: Counter[str] = Counter()
    for (day, _), count in weights.items():
        days[day] += count
    return dict(days)


def subtract(usage: TokenUsage, other: TokenUsage | None) -> TokenUsage:
    """Return the difference; no number of tokens is less than 0."""
    if other is None:
        return usage
    dollars = None if usage.cost_usd is None else usage.cost_usd - (other.cost_usd or 0.0)
    tokens = (max(one - two, 0) for one, two in zip(_list_tokens(usage), _list_tokens(other), strict=True))
    return _make_usage(tokens, dollars)


def _scale(usage: TokenUsage, share: float) -> TokenUsage:
    dollars = None if usage.cost_usd is None else usage.cost_usd * share
    return _make_usage((round(each * share) for each in _list_tokens(usage)), dollars)


def _day_of(when: datetime) -> str:
    return (when if when.tzinfo is None else when.astimezone(UTC)).date().isoformat()


def _first_moment(since: datetime) -> int:
    day = datetime.fromisoformat(_day_of(since)).replace(tzinfo=UTC)
    return int(day.timestamp() * 1000)
