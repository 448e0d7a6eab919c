"""`toolwire call`: calls one tool and prints its result."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolwire._support.words import closest
from toolwire.cli.shared.exit_codes import FAILURE
from toolwire.cli.shared.printing import one_line
from toolwire.cli.shared.target_options import (
    HeaderOption,
    JsonOption,
    TargetArgument,
    connect,
    resolve_target,
    run,
)
from toolwire.errors import ClaudeSDKError, UsageError

if TYPE_CHECKING:
    from toolwire.cli.shared.target import Target
    from toolwire.mcp.direct_client import CallResult


def call(  # noqa: PLR0917 - typer calls it by name
    target: TargetArgument,
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="The name of the tool.", show_default=False)],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE",
            help="name=value, name=@file, name:=JSON; or one JSON object; or - for one on stdin.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0.001, metavar="SECONDS", help="Fail after this time.")
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="DIR", help="Write images, audio and files there.", file_okay=False),
    ] = None,
    header: HeaderOption = None,
) -> None:
    """Call a tool and print its result. Values are read by the tool's schema: as numbers, booleans or text.

    Exits with 1 if the tool fails, with 2 if the arguments do not fit.

    Examples:

      toolwire call app.py add a=15 b=27

      toolwire call app.py search query=@question.txt tags=x tags=y

      toolwire call app.py:calc add '{"a": 15, "b": 27}' --json
    """
    from toolwire.cli.call_output import show_result  # noqa: PLC0415 - heavy

    result = run(_call, resolve_target(target, header), tool, arguments or [], timeout)
    show_result(result, json=json, save=save)
    if result.is_error:
        raise typer.Exit(FAILURE)


async def _call(target: "Target", name: str, words: list[str], timeout: float | None) -> "CallResult":  # noqa: ASYNC109 - an option of the command
    import anyio  # noqa: PLC0415 - heavy, as are the next ones

    from toolwire.cli.call_output import Progress, elicitation_callback  # noqa: PLC0415
    from toolwire.cli.shared.arguments import parse_arguments  # noqa: PLC0415

    with Progress(name) as progress:
        ask = elicitation_callback(progress)
        async with connect(target, on_notification=progress.show, on_elicitation=ask) as client:
            schema = _find_schema(await client.list_tools(), name, target.text)
            values = parse_arguments(words, schema)
            _check(name, values, schema)
            try:
                with anyio.fail_after(timeout):
                    return await client.call(name, values)
            except TimeoutError:
                raise ClaudeSDKError(f"{name} gave no result within {timeout:g} seconds") from None


def _find_schema(tools: list[Any], name: str, where: str) -> dict[str, Any]:
    """Return the input schema of a tool. `UsageError` if there is no tool of that name."""
    for tool in tools:
        if tool.name == name:
            schema: dict[str, Any] = tool.input_schema
            return schema
    names = [tool.name for tool in tools]
    if near := closest(name, names):
        hint = f"did you mean {near}?"
    else:
        hint = f"its tools are {', '.join(names[:10])}" if names else "it has no tools"
    raise UsageError(f"{where} has no tool {name!r}; {one_line(hint)}")


def _check(name: str, values: dict[str, Any], schema: dict[str, Any]) -> None:
    """Raise `UsageError` if the arguments do not fit the tool's schema."""
    from toolwire.tools.schema.arguments import DefinitionError, InvalidArguments  # noqa: PLC0415 - heavy
    from toolwire.tools.schema.json_schema import compile_schema  # noqa: PLC0415

    try:
        compile_schema(schema).validate(values)
    except InvalidArguments as error:
        found = [one_line(str(each)) for each in error.violations]
        lines = f" {found[0]}" if len(found) == 1 else "".join(f"\n  {each}" for each in found)
        raise UsageError(f"{name} does not take these arguments:{lines}") from None
    except DefinitionError:
        return  # the schema is unusable: leave the check to the server; `toolwire check` reports it
