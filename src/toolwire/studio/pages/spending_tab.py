"""The Spending tab: the calls that were paid, the remaining budget, and unknown outcomes to settle."""

from datetime import UTC, datetime
from typing import Any

from nicegui import ui

from toolwire._support.words import plain, plain_line
from toolwire.catalog.ledger.types import Row, format_dollars
from toolwire.catalog.money import micros
from toolwire.errors import ClaudeSDKError
from toolwire.studio.pages.parts import action_button, show_heading, small_button
from toolwire.studio.spending import Books, Spending


class SpendingTab:
    """Draws the ledger of a catalogue. `refresh` reads it again."""

    def __init__(self, spending: Spending) -> None:
        self._spending = spending
        self._drawn: Books | None = None
        with ui.row().classes("items-center"):
            show_heading(f"Spending of {plain_line(spending.name)}")
            small_button("Refresh", self.refresh)
        self._problem = ui.label("").classes("tw-bad").props("role=alert")
        self._body = ui.element("div")

    async def refresh(self) -> None:
        """Read the ledger, and redraw it if it has changed."""
        try:
            books = await self._spending.read()
        except ClaudeSDKError as error:
            self._problem.set_text(plain(str(error)))
            return
        self._problem.set_text("")
        if books != self._drawn:
            self._drawn = books
            self._body.clear()
            with self._body:
                self._draw(books)

    def _draw(self, books: Books) -> None:
        ui.label(plain_line(f"Ledger: {books.where}")).classes("tw-dim")
        for each in books.left:
            with ui.element("div").classes("tw-card"):
                spent = each.limit - each.left
                ui.label(f"{each.title}: {format_dollars(each.left)} of {format_dollars(each.limit)} left")
                bar = ui.linear_progress(
                    min(1.0, spent / each.limit) if each.limit else 1.0, show_value=False
                )
                bar.props["aria-label"] = f"Share of the budget spent, {each.title}"
        if not books.left:
            ui.label("No budget is set.").classes("tw-dim")
        for stop in books.stops:
            ui.label(plain_line(f"{stop.tool} is stopped: {stop.why}")).classes("tw-bad")
        if books.unknown:
            ui.label("Unknown outcomes").classes("tw-strong")
            ui.label(
                "The responses to these calls were lost. Ask the seller whether each call was charged, and record "
                "it here. Until then the money stays reserved."
            )
            for row in books.unknown:
                self._draw_unknown(row)
        _draw_table(
            "By tool",
            ["Tool", "Calls", "Spent", "Reserved", "Unknown"],
            [
                [each.name, each.calls, *map(format_dollars, (each.settled, each.reserved, each.unknown))]
                for each in books.tools
            ],
        )
        _draw_table(
            "Latest calls",
            ["Time (UTC)", "Tool", "State", "Amount", "Note"],
            [
                [_show_time(row.at), row.tool, row.state, format_dollars(row.money), row.why]
                for row in books.rows
            ],
        )

    def _draw_unknown(self, row: Row) -> None:
        with ui.element("section").classes("tw-card tw-question"):
            ui.label(
                plain_line(
                    f"{row.tool}, {_show_time(row.at)}: {format_dollars(row.reserved)} reserved. {row.why}"
                )
            )
            with ui.row().classes("items-center"):
                amount: Any = ui.input("Amount in dollars", value=format_dollars(row.reserved).lstrip("$"))
                amount.props("dense outlined")

                async def charge() -> None:
                    try:
                        worth = micros(amount.value or "")
                    except ValueError as error:
                        amount.error = str(error)
                        return
                    await self._settle(row, charged=True, amount=worth)

                action_button("It was charged", charge)
                ui.button("Not charged", on_click=lambda: self._settle(row, charged=False)).props(
                    "no-caps dense outline"
                )

    async def _settle(self, row: Row, *, charged: bool, amount: int | None = None) -> None:
        try:
            await self._spending.settle(row, charged=charged, amount=amount)
        except ClaudeSDKError as error:
            ui.notify(plain_line(str(error)), type="negative")
        await self.refresh()


def _draw_table(title: str, names: list[str], rows: list[list[Any]]) -> None:
    columns = [
        {"name": str(at), "label": name, "field": str(at), "align": "left"} for at, name in enumerate(names)
    ]
    data = [
        {"key": key, **{str(at): plain_line(str(cell)) for at, cell in enumerate(row)}}
        for key, row in enumerate(rows)
    ]
    ui.table(columns=columns, rows=data, row_key="key", title=title, pagination=20).props(
        "flat bordered dense"
    ).classes("tw-wide")


def _show_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
