"""The cost of sessions: as tables with bars, as JSON, and as a chart (SVG)."""

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any, Final

import typer

from toolwire._support.words import count, plain_line, reveal
from toolwire.cli.sessions_report import is_narrow, make_title, shorten_id
from toolwire.cli.shared.bars import MOST_LINES, list_days, make_table
from toolwire.cli.shared.printing import show
from toolwire.sessions.cost import CostGroup, CostGrouping, CostReport, SessionCost, TokenUsage
from toolwire.sessions.entries import shorten
from toolwire.sessions.export_header import format_dollars

if TYPE_CHECKING:
    from rich.table import Table

_MOST_BARS: Final = 60
_LONGEST_NAME: Final = 40


def show_session_cost(cost: SessionCost) -> None:
    """Print what one session has cost, by model."""
    groups = [CostGroup(name, 1, usage) for name, usage in cost.models.items()]
    _show_total(CostGroup("", 1, replace(cost.usage, cost_usd=cost.cost_usd), cost.is_estimate))
    if groups:
        typer.echo()
        show(_make_table("Model", [plain_line(each.name) for each in groups], groups, with_sessions=False))


def show_report(report: CostReport, groupings: Sequence[CostGrouping]) -> None:
    """Print what sessions have cost, by each of the groupings."""
    total = report.total
    if not total.sessions:
        typer.echo("No costs were recorded.")
    else:
        _show_total(total)
    for by in groupings:
        groups = report.group(by)
        if not groups:
            continue
        rows = _fill_days(groups) if by == "day" else groups
        kept = rows[-MOST_LINES:] if by == "day" else rows[:MOST_LINES]
        typer.echo()
        show(_make_table(by.capitalize(), [_name(report, by, each) for each in kept], kept))
        if len(rows) > len(kept):
            typer.echo(f"... and {len(rows) - len(kept)} more (--json has all)")
    if report.unreadable:
        typer.echo(
            f"\n{len(report.unreadable)} sessions cannot be read and are not included: see toolwire sessions doctor"
        )


def report_as_json(report: CostReport) -> dict[str, Any]:
    """Return a report as JSON, by every grouping."""
    groupings: tuple[CostGrouping, ...] = ("session", "day", "project", "model", "tag")
    return {
        "since": report.since,
        "until": report.until,
        **_numbers(report.total),
        "by": {by: [{"name": each.name, **_numbers(each)} for each in report.group(by)] for by in groupings},
        "unreadable": report.unreadable,
    }


def cost_as_json(cost: SessionCost) -> dict[str, Any]:
    """Return what one session has cost as JSON."""
    return {
        "session_id": cost.session_id,
        "title": cost.title,
        "project": cost.project,
        "tag": cost.tag,
        "is_estimate": cost.is_estimate,
        **(vars(cost.usage) | {"cost_usd": cost.cost_usd}),
        "by": {"model": [{"name": name, **vars(usage)} for name, usage in cost.models.items()]},
    }


def _numbers(group: CostGroup) -> dict[str, Any]:
    return {"sessions": group.sessions, "is_estimate": group.is_estimate, **vars(group.usage)}


def _show_total(total: CostGroup) -> None:
    sessions = count(total.sessions, "session")
    tokens = f"{total.usage.tokens:,} tokens"
    if total.usage.cost_usd is None:
        typer.echo(f"{tokens} in {sessions}; the CLI has recorded no cost")
    else:
        typer.echo(f"{format_dollars(total.usage.cost_usd)} in {sessions}, {tokens}")
        if total.is_estimate:
            typer.echo(
                "Some of it was not recorded by the CLI (it was killed, or still runs): the cost is higher."
            )


def _name(report: CostReport, by: CostGrouping, group: CostGroup) -> str:
    if by == "session":
        titles = {each.session_id: each.title for each in report.sessions}
        return f"{shorten_id(group.name)}  {make_title(titles.get(group.name, ''))[:_LONGEST_NAME]}".rstrip()
    return plain_line(group.name) or "-"


