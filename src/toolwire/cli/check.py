"""`toolwire check`: reports what Claude would have trouble with in the definitions of tools."""

from typing import Annotated, Any

import typer

from toolwire._support.words import count
from toolwire.cli.shared.printing import markup, one_line, out, show_json
from toolwire.cli.shared.target_options import (
    ExcludeOption,
    HeaderOption,
    IncludeOption,
    JsonOption,
    OpenAPIOptions,
    TargetArgument,
    list_tools,
    resolve_target,
    run,
)

_COLOURS = {"error": "red", "warning": "yellow", "hint": "dim"}


def check(
    *,
    target: TargetArgument,
    json: JsonOption = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail for warnings too, not only for errors.")
    ] = False,
    header: HeaderOption = None,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    openapi: OpenAPIOptions,
) -> None:
    """Report what Claude would have trouble with: names, descriptions, schemas, sizes. Calls no tool.

    Exits with 1 if there are errors.

    Examples:

      toolwire check app.py

      toolwire check app.py --strict --json

      toolwire check openapi:petstore.yaml
    """
    from toolwire.tools.lint import find_problems  # noqa: PLC0415 - heavy

    where = resolve_target(target, header, include, exclude, vars(openapi))
    tools = run(list_tools, where)
    found = find_problems(tools, where.name)
    if hasattr(where.server, "find_problems"):
        found = sorted(
            [*where.server.find_problems(), *found], key=lambda each: list(_COLOURS).index(each.level)
        )
    failing = ("error", "warning") if strict else ("error",)
    failed = any(each.level in failing for each in found)
    if json:
        report = [each.as_json() for each in found]
        show_json({"ok": not failed, "server": where.name, "tools": len(tools), "findings": report})
    else:
        _show(found, len(tools), failed)
    if failed:
        raise typer.Exit(1)


def _show(found: list[Any], tools: int, failed: bool) -> None:
    console = out()
    for each in found:
        tool = f"[bold]{markup(one_line(each.tool))}[/]: " if each.tool else ""
        what, fix = markup(one_line(each.what)), markup(one_line(each.fix))
        colour = _COLOURS[each.level]
        console.print(f"[{colour}]{each.level:7}[/] {tool}{what}", soft_wrap=True)
        console.print(f"        [dim]fix:[/] {fix}", soft_wrap=True)
    numbers = {level: sum(each.level == level for each in found) for level in _COLOURS}
    rest = [count(number, level) for level, number in numbers.items() if number]
    verdict = "[red]Not OK[/]" if failed else "[green]OK[/]"
    console.print(f"{verdict}: {count(tools, 'tool')}, {', '.join(rest) or 'nothing to fix'}", soft_wrap=True)
