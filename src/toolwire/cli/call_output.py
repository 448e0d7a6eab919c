"""Output of `toolwire call`: progress and log messages while the tool runs, its questions, and its result.

The result goes to stdout as text or JSON, or into files; everything else goes to stderr. All text comes from the
tool and is cleaned before it is printed.
"""

import base64
import binascii
import json
import mimetypes
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio.to_thread
import typer
from rich.console import Console

from toolwire._support.terminal import plain
from toolwire.cli.shared.printing import note, one_line, show_json, size, to_json
from toolwire.errors import ClaudeSDKError
from toolwire.tools.elicitation import ElicitationRequest, ElicitationResult

if TYPE_CHECKING:
    from toolwire.mcp.direct_client import CallResult


class Progress:
    """A context manager that shows notifications: progress as a bar on a terminal, log messages as lines."""

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

    def show(self, method: str, params: dict[str, Any]) -> None:
        """Show a notification of the server."""
        if method == "notifications/progress" and sys.stderr.isatty():
            self._move(params)
        elif method == "notifications/message":
            data = params.get("data")
            text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
            source = f" {params['logger']}" if params.get("logger") else ""
            self._print(f"{params.get('level', 'info')}{source}: {text}")

    def hide(self) -> None:
        """Remove the bar from the screen, so that something else can use it."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _move(self, params: dict[str, Any]) -> None:
        if self._bar is None:
            # Few tools report progress, so that its modules are loaded for the first report.
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
            from rich.progress import Progress as Bar  # noqa: PLC0415

            text = TextColumn("{task.description}", markup=False)
            columns = (text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
            self._task = self._bar.add_task(self._title, total=None)
            self._bar.start()
        description = one_line(str(params.get("message") or self._title))
        self._bar.update(
            self._task,
            completed=params.get("progress", 0),
            total=params.get("total"),
            description=description,
        )

    def _print(self, text: str) -> None:
        if self._bar is None:
            note(text)
        else:
            self._bar.console.print(plain(text), markup=False, soft_wrap=True)


def elicitation_callback(progress: Progress) -> Callable[[ElicitationRequest], Awaitable[ElicitationResult]]:
    """Return a callback that asks the user on the terminal, in a thread, with the progress bar hidden."""

    async def ask(request: ElicitationRequest) -> ElicitationResult:
        from toolwire.cli.shared.terminal_dialogs import Asker  # noqa: PLC0415 - heavy, and few tools ask

        console = Console(stderr=True, highlight=False)

        def read_line(prompt: str, *, remember: bool = False) -> str:
            del remember
            console.out(prompt, end="", highlight=False)
            line = sys.stdin.readline()
            if not line:
                raise EOFError
            return line.rstrip("\n")

        progress.hide()
        asker = Asker(console, console, read_line if sys.stdin.isatty() else None)
        return await anyio.to_thread.run_sync(asker.elicitation, request, abandon_on_cancel=True)

    return ask


def show_result(result: "CallResult", *, json: bool, save: Path | None) -> None:
    """Print a result: on stdout, or on stderr if it is an error. With `save`, write images and files there."""
    shown = list(_describe(result.content, save))
    if json:
        show_json(result.raw)
        return
    if result.structured is not None and not any(block.get("type") == "text" for block in result.content):
        shown.append(to_json(result.structured))
    if result.is_error:
        note("\n".join(shown) or "The tool failed and did not say why.")
    elif shown:
        typer.echo(plain("\n".join(shown)))


def _describe(content: list[dict[str, Any]], save: Path | None) -> Iterator[str]:
    for number, block in enumerate(content, 1):
        kind = block.get("type")
        resource = block.get("resource") if kind == "resource" else None
        resource = resource if isinstance(resource, dict) else {}
        if kind == "text":
            yield str(block.get("text", ""))
        elif kind in {"image", "audio"}:
            yield _describe_data(block.get("data"), block.get("mimeType"), f"{kind}-{number}", save)
        elif "text" in resource:
            yield str(resource["text"])
        elif "blob" in resource:
            yield _describe_data(resource["blob"], resource.get("mimeType"), f"file-{number}", save)
        elif kind == "resource_link":
            yield f"<{one_line(str(block.get('name') or 'resource'))}: {one_line(str(block.get('uri')))}>"
        else:
            yield f"<{one_line(str(kind))}>"


def _describe_data(encoded: Any, mime: Any, stem: str, save: Path | None) -> str:
    kind = mime if isinstance(mime, str) else "application/octet-stream"
    try:
        data = base64.b64decode(encoded or "", validate=True)
    except (binascii.Error, TypeError, ValueError):
        return f"<{one_line(kind)}, not base64>"
    description = f"<{one_line(kind)}, {size(len(data))}>"
    if save is None:
        return description
    # The file name is ours: a name chosen by the server could point anywhere.
    path = save / (stem + (mimetypes.guess_extension(kind.partition(";")[0].strip()) or ".bin"))
    try:
        save.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise ClaudeSDKError(f"cannot write {path}: {error.strerror}") from error
    return f"{description} saved to {path}"