def _fill_days(groups: list[CostGroup], most: int = MOST_LINES) -> list[CostGroup]:
    """Add the days without a session, if they are among the days shown."""
    known = {each.name: each for each in groups}
    return [known.get(day) or CostGroup(day, 0, TokenUsage()) for day in list_days(known, most)]


def _make_table(
    title: str, names: list[str], groups: Sequence[CostGroup], *, with_sessions: bool = True
) -> "Table":
    narrow = is_narrow()
    titles = [title, *(["Sessions"] if with_sessions and not narrow else [])]
    titles += ["Tokens", "Cost"] if narrow else ["In", "Cached", "Out", "Cost"]
    cells = [
        _make_row(name, each, with_sessions=with_sessions, narrow=narrow)
        for name, each in zip(names, groups, strict=True)
    ]
    return make_table(titles, cells, [_amount(each.usage, groups) for each in groups])


def _make_row(name: str, group: CostGroup, *, with_sessions: bool, narrow: bool) -> list[str]:
    usage = group.usage
    numbers = (
        [usage.tokens]
        if narrow
        else [usage.input_tokens + usage.cache_write_tokens, usage.cache_read_tokens, usage.output_tokens]
    )
    cost = (
        ""
        if usage.cost_usd is None
        else f"{format_dollars(usage.cost_usd)}{'+' if group.is_estimate else ''}"
    )
    sessions = [str(group.sessions or "")] if with_sessions and not narrow else []
    return [name, *sessions, *(_shorten_number(each) for each in numbers), cost]


def _shorten_number(number: int) -> str:
    for limit, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k")):
        if number >= limit:
            return f"{number / (limit if unit != 'k' else 1000):.1f}{unit}"
    return str(number or "")


def _amount(usage: TokenUsage, groups: Sequence[CostGroup]) -> float:
    """Return the length of a bar: in dollars, or in tokens if no group has dollars."""
    if any(each.usage.cost_usd for each in groups):
        return usage.cost_usd or 0.0
    return float(usage.tokens)


def draw_svg(report: CostReport, by: CostGrouping) -> str:
    """Draw a bar for each group, as a self-contained SVG file."""
    groups = report.group(by)
    rows = _fill_days(groups, _MOST_BARS)[-_MOST_BARS:] if by == "day" else groups[:_MOST_BARS]
    amounts = [_amount(each.usage, groups) for each in rows]
    in_dollars = any(each.usage.cost_usd for each in groups)
    most = max(amounts, default=0) or 1
    height, left, width = 24, 260, 760
    total = report.total.usage
    whole = f"{total.tokens:,} tokens" if total.cost_usd is None else format_dollars(total.cost_usd)
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
            f'viewBox="0 0 {width} {len(rows) * height + 60}" '
            'font-family="system-ui, sans-serif" font-size="13" role="img">'
        ),
        (
            "<style>text{fill:#1c2128}.bar{fill:#1a6faf}.soft{fill:#5b6570}.page{fill:#fff}"
            "@media(prefers-color-scheme:dark){text{fill:#e3e7ec}.bar{fill:#57a5d8}.soft{fill:#9aa5b1}"
            ".page{fill:#14171b}}</style>"
        ),
        '<rect class="page" width="100%" height="100%"/>',
        f'<text x="16" y="28" font-weight="600">Cost of sessions by {by}</text>',
        f'<text class="soft" x="{width - 16}" y="28" text-anchor="end">{whole}</text>',
    ]
    for at, (row, amount) in enumerate(zip(rows, amounts, strict=True)):
        y = 48 + at * height
        length = amount / most * (width - left - 110)
        name = shorten(_name(report, by, row), _LONGEST_NAME)
        label = "" if not amount else format_dollars(amount) if in_dollars else f"{amount:,.0f}"
        lines += [
            f'<text x="{left - 10}" y="{y + 15}" text-anchor="end">{escape(reveal(name))}</text>',
            f'<rect class="bar" x="{left}" y="{y + 3}" width="{length:.1f}" height="16" rx="2"/>',
            f'<text class="soft" x="{left + length + 6:.1f}" y="{y + 15}">{label}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])
