"""`toolwire check`: reports what Claude would have trouble with in the definitions of tools."""

from typing import Annotated, Any

import typer

from toolwire.cli.shared.printing import markup, one_line, out, show_json
from toolwire.cli.shared.target_options import (
    HeaderOption,
    JsonOption,
    TargetArgument,
    list_tools,
    resolve_target,
    run,
)

_COLOURS = {"error": "red", "warning": "yellow", "hint": "dim"}


def check(
    target: TargetArgument,
    json: JsonOption = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail for warnings too, not only for errors.")
    ] = False,
    header: HeaderOption = None,
) -> None:
    """Report what Claude would have trouble with: names, descriptions, schemas, sizes. Calls no tool.

    Exits with 1 if there are errors.

    Examples:

      toolwire check app.py

      toolwire check app.py --strict --json
    """
    from toolwire.tools.lint import find_problems  # noqa: PLC0415 - heavy

    where = resolve_target(target, header)
    tools = run(list_tools, where)
    found = find_problems(tools, where.name)
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
    counted = f"{tools} tool{'' if tools == 1 else 's'}"
    rest = [
        f"{count} {level}{'' if count == 1 else 's'}"
        for level in _COLOURS
        if (count := sum(each.level == level for each in found))
    ]
    verdict = "[red]Not OK[/]" if failed else "[green]OK[/]"
    console.print(f"{verdict}: {counted}, {', '.join(rest) or 'nothing to fix'}", soft_wrap=True)
