"""`toolwire catalog`: the command group, and its commands about the ledger: `spend`, `reconcile` and `accept`."""

import re
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from toolwire.cli.catalog_profile import check, pin, schema
from toolwire.cli.shared.exit_codes import report_errors
from toolwire.cli.shared.printing import one_line, show_json
from toolwire.cli.shared.target_options import JsonOption
from toolwire.errors import UsageError

if TYPE_CHECKING:
    from toolwire.catalog.ledger.sqlite import Row, SqliteLedger

catalog_app = typer.Typer(
    name="catalog",
    help="Paid tools of a REST catalogue: their costs, prices and profiles.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

LedgerOption = Annotated[
    Path | None,
    typer.Option(
        "--ledger",
        metavar="FILE",
        help="The ledger. Default: $TOOLWIRE_LEDGER, or the one in your state folder.",
        show_default=False,
    ),
]

_AGO: Final = re.compile(r"(\d{1,4})([hdw])")


class By(StrEnum):
    """The groups of the sums."""

    TOOL = "tool"
    DAY = "day"
    SESSION = "session"
    STATE = "state"


def spend(  # noqa: PLR0917 - typer takes them by position
    ledger: LedgerOption = None,
    by: Annotated[
        By | None, typer.Option("--by", help="Group the sums by this. Default: by day, then by tool.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="WHEN",
            help="12h, 7d, 4w (today included), or 2026-11-01. Days are in UTC.",
        ),
    ] = None,
    per_day: Annotated[
        str | None,
        typer.Option("--per-day", metavar="DOLLARS", help="Show what is left of this budget today."),
    ] = None,
    total: Annotated[
        str | None,
        typer.Option("--total", metavar="DOLLARS", help="Show what is left of this budget in total."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show the costs: settled, reserved, and unknown.

    Examples:

      toolwire catalog spend

      toolwire catalog spend --by tool --since 7d

      toolwire catalog spend --per-day 5 --total 100

      toolwire catalog spend --json --ledger ./ledger.db
    """
    from toolwire.cli import catalog_report  # noqa: PLC0415 - heavy

    limits = {"day": _parse_money("--per-day", per_day), "total": _parse_money("--total", total)}
    now = datetime.now(UTC)
    start = _parse_since(since, now)
    opened = _open_ledger(ledger)
    if opened is None:
        report = catalog_report.Report(str(_ledger_path(ledger)), start)
    else:
        with opened:
            report = catalog_report.read_report(
                opened, (by.value,) if by else ("day", "tool"), start, limits, now
            )
    if json:
        show_json(report.as_json())
    else:
        catalog_report.show_report(report)


def reconcile(  # noqa: PLR0917
    call: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]", help="The call, or the first characters of its id.", show_default=False
        ),
    ] = None,
    ledger: LedgerOption = None,
    charged: Annotated[
        bool | None,
        typer.Option(
            "--charged/--not-charged", help="The outcome, as the seller reports it.", show_default=False
        ),
    ] = None,
    amount: Annotated[
        str | None,
        typer.Option("--amount", metavar="DOLLARS", help="The cost. Default: the reserved amount."),
    ] = None,
    all_not_charged: Annotated[
        bool, typer.Option("--all-not-charged", help="Release the money of all unknown calls.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """List the calls whose response was lost, or record the outcome of one.

    Their money stays reserved until the outcome is recorded.

    Examples:

      toolwire catalog reconcile

      toolwire catalog reconcile 3fa9 --charged --amount 0.01

      toolwire catalog reconcile 3fa9 --not-charged
    """
    from toolwire.catalog.ledger.sqlite import owner_alive  # noqa: PLC0415
    from toolwire.cli import catalog_report  # noqa: PLC0415 - heavy

    cost = _parse_money("--amount", amount)
    _check_options(call, charged, cost, all_not_charged)
    opened = _open_ledger(ledger)
    if opened is None:
        if call is not None:
            raise UsageError(f"there is no ledger at {_ledger_path(ledger)}")
        catalog_report.show_calls([], json)
        return
    with opened:
        opened.recover(owner_alive)  # calls that a crash left open become unknown
        unknown = opened.rows(states=["unknown"])
        if call is None and not all_not_charged:
            catalog_report.show_calls(unknown, json)
            return
        chosen = unknown if call is None else [_find_call(opened, unknown, call)]
        for row in chosen:
            opened.resolve(row.id, bool(charged), cost)
        picked = {row.id for row in chosen}
        catalog_report.show_resolved([row for row in opened.rows() if row.id in picked], json)


def accept(
    name: Annotated[str, typer.Argument(metavar="TOOL|ENTRY", show_default=False)],
    price: Annotated[
        str | None,
        typer.Option(
            "--price", metavar="DOLLARS", help="The highest price to pay. Default: the price now asked."
        ),
    ] = None,
    action: Annotated[
        str | None,
        typer.Option(
            "--action",
            metavar="ACTION",
            help="Only the price of this action, if actions have their own. Default: all that are waiting.",
        ),
    ] = None,
    ledger: LedgerOption = None,
) -> None:
    """Accept a higher price, set the price of a tool without one, or allow a stopped tool again.

    Examples:

      toolwire catalog accept search

      toolwire catalog accept search --price 0.02

      toolwire catalog accept search --price 0.02 --action deep
    """
    from toolwire.catalog.ledger.types import format_dollars  # noqa: PLC0415

    wanted = _parse_money("--price", price)
    opened = _open_ledger(ledger)
    if opened is None:
        raise UsageError(f"there is no ledger at {_ledger_path(ledger)}")
    with opened:
        entry, tool = _find_entry(opened, name)
        stopped = opened.stopped(entry) is not None
        done = []
        with opened.together():
            for variant, (was, new) in _new_prices(opened, entry, wanted, action).items():
                opened.accept_price(entry, new, tool, variant)
                label = f"{tool} ({variant})" if variant else tool
                known = "unknown" if was is None else format_dollars(was)
                done.append(f"{label} may now cost {format_dollars(new)} per call; before: {known}.")
            if stopped:
                opened.accept(entry)
                done.append(f"{tool} may be called again.")
    for line in done or [f"Nothing to accept: {name} is not stopped, and its price has not risen."]:
        typer.echo(one_line(line))


for command in (spend, reconcile, accept, pin, check, schema):
    catalog_app.command()(report_errors(command))


def _find_entry(opened: "SqliteLedger", name: str) -> tuple[str, str]:
    """Find the entry that a name stands for, and its tool; of several, the one that waits to be accepted."""
    found, waiting = opened.find(name), _find_waiting(opened)
    if not found:
        names = ", ".join(sorted(set(waiting.values())))
        more = f"; waiting to be accepted: {names}" if names else ""
        raise UsageError(f"the ledger has no stopped tool and no price called {name}{more}")
    chosen = sorted(found.keys() & waiting.keys()) or sorted(found)
    if len(chosen) > 1:
        raise UsageError(f"{name} matches {len(chosen)} entries, name one of them: {', '.join(chosen)}")
    return chosen[0], found[chosen[0]] or chosen[0]


def _new_prices(
    opened: "SqliteLedger", entry: str, wanted: int | None, action: str | None
) -> dict[str, tuple[int | None, int]]:
    """Return the prices of an entry to change, by action: the accepted one and the new one."""
    known = {each.variant: each for each in opened.prices() if each.entry_id == entry}
    unpriced = {each.variant: each for each in opened.unpriced() if each.entry_id == entry}
    waiting = {variant for variant, each in known.items() if each.offered > each.price} | unpriced.keys()
    if action is not None:
        waiting &= {action}
    if wanted is None:
        if waiting and waiting <= unpriced.keys() and opened.stopped(entry) is None:
            tool = unpriced[min(waiting)].tool or entry
            raise UsageError(f"{tool} has no known price: set one with --price 0.01")
        return {each: (known[each].price, known[each].offered) for each in sorted(waiting & known.keys())}
    chosen = waiting or ({action} if action is not None else known.keys()) or {""}
    if not waiting and len(chosen) > 1:
        actions = ", ".join(each or '""' for each in sorted(chosen))
        raise UsageError(f"{entry} has {len(chosen)} prices, choose one with --action: {actions}")
    return {each: (known[each].price if each in known else None, wanted) for each in sorted(chosen)}


def _find_waiting(opened: "SqliteLedger") -> dict[str, str]:
    """Find the entries with something to accept, each with the name of its tool."""
    raised = [each for each in opened.prices() if each.offered > each.price]
    waiting = [
        (each.entry_id, each.tool) for group in (opened.unpriced(), opened.stops(), raised) for each in group
    ]
    return {entry: tool or entry for entry, tool in waiting}


def _ledger_path(given: Path | None) -> Path:
    from toolwire.catalog.ledger.sqlite import default_path  # noqa: PLC0415

    return default_path() if given is None else given


def _open_ledger(given: Path | None) -> "SqliteLedger | None":
    """Open the ledger, without creating it. Returns None if the default one does not exist yet."""
    from toolwire.catalog.ledger.sqlite import SqliteLedger  # noqa: PLC0415

    place = _ledger_path(given)
    if not place.exists():
        if given is not None:
            raise UsageError(f"there is no ledger at {given}")
        return None
    return SqliteLedger(place, create=False)


def _parse_money(option: str, text: str | None) -> int | None:
    from toolwire.catalog.money import micros  # noqa: PLC0415

    if text is None:
        return None
    try:
        return micros(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error


def _parse_since(text: str | None, now: datetime) -> float | None:
    """Parse --since to a timestamp."""
    if text is None:
        return None
    if found := _AGO.fullmatch(text.strip()):
        count, unit = int(found[1]), found[2]
        if unit == "h":
            return (now - timedelta(hours=count)).timestamp()
        days = count * (7 if unit == "w" else 1)
        today = now.replace(hour=0, minute=0, second=0, microsecond=0)
        return (today - timedelta(days=max(days - 1, 0))).timestamp()
    try:
        day = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise UsageError(f"--since takes 12h, 7d, 4w or a date such as 2026-11-01, not {text!r}") from error
    return (day if day.tzinfo else day.replace(tzinfo=UTC)).timestamp()


def _check_options(call: str | None, charged: bool | None, cost: int | None, everything: bool) -> None:
    """Raise `UsageError` for options that contradict each other."""
    if everything and (call is not None or charged is not None or cost is not None):
        raise UsageError("--all-not-charged applies to all calls: leave out the id, --charged and --amount")
    if call is None and (charged is not None or cost is not None):
        raise UsageError("name the call: toolwire catalog reconcile ID --charged or --not-charged")
    if call is not None and charged is None:
        raise UsageError(f"give the outcome of call {call}: --charged or --not-charged")
    if cost is not None and not charged:
        raise UsageError("--amount only applies with --charged")


def _find_call(opened: "SqliteLedger", unknown: "list[Row]", start: str) -> "Row":
    """Find the unknown call whose id begins with `start`."""
    fitting = [row for row in unknown if row.id.startswith(start)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UsageError(f"{len(fitting)} calls begin with {start}: {', '.join(row.id for row in fitting)}")
    other = next((row for row in opened.rows() if row.id.startswith(start)), None)
    if other is not None:
        raise UsageError(f"call {other.id} is {other.state}, not unknown: there is nothing to reconcile")
    raise UsageError(f"there is no call {start} in the ledger")
