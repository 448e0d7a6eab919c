"""The reports of `toolwire catalog`: costs with bars, and calls whose response was lost; as tables or as JSON.

Names and reasons in a ledger come from the API, and are made safe for the terminal. Amounts in JSON are in micros
(one millionth of a dollar), so that nothing is rounded.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from toolwire._support.words import count
from toolwire.catalog.ledger.sql_ledger import Ledger
from toolwire.catalog.ledger.types import (
    Grouping,
    Price,
    Row,
    Stop,
    Total,
    Unpriced,
    format_dollars,
)
from toolwire.cli.shared.bars import MOST_LINES, list_days, make_table
from toolwire.cli.shared.printing import markup, one_line, out, show, show_json

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Report:
    """The content of `spend`. `left` has, for each budget in question, the budget and what is left of it.

    `day` is set if the ledger has calls on a day after today: a call made now counts for that day.
    """

    ledger: str
    since: float | None
    sums: Mapping[Grouping, list[Total]] = field(default_factory=dict)
    left: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    stops: Sequence[Stop] = ()
    raised: Sequence[Price] = ()
    unpriced: Sequence[Unpriced] = ()
    day: str = ""

    @property
    def whole(self) -> Total:
        """The sum of all groups."""
        totals = next(iter(self.sums.values()), [])
        return Total(
            "",
            sum(each.calls for each in totals),
            sum(each.settled for each in totals),
            sum(each.reserved for each in totals),
            sum(each.unknown for each in totals),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "ledger": self.ledger,
            "since": None if self.since is None else datetime.fromtimestamp(self.since, UTC).isoformat(),
            **_numbers(self.whole),
            "left_micros": {name: left for name, (_, left) in self.left.items()},
            "by": {
                by: [{"name": each.name, **_numbers(each)} for each in sums] for by, sums in self.sums.items()
            },
            "stopped": [{"tool": each.tool, "entry": each.entry_id, "why": each.why} for each in self.stops],
            "unpriced": [
                {"tool": each.tool, "entry": each.entry_id, "action": each.variant} for each in self.unpriced
            ],
            "raised_prices": [
                {
                    "tool": each.tool,
                    "entry": each.entry_id,
                    "action": each.variant,
                    "pinned_micros": each.price,
                    "asked_micros": each.offered,
                }
                for each in self.raised
            ],
        }


def read_report(
    ledger: Ledger,
    groupings: Sequence[Grouping],
    since: float | None,
    limits: Mapping[str, int | None],
    now: datetime,
) -> Report:
    """Read the report from the ledger."""
    days = {each.name: each.money for each in ledger.totals("day")}
    day, today = ledger.today(), now.date().isoformat()
    used = {"day": days.get(day, 0), "total": sum(days.values())}
    return Report(
        ledger.path,
        since,
        {by: ledger.totals(by, since) for by in groupings},
        {name: (most, max(most - used[name], 0)) for name, most in limits.items() if most is not None},
        ledger.stops(),
        [each for each in ledger.prices() if each.offered > each.price],
        ledger.unpriced(),
        day if day > today else "",
    )


def show_report(report: Report) -> None:
    """Print a report."""
    console, whole = out(), report.whole
    console.print(f"Ledger: {markup(one_line(report.ledger))}", soft_wrap=True)
    if not whole.calls:
        when = "" if report.since is None else f" since {_format_time(report.since)}"
        console.print(f"No paid calls{when}.", soft_wrap=True)
    else:
        calls = count(whole.calls, "call")
        rest = [f"{format_dollars(whole.reserved)} reserved"] if whole.reserved else []
        if whole.unknown:
            rest.append(f"[yellow]{format_dollars(whole.unknown)} unknown[/] (toolwire catalog reconcile)")
        console.print(
            ", ".join([f"[bold]{format_dollars(whole.settled)}[/] spent in {calls}", *rest]), soft_wrap=True
        )
    ahead = f"on {report.day} (UTC; the ledger already has calls on that day)"
    words = {"day": ahead if report.day else "today (UTC)", "total": "in total"}
    for name, (most, left) in report.left.items():
        console.print(f"{format_dollars(left)} of {format_dollars(most)} left {words[name]}", soft_wrap=True)
    for by, sums in report.sums.items():
        if sums:
            typer.echo()
            _show_sums(by, sums)
    for stop in report.stops:
        name, entry = markup(one_line(stop.tool)), _quote_entry(stop.entry_id)
        console.print(
            f"\n[red]{name} is stopped[/]: {markup(one_line(stop.why))} (toolwire catalog accept {entry})",
            soft_wrap=True,
        )
    for unpriced in report.unpriced:
        name, entry = markup(one_line(name_price(unpriced))), _quote_entry(unpriced.entry_id)
        console.print(
            f"\n[yellow]{name} has no known price[/] (toolwire catalog accept {entry} --price 0.01)",
            soft_wrap=True,
        )
    for price in report.raised:
        name, entry = markup(one_line(name_price(price))), _quote_entry(price.entry_id)
        console.print(
            f"\n[yellow]{name} now costs {format_dollars(price.offered)}[/], and only {format_dollars(price.price)}"
            f" is accepted (toolwire catalog accept {entry})",
            soft_wrap=True,
        )


def show_calls(rows: Sequence[Row], json: bool) -> None:
    """Print the calls whose response was lost."""
    from rich.table import Table  # noqa: PLC0415 - heavy

    if json:
        show_json([_call_json(row) for row in rows])
        return
    if not rows:
        typer.echo("Nothing to reconcile: there are no unknown calls.")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("Call", "When (UTC)", "Tool", "Reserved", "Why"):
        table.add_column(column, overflow="fold", justify="right" if column == "Reserved" else "left")
    for row in rows:
        price = "unknown" if row.price is None else format_dollars(row.reserved)
        words = (markup(one_line(row.tool)), price, markup(one_line(row.why)))
        table.add_row(f"[cyan]{row.id}[/]", _format_time(row.at), *words)
    show(table)
    typer.echo("\nAsk the seller, then run: toolwire catalog reconcile ID --charged or --not-charged")


def show_resolved(rows: Sequence[Row], json: bool) -> None:
    """Print the outcome of calls."""
    if json:
        show_json([_call_json(row) for row in rows])
        return
    for row in rows:
        cost = format_dollars(row.money) if row.state == "settled" else "nothing"
        typer.echo(f"Call {row.id} of {one_line(row.tool)} cost {cost}.")
    if not rows:
        typer.echo("Nothing to reconcile: there are no unknown calls.")


def name_price(price: Price | Unpriced) -> str:
    """Name a price by its tool, and by its action if it has one."""
    tool = price.tool or price.entry_id
    return f"{tool} ({price.variant})" if price.variant else tool


def _show_sums(by: Grouping, sums: list[Total]) -> None:
    lines = _fill_days(sums) if by == "day" else sorted(sums, key=lambda each: (-each.money, each.name))
    kept = lines[-MOST_LINES:] if by == "day" else lines[:MOST_LINES]
    show(_make_table(by.capitalize(), kept))
    if len(lines) > len(kept):
        others = sum(each.money for each in lines) - sum(each.money for each in kept)
        typer.echo(
            f"... and {len(lines) - len(kept)} more, {format_dollars(others)} together (--json has all)"
        )


def _fill_days(sums: list[Total]) -> list[Total]:
    """Add the days without a call, if they are among the days shown."""
    known = {each.name: each for each in sums}
    return [known.get(day) or Total(day, 0, 0, 0, 0) for day in list_days(known, MOST_LINES)]


def _make_table(title: str, sums: list[Total]) -> "Table":
    titles = [title, "Calls", "Spent", "Reserved", "Unknown"]
    cells = [
        [one_line(each.name) or "-", str(each.calls)]
        + [format_dollars(money) if money else "" for money in (each.settled, each.reserved, each.unknown)]
        for each in sums
    ]
    used = [column for column in range(5) if column < 3 or any(row[column] for row in cells)]  # noqa: PLR2004
    return make_table(
        [titles[column] for column in used],
        [[row[column] for column in used] for row in cells],
        [each.settled for each in sums],
        [each.reserved + each.unknown for each in sums],
    )


def _quote_entry(entry_id: str) -> str:
    """Quote the id of an entry for a command line: it comes from the API."""
    return markup(shlex.quote(one_line(entry_id)))


def _format_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def _numbers(total: Total) -> dict[str, int]:
    return {
        "calls": total.calls,
        "settled_micros": total.settled,
        "reserved_micros": total.reserved,
        "unknown_micros": total.unknown,
    }


def _call_json(row: Row) -> dict[str, Any]:
    return {
        "id": row.id,
        "at": datetime.fromtimestamp(row.at, UTC).isoformat(),
        "tool": row.tool,
        "entry": row.entry_id,
        "session": row.session,
        "state": row.state,
        "reserved_micros": row.reserved,
        "money_micros": row.money,
        "why": row.why,
    }
