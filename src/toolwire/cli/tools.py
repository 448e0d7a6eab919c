"""`toolwire tools`: what a server offers."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolwire._support.terminal import plain
from toolwire.cli.shared.target_options import (
    ExcludeOption,
    HeaderOption,
    IncludeOption,
    JsonOption,
    TargetArgument,
    connected,
    resolved,
    run,
)

if TYPE_CHECKING:
    from toolwire.cli.shared.target import Target


def tools(  # noqa: PLR0917 - typer takes them by position
    target: TargetArgument,
    json: JsonOption = False,
    schemas: Annotated[
        bool, typer.Option("--schemas", "-s", help="Show the JSON schema of each tool.")
    ] = False,
    header: HeaderOption = None,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
) -> None:
    """List the tools of a server: their names, parameters and descriptions.

    Examples:

      toolwire tools app.py

      toolwire tools app.py:calc --schemas

      toolwire tools catalog:agentpmt --include 'weather*'

      toolwire tools https://example.com/mcp --header "Authorization: Bearer $TOKEN"
    """
    from toolwire.cli.shared.printing import show_json  # noqa: PLC0415

    offer = run(_offer, resolved(target, header, include, exclude))
    if json:
        others = {key: value for key, value in offer.items() if key != "tools" and value}
        show_json({"tools": offer["tools"], **others})
    elif schemas:
        _show_schemas(offer)
    else:
        _show(offer)


async def _offer(target: "Target") -> dict[str, list[dict[str, Any]]]:
    async with connected(target) as client:
        offers = client.capabilities
        return {
            "tools": [each.raw for each in await client.list_tools()],
            "resources": [each.raw for each in await client.list_resources()]
            if "resources" in offers
            else [],
            "resourceTemplates": await _templates(client) if "resources" in offers else [],
            "prompts": [each.raw for each in await client.list_prompts()] if "prompts" in offers else [],
        }


async def _templates(client: Any) -> list[dict[str, Any]]:
    from toolwire.errors import McpError  # noqa: PLC0415

    try:
        return [each.raw for each in await client.list_resource_templates()]
    except McpError:  # a server may have resources and no templates
        return []


def _show(offer: dict[str, list[dict[str, Any]]]) -> None:
    from rich.table import Table  # noqa: PLC0415 - loads rich

    from toolwire.cli.shared.printing import markup, one_line, show  # noqa: PLC0415

    listed = offer["tools"]
    if listed:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("Tool", "Parameters", "Description", ""):
            table.add_column(column, overflow="fold")
        for tool in listed:
            said = markup(one_line(tool.get("description") or ""))
            name, taken = (
                markup(one_line(tool["name"])),
                markup(one_line(parameters(tool.get("inputSchema")))),
            )
            table.add_row(f"[cyan]{name}[/]", taken, said, f"[yellow]{', '.join(_marks(tool))}[/]")
        show(table)
    for title, key, what in (
        ("Resources", "resources", "uri"),
        ("Resource templates", "resourceTemplates", "uriTemplate"),
        ("Prompts", "prompts", "name"),
    ):
        if offer[key]:
            typer.echo(f"\n{title}:")
        for each in offer[key]:
            about = one_line(each.get("description") or "")
            typer.echo(f"  {one_line(str(each.get(what)))}" + (f"  {about}" if about else ""))
    typer.echo(("\n" if listed else "") + ", ".join(_counts(offer)))


def _counts(offer: dict[str, list[Any]]) -> list[str]:
    words = {"tools": "tool", "resources": "resource", "resourceTemplates": "template", "prompts": "prompt"}
    counted = {word: len(offer[key]) for key, word in words.items() if offer[key] or key == "tools"}
    return [f"{count} {word}{'' if count == 1 else 's'}" for word, count in counted.items()]


def _show_schemas(offer: dict[str, list[dict[str, Any]]]) -> None:
    from toolwire.cli.shared.printing import one_line, out, to_json  # noqa: PLC0415

    console = out()
    for tool in offer["tools"]:
        console.print(one_line(tool["name"]), style="bold cyan", markup=False, soft_wrap=True)
        if about := tool.get("description"):
            typer.echo(plain(about))
        for title, key in (("takes", "inputSchema"), ("gives", "outputSchema")):
            if key in tool:
                typer.echo(f"{title} {to_json(tool[key])}")
        typer.echo()
    typer.echo(", ".join(_counts(offer)))


def parameters(schema: Any) -> str:
    """The parameters of a tool in a line: `a: number, b: string?`; the mark is for those that may be left out."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return ""
    required = schema.get("required") or []
    return ", ".join(
        f"{name}: {_kind(value, schema)}{'' if name in required else '?'}"
        for name, value in properties.items()
    )


def _kind(schema: Any, root: dict[str, Any]) -> str:
    from toolwire.cli.shared.arguments import kinds_of  # noqa: PLC0415

    kinds = kinds_of(schema, root)
    return " | ".join(sorted(kinds, key=lambda kind: (kind == "null", kind))) if kinds else "any"


def _marks(tool: dict[str, Any]) -> list[str]:
    hints = tool.get("annotations") or {}
    words = {"readOnlyHint": "read-only", "destructiveHint": "destructive"}
    return [word for key, word in words.items() if hints.get(key) is True]
