"""`toolwire call`: calls one tool and prints its result.

The result goes to stdout as text or JSON, or into files; progress, log messages and questions of the tool go to
stderr. All text comes from the tool and is cleaned before it is printed.
"""

import base64
import binascii
import json
import mimetypes
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import anyio
import typer

from toolwire._support.words import closest, plain
from toolwire.cli.shared.arguments import parse_arguments
from toolwire.cli.shared.failures import DebugOption, shown_failures
from toolwire.cli.shared.printing import FAILURE, note, one_line, show_json, size, to_json
from toolwire.cli.shared.target_options import (
    HeaderOption,
    JsonOption,
    OpenAPIOptions,
    TargetArgument,
    connect,
    resolve_target,
    run,
)
from toolwire.cli.tools import describe_parameters
from toolwire.errors import ClaudeSDKError, UsageError
from toolwire.tools.names import wire_name
from toolwire.tools.schema.arguments import REQUIRED, DefinitionError, InvalidArguments

if TYPE_CHECKING:
    from toolwire.cli.shared.target import Target
    from toolwire.mcp.direct_client import CallResult, Notified
    from toolwire.tools.elicitation import ElicitationRequest, ElicitationResult


def call(
    *,
    target: TargetArgument,
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="The name of the tool.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE",
            help="name=value, name=@file or name:=JSON; or one JSON object; or - to read one from stdin.",
        ),
    ] = None,
    json: JsonOption = False,
    timeout: Annotated[
        float | None, typer.Option(min=0.001, metavar="SECONDS", help="Fail if the tool takes longer.")
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write images, audio and files into this folder.", file_okay=False),
    ] = None,
    header: HeaderOption = None,
    openapi: OpenAPIOptions,
    debug: DebugOption = False,
) -> None:
    """Call a tool and print its result. Arguments are converted to the types in the tool's schema.

    Exits with 1 if the tool fails, with 2 if the arguments do not fit its schema.

    Examples:

      toolwire call app.py add a=15 b=27

      toolwire call app.py search query=@question.txt tags=x tags=y

      toolwire call app.py:calc add '{"a": 15, "b": 27}' --json

      toolwire call openapi:petstore.yaml getPetById petId=7 --base-url https://example.com/v1    # needs a server
    """
    where = resolve_target(target, header, openapi=vars(openapi))
    places: list[str] = []
    with shown_failures(places.append, debug=debug):
        result = run(_call, where, tool, arguments or [], timeout)
    show_result(result, json=json, save=save)
    if result.is_error:
        for place in places:
            note(place)
        raise typer.Exit(FAILURE)


async def _call(target: "Target", name: str, words: list[str], timeout: float | None) -> "CallResult":  # noqa: ASYNC109 - an option of the command
    with Progress(name) as progress:
        ask = elicitation_callback(progress)
        async with connect(target, on_notification=progress.show, on_elicitation=ask) as client:
            tool = _find_tool(await client.list_tools(), name, target.text)
            values = parse_arguments(words, tool.input_schema)
            _check(tool.name, values, tool.input_schema)
            try:
                with anyio.fail_after(timeout):
                    return await client.call(tool.name, values)
            except TimeoutError:
                raise ClaudeSDKError(f"{name} returned no result within {timeout:g} seconds") from None


def _find_tool(tools: list[Any], name: str, where: str) -> Any:
    """Find a tool by its name, or by the one that Claude uses (`mcp__calc__add`). `UsageError` if there is none."""
    names = [tool.name for tool in tools]
    matching = [each for each in names if name.startswith("mcp__") and name.endswith(f"__{wire_name(each)}")]
    wanted = name if name in names or not matching else max(matching, key=len)
    for tool in tools:
        if tool.name == wanted:
            return tool
    if near := closest(name, names):
        hint = f"did you mean {near}?"
    else:
        hint = f"its tools are {', '.join(names[:10])}" if names else "it has no tools"
    raise UsageError(f"{where} has no tool {name!r}; {one_line(hint)}")


def _check(name: str, values: dict[str, Any], schema: dict[str, Any]) -> None:
    """Raise `UsageError` if the arguments do not fit the tool's schema."""
    from toolwire.tools.schema.json_schema import compile_schema  # noqa: PLC0415 - heavy

    try:
        compile_schema(schema).validate(values)
    except InvalidArguments as error:
        missing = [each.path for each in error.violations if each.message == REQUIRED and each.path]
        wrong = [
            one_line(str(each)) for each in error.violations if each.message != REQUIRED or not each.path
        ]
        found = [f"missing: {one_line(', '.join(missing))}"] if missing else []
        found += [f"wrong: {each}" for each in wrong]
        lines = f": {found[0]}" if len(found) == 1 else "".join(f"\n  {each}" for each in found)
        raise UsageError(f"the arguments of {name} do not fit{lines}{_show_parameters(schema)}") from None
    except DefinitionError:
        return  # the schema is unusable: leave the check to the server; `toolwire check` reports it


def _show_parameters(schema: dict[str, Any]) -> str:
    """Return a line with the parameters of a tool, for the end of an error."""
    shown = one_line(describe_parameters(schema))
    return f"\nIt takes: {shown}" if shown else ""


class Progress:
    """A context manager that shows notifications: progress as a bar on a terminal, log messages as lines."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.hide()

    def show(self, notified: "Notified") -> None:
        """Show a notification of the server."""
        params = notified.params
        if notified.method == "notifications/progress" and sys.stderr.isatty():
            self._move(params)
        elif notified.method == "notifications/message":
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
            # Few tools report progress, so the modules for it are loaded at the first report.
            from rich.console import Console  # noqa: PLC0415
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


def elicitation_callback(
    progress: Progress,
) -> "Callable[[ElicitationRequest], Awaitable[ElicitationResult]]":
    """Return a callback that asks the user on the terminal, in a thread, with the progress bar hidden."""

    async def ask(request: "ElicitationRequest") -> "ElicitationResult":
        from rich.console import Console  # noqa: PLC0415 - heavy, as is the next one, and few tools ask

        from toolwire.cli.shared.terminal_dialogs import Asker  # noqa: PLC0415

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
