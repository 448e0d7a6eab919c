"""`toolwire catalog`: what was spent, what became of lost replies, and which prices are accepted.

Each command opens the ledger, asks it, and shows or books one thing.
"""

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
    help="Paid tools of a REST catalogue: what they cost, and what may be paid.",
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
    """What sums are made over."""

    TOOL = "tool"
    DAY = "day"
    SESSION = "session"
    STATE = "state"


def spend(  # noqa: PLR0917 - typer takes them by position
    ledger: LedgerOption = None,
    by: Annotated[
        By | None, typer.Option("--by", help="Sums over this alone. Default: days, then tools.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="WHEN",
            help="12h, 7d, 4w (today is a day of them), or 2026-11-01. Days are of UTC.",
        ),
    ] = None,
    per_day: Annotated[
        str | None, typer.Option("--per-day", metavar="DOLLARS", help="Show what is left of this for today.")
    ] = None,
    total: Annotated[
        str | None, typer.Option("--total", metavar="DOLLARS", help="Show what is left of this in total.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show what was spent, what is reserved, and what nobody knows yet.

    Examples:

      toolwire catalog spend

      toolwire catalog spend --by tool --since 7d

      toolwire catalog spend --per-day 5 --total 100

      toolwire catalog spend --json --ledger ./ledger.db
    """
    from toolwire.cli import catalog_report as screen  # noqa: PLC0415 - loads the ledger

    limits = {"day": _money("--per-day", per_day), "total": _money("--total", total)}
    now = datetime.now(UTC)
    start = _since(since, now)
    opened = _opened(ledger)
    if opened is None:
        report = screen.Report(str(_place(ledger)), start)
    else:
        with opened:
            report = screen.report(opened, (by.value,) if by else ("day", "tool"), start, limits, now)
    if json:
        show_json(report.as_json())
    else:
        screen.show_report(report)


def reconcile(  # noqa: PLR0917
    call: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="The call; its first characters are enough.", show_default=False),
    ] = None,
    ledger: LedgerOption = None,
    charged: Annotated[
        bool | None,
        typer.Option("--charged/--not-charged", help="What the seller says of the call.", show_default=False),
    ] = None,
    amount: Annotated[
        str | None,
        typer.Option("--amount", metavar="DOLLARS", help="What it cost. Default: what was reserved."),
    ] = None,
    all_not_charged: Annotated[
        bool, typer.Option("--all-not-charged", help="Release the money of every call that is unknown.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """List the calls whose reply was lost, or say what became of one.

    Their money stays reserved until you do.

    Examples:

      toolwire catalog reconcile

      toolwire catalog reconcile 3fa9 --charged --amount 0.01

      toolwire catalog reconcile 3fa9 --not-charged
    """
    from toolwire.catalog.ledger.sqlite import owner_alive  # noqa: PLC0415
    from toolwire.cli import catalog_report as screen  # noqa: PLC0415

    cost = _money("--amount", amount)
    _check_use(call, charged, cost, all_not_charged)
    opened = _opened(ledger)
    if opened is None:
        if call is not None:
            raise UsageError(f"there is no ledger at {_place(ledger)}")
        screen.show_calls([], json)
        return
    with opened:
        opened.recover(owner_alive)  # what a crash left is to be reconciled too
        unknown = opened.rows(states=["unknown"])
        if call is None and not all_not_charged:
            screen.show_calls(unknown, json)
            return
        chosen = unknown if call is None else [_chosen(opened, unknown, call)]
        for row in chosen:
            opened.resolve(row.id, bool(charged), cost)
        picked = {row.id for row in chosen}
        screen.show_resolved([row for row in opened.rows() if row.id in picked], json)


def accept(
    name: Annotated[str, typer.Argument(metavar="TOOL|ENTRY", show_default=False)],
    price: Annotated[
        str | None,
        typer.Option("--price", metavar="DOLLARS", help="The highest price to pay. Default: what is asked."),
    ] = None,
    action: Annotated[
        str | None,
        typer.Option(
            "--action",
            metavar="ACTION",
            help="Only the price of this action, if each has its own. Default: all that wait.",
        ),
    ] = None,
    ledger: LedgerOption = None,
) -> None:
    """Accept a higher price, set one for a tool that has none, or let a stopped tool run again.

    Examples:

      toolwire catalog accept search

      toolwire catalog accept search --price 0.02

      toolwire catalog accept search --price 0.02 --action deep
    """
    from toolwire.catalog.ledger.types import format_dollars  # noqa: PLC0415

    wanted = _money("--price", price)
    opened = _opened(ledger)
    if opened is None:
        raise UsageError(f"there is no ledger at {_place(ledger)}")
    with opened:
        entry, tool = _find_entry(opened, name)
        stopped = opened.stopped(entry) is not None
        done = []
        with opened.together():
            for variant, (was, new) in _new_prices(opened, entry, wanted, action).items():
                opened.accept_price(entry, new, tool, variant)
                label = f"{tool} ({variant})" if variant else tool
                known = "not known" if was is None else format_dollars(was)
                done.append(f"{label} may cost {format_dollars(new)} a call now; it was {known}.")
            if stopped:
                opened.accept(entry)
                done.append(f"{tool} may be called again.")
    for line in done or [f"There is nothing to accept: {name} is not stopped, and its price is no higher."]:
        typer.echo(one_line(line))


for command in (spend, reconcile, accept, pin, check, schema):
    catalog_app.command()(report_errors(command))


def _find_entry(opened: "SqliteLedger", name: str) -> tuple[str, str]:
    """Return the one entry that a name stands for, and its tool; of several the one that waits to be accepted."""
    found, waiting = opened.find(name), _waiting(opened)
    if not found:
        names = ", ".join(sorted(set(waiting.values())))
        more = f"; waiting to be accepted: {names}" if names else ""
        raise UsageError(f"{name} is not stopped, and no price of it was seen{more}")
    chosen = sorted(found.keys() & waiting.keys()) or sorted(found)
    if len(chosen) > 1:
        raise UsageError(f"{name} stands for {len(chosen)} entries, say which: {', '.join(chosen)}")
    return chosen[0], found[chosen[0]] or chosen[0]


def _new_prices(
    opened: "SqliteLedger", entry: str, wanted: int | None, action: str | None
) -> dict[str, tuple[int | None, int]]:
    """Return the prices of an entry that are to change, by action: the one that was agreed to, and the new one."""
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
        raise UsageError(f"{entry} has {len(chosen)} prices, say which with --action: {actions}")
    return {each: (known[each].price if each in known else None, wanted) for each in sorted(chosen)}


def _waiting(opened: "SqliteLedger") -> dict[str, str]:
    """Return the entries with something to accept, each with the name of its tool."""
    raised = [each for each in opened.prices() if each.offered > each.price]
    waiting = [
        (each.entry_id, each.tool) for group in (opened.unpriced(), opened.stops(), raised) for each in group
    ]
    return {entry: tool or entry for entry, tool in waiting}


def _place(given: Path | None) -> Path:
    from toolwire.catalog.ledger.sqlite import default_path  # noqa: PLC0415

    return default_path() if given is None else given


def _opened(given: Path | None) -> "SqliteLedger | None":
    """The ledger; None if none was made yet in the usual place. Asking makes none."""
    from toolwire.catalog.ledger.sqlite import SqliteLedger  # noqa: PLC0415

    place = _place(given)
    if not place.exists():
        if given is not None:
            raise UsageError(f"there is no ledger at {given}")
        return None
    return SqliteLedger(place, create=False)


def _money(option: str, text: str | None) -> int | None:
    from toolwire.catalog.money import micros  # noqa: PLC0415

    if text is None:
        return None
    try:
        return micros(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error


def _since(text: str | None, now: datetime) -> float | None:
    """The first moment that counts."""
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


def _check_use(call: str | None, charged: bool | None, cost: int | None, everything: bool) -> None:
    """Options that say one thing."""
    if everything and (call is not None or charged is not None or cost is not None):
        raise UsageError("--all-not-charged says it all: leave out the id, --charged and --amount")
    if call is None and (charged is not None or cost is not None):
        raise UsageError("name the call: toolwire catalog reconcile ID --charged or --not-charged")
    if call is not None and charged is None:
        raise UsageError(f"say what became of call {call}: --charged or --not-charged")
    if cost is not None and not charged:
        raise UsageError("--amount only applies with --charged")


def _chosen(opened: "SqliteLedger", unknown: "list[Row]", start: str) -> "Row":
    """The one unknown call whose id begins so."""
    fitting = [row for row in unknown if row.id.startswith(start)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UsageError(f"{len(fitting)} calls begin with {start}: {', '.join(row.id for row in fitting)}")
    other = next((row for row in opened.rows() if row.id.startswith(start)), None)
    if other is not None:
        raise UsageError(f"call {other.id} is {other.state}, not unknown: there is nothing to reconcile")
    raise UsageError(f"there is no call {start} in the ledger")
