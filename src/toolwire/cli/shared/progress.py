"""Shows the progress of work that takes a while, on stderr, and only if that is a terminal."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO

_PATIENCE: Final = 0.5  # seconds before anything is shown
_EVERY: Final = 0.1  # seconds between two updates of a line


@contextmanager
def show_progress(text: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function `(done, total)` that moves a bar; None if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415 - heavy
    from rich.progress import Progress  # noqa: PLC0415

    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task(text, total=None)
    started = time.monotonic()

    def move(done: int, total: int) -> None:
        if not bar.live.is_started and time.monotonic() - started >= _PATIENCE:
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield move
    finally:
        if bar.live.is_started:
            bar.stop()


class LoadProgress:
    """Shows the loading of a document on one line that is overwritten. Any thread may call it."""

    def __init__(self, stream: TextIO, quiet: float = _PATIENCE) -> None:
        self._stream = stream
        self._quiet = quiet
        self._lock = threading.Lock()
        self._began = self._shown = 0.0
        self._width = 0

    @classmethod
    def on_terminal(cls) -> "LoadProgress | None":
        """Return one for stderr; None if that is not a terminal."""
        return cls(sys.stderr) if sys.stderr is not None and sys.stderr.isatty() else None

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show the current step; an empty `what` removes the line."""
        with self._lock:
            now = time.monotonic()
            self._began = self._began or now
            if what and (now - self._began < self._quiet or now - self._shown < _EVERY):
                return
            self._shown = now
            text = f"{what}: {done:,} of {total:,}" if total else what
            if text or self._width:
                self._stream.write("\r" + text.ljust(self._width) + ("" if text else "\r"))
                self._stream.flush()
            self._width = len(text)
            if not what:
                self._began = 0.0
