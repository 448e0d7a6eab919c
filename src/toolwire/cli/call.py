"""`toolwire call`: call one tool, by hand."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from toolwire._support.words import closest
from toolwire.cli.shared.printing import one_line
from toolwire.cli.shared.target_options import (
    HeaderOption,
    JsonOption,
    TargetArgument,
    connected,
    resolved,
    run,
)

if TYPE_CHECKING:
    from toolwire.cli.shared.target import Target
    from toolwire.tools.client import CallResult


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
        float | None, typer.Option("--timeout", min=0.001, metavar="SECONDS", help="Give up after so long.")
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="DIR", help="Write images, sounds and files there.", file_okay=False),
    ] = None,
    header: HeaderOption = None,
) -> None:
    """Call a tool and print what it gives. The tool's schema says what is a number and what is text.

    Exits with 1 if the tool fails, with 2 if the arguments do not fit.

    Examples:

      toolwire call app.py add a=15 b=27

      toolwire call app.py search query=@question.txt tags=x tags=y

      toolwire call app.py:calc add '{"a": 15, "b": 27}' --json
    """
    from toolwire.cli import call_output as _results  # noqa: PLC0415 - loads the tools

    result = run(_call, resolved(target, header), tool, arguments or [], timeout)
    _results.show(result, json=json, save=save)
    if result.is_error:
        raise typer.Exit(1)


async def _call(target: "Target", name: str, words: list[str], timeout: float | None) -> "CallResult":  # noqa: ASYNC109 - an option of the command
    import anyio  # noqa: PLC0415

    from toolwire.cli.shared.answering import elicited  # noqa: PLC0415
    from toolwire.cli.shared.arguments import arguments  # noqa: PLC0415
    from toolwire.cli.shared.progress import Progress  # noqa: PLC0415
    from toolwire.errors import ClaudeSDKError  # noqa: PLC0415

    with Progress(name) as progress:
        async with connected(target, on_notice=progress.heard, on_elicitation=elicited(progress)) as client:
            schema = _schema(await client.list_tools(), name, target.text)
            values = arguments(words, schema)
            _check(name, values, schema)
            try:
                with anyio.fail_after(timeout):
                    return await client.call(name, values)
            except TimeoutError:
                raise ClaudeSDKError(f"{name} gave no result within {timeout:g} seconds") from None


def _schema(tools: list[Any], name: str, where: str) -> dict[str, Any]:
    """The input schema of a tool."""
    from toolwire.errors import UsageError  # noqa: PLC0415

    for tool in tools:
        if tool.name == name:
            schema: dict[str, Any] = tool.input_schema
            return schema
    names = [tool.name for tool in tools]
    near = closest(name, names)
    hint = (
        f"did you mean {near}?" if near else f"there are {', '.join(names[:10])}" if names else "it has none"
    )
    raise UsageError(f"{where} has no tool {name!r}; {one_line(hint)}")


def _check(name: str, values: dict[str, Any], schema: dict[str, Any]) -> None:
    """Refuse what does not fit, before the tool sees it."""
    from toolwire.tools.schema.arguments import DefinitionError, InvalidArguments  # noqa: PLC0415
    from toolwire.tools.schema.json_schema import compiled  # noqa: PLC0415 - loads the schema compiler

    try:
        compiled(schema).validate(values)
    except InvalidArguments as error:
        _refuse(name, [str(each) for each in error.violations])
    except DefinitionError:
        return  # a schema that cannot be used: let the server judge, and `toolwire check` tell


def _refuse(name: str, violations: list[str]) -> NoReturn:
    from toolwire.errors import UsageError  # noqa: PLC0415

    told = [one_line(each) for each in violations]
    lines = f" {told[0]}" if len(told) == 1 else "".join(f"\n  {each}" for each in told)
    raise UsageError(f"{name} does not take these arguments:{lines}")
