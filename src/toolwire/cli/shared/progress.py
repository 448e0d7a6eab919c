"""What a running tool tells: a progress bar on a terminal, log messages as lines, both on stderr."""

import json
import sys
from types import TracebackType
from typing import Any, Self

from toolwire._support.terminal import plain
from toolwire.cli.shared.printing import note, one_line


class Progress:
    """For `with`: shows what `heard` hears."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hide()

    def heard(self, method: str, params: dict[str, Any]) -> None:
        """A notification of the server."""
        if method == "notifications/progress" and sys.stderr.isatty():
            self._move(params)
        elif method == "notifications/message":
            data = params.get("data")
            text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
            source = f" {params['logger']}" if params.get("logger") else ""
            self._line(f"{params.get('level', 'info')}{source}: {text}")

    def hide(self) -> None:
        """Take the bar off the screen, so that something else can have it."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _move(self, params: dict[str, Any]) -> None:
        if self._bar is None:
            from rich.console import Console  # noqa: PLC0415 - loads rich
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
            from rich.progress import Progress as Bar  # noqa: PLC0415

            text = TextColumn("{task.description}", markup=False)
            columns = (text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
            self._task = self._bar.add_task(self._title, total=None)
            self._bar.start()
        said = one_line(str(params.get("message") or self._title))
        self._bar.update(
            self._task, completed=params.get("progress", 0), total=params.get("total"), description=said
        )

    def _line(self, text: str) -> None:
        if self._bar is None:
            note(text)
        else:
            self._bar.console.print(plain(text), markup=False, soft_wrap=True)
