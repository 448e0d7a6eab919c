"""Shows the progress of a batch: a live screen on a terminal, plain lines elsewhere, JSON lines for scripts."""

import contextlib
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import typer

from toolwire._support.words import plain
from toolwire.cli.shared.printing import one_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from toolwire.batch import Done, OpenBatch, Progress

_RECENT: Final = 60.0  # seconds over which the rate is measured
_FAILURES: Final = 5
_LONGEST: Final = 300  # characters of an error
_MINUTE: Final = 60
_HOUR: Final = 3600
_STATES: Final = ("done", "failed", "unknown", "refused", "cancelled", "running", "waiting")


def describe(name: str, progress: "Progress") -> str:
    """Describe the progress of a batch in one line."""
    held = f", ${progress.reserved} reserved" if progress.reserved else ""
    counts = _count_states(progress) or "no runs"
    return f"{name}: {counts}; ${progress.spent} spent{_format_budget(progress)}{held}"


def brief(error: str) -> str:
    """Return an error on one line, shortened; the exported results have all of it."""
    text = plain(" ".join(error.split()))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def to_dict(done: "Done[Any]") -> dict[str, Any]:
    """Return a result as plain values; dollars as text, so that they stay exact."""
    from pydantic_core import to_jsonable_python  # noqa: PLC0415 - heavy

    values: dict[str, Any] = to_jsonable_python(vars(done))
    return values


def _count_states(progress: "Progress") -> str:
    return ", ".join(f"{getattr(progress, each)} {each}" for each in _STATES if getattr(progress, each))


def _format_budget(progress: "Progress") -> str:
    return "" if progress.budget is None else f" of ${progress.budget}"


class Rate:
    """Measures how many runs end per second, over the last minute, and estimates the time left."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()

    def record(self, ended: int) -> None:
        """Record how many runs have ended by now."""
        now = self._clock()
        self._seen.append((now, ended))
        while self._seen and now - self._seen[0][0] > _RECENT:
            self._seen.popleft()

    @property
    def per_second(self) -> float:
        """Runs per second; 0 while nothing is known."""
        if not self._seen:
            return 0.0
        (since, first), (now, last) = self._seen[0], self._seen[-1]
        return (last - first) / (now - since) if now > since else 0.0

    def left(self, runs: int) -> str:
        """Estimate how long this many runs take; "?" if the rate is unknown."""
        rate = self.per_second
        if runs == 0:
            return "0 s"
        if rate <= 0:
            return "?"
        seconds = round(runs / rate)
        if seconds < _MINUTE:
            return f"{seconds} s"
        if seconds < _HOUR:
            return f"{seconds // _MINUTE} min {seconds % _MINUTE} s"
        return f"{seconds // _HOUR} h {seconds % _HOUR // _MINUTE} min"


class Screen:
    """The output of `toolwire batch run`."""

    def __init__(self, name: str, *, json: bool) -> None:
        self._name = name
        self._json = json
        self._live = not json and sys.stdout.isatty()
        self._rate = Rate()
        self._shown = 0
        self._failures: deque[str] = deque(maxlen=_FAILURES)

    @contextlib.contextmanager
    def live(self, opened: "OpenBatch[Any]") -> Iterator[None]:
        """Keep the screen up to date while the block runs."""
        if not self._live:
            yield
            return
        from rich.live import Live  # noqa: PLC0415 - heavy

        with Live(get_renderable=lambda: self._render(opened.progress), refresh_per_second=4, transient=True):
            yield

    def result(self, done: "Done[Any]", progress: "Progress") -> None:
        """Show one result."""
        self._shown += 1
        if done.state != "done":
            self._failures.append(f"{done.state}  {one_line(done.key)}: {brief(done.error)}")
        if self._json:
            typer.echo(json.dumps(to_dict(done), ensure_ascii=True))
        elif not self._live:
            why = f"  {brief(done.error)}" if done.error else ""
            typer.echo(
                f"{done.state:<9} {one_line(done.key)}  ${done.cost}{why}  [{self._shown}/{progress.total}]"
            )

    def end(self, progress: "Progress") -> None:
        """Show the final progress."""
        if self._json:
            typer.echo(json.dumps({"batch": self._name, "progress": progress.to_dict()}))
            return
        for line in self._failures if self._live else ():
            typer.echo(line)
        typer.echo(describe(self._name, progress))

    def _render(self, progress: "Progress") -> "RenderableType":
        from rich.console import Group  # noqa: PLC0415 - heavy
        from rich.progress_bar import ProgressBar  # noqa: PLC0415 - heavy
        from rich.table import Table  # noqa: PLC0415 - heavy
        from rich.text import Text  # noqa: PLC0415 - heavy

        self._rate.record(progress.ended)
        line = Table.grid(padding=(0, 2))
        line.add_row(
            Text(self._name, style="bold"),
            ProgressBar(total=max(progress.total, 1), completed=progress.ended, width=40),
            f"{progress.ended}/{progress.total}",
            f"{self._rate.per_second * 60:.1f}/min",
            f"left: {self._rate.left(progress.waiting + progress.running)}",
        )
        workers = (
            f"{progress.workers} workers"
            if progress.workers
            else "no worker: start one with toolwire batch worker"
        )
        money = f"${progress.spent}{_format_budget(progress)} spent, ${progress.reserved} reserved"
        return Group(
            line,
            Text(f"{_count_states(progress)}   {money}   {workers}"),
            *(Text(failure, style="red", no_wrap=True, overflow="ellipsis") for failure in self._failures),
        )
