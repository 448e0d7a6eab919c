"""`toolwire tools`: lists the tools, resources and prompts of a server."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolwire._support.words import count, plain
from toolwire.cli.shared.arguments import find_types
from toolwire.cli.shared.printing import markup, one_line, out, show, show_json, to_json
from toolwire.cli.shared.target_options import (
    AllowHttpOption,
    AllowNetworkOption,
    ChainOption,
    ExcludeOption,
    ExternalFilesOption,
    GroupOption,
    HeaderOption,
    IncludeOption,
    JsonOption,
    OpenAPIOptions,
    TargetArgument,
    connect,
    resolve_target,
    run,
)
from toolwire.errors import McpError

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
    external_files: ExternalFilesOption = False,
    allow_network: AllowNetworkOption = None,
    allow_http: AllowHttpOption = False,
    group: GroupOption = None,
    chain: ChainOption = None,
) -> None:
    """List the tools of a server: their names, parameters and descriptions.

    Examples:

      toolwire tools app.py

      toolwire tools app.py:calc --schemas

      toolwire tools catalog:agentpmt --include 'weather*'    # needs an account

      toolwire tools openapi:petstore.yaml --include 'tag:pets'

      toolwire tools https://example.com/mcp --header "Authorization: Bearer $TOKEN"    # needs a server
    """
    document = vars(
        OpenAPIOptions(external_files=external_files, allow_network=allow_network, allow_http=allow_http)
    )
    found = run(_list, resolve_target(target, header, include, exclude, document, groups=group, chains=chain))
    if json:
        others = {key: value for key, value in found.items() if key != "tools" and value}
        show_json({"tools": found["tools"], **others})
    elif schemas:
        _show_schemas(found)
    else:
        _show(found)


async def _list(target: "Target") -> dict[str, list[dict[str, Any]]]:
    async with connect(target) as client:
        capabilities = client.capabilities
        found: dict[str, list[dict[str, Any]]] = {"resources": [], "resourceTemplates": [], "prompts": []}
        if "resources" in capabilities:
            found["resources"] = [each.raw for each in await client.list_resources()]
            found["resourceTemplates"] = await _list_templates(client)
        if "prompts" in capabilities:
            found["prompts"] = [each.raw for each in await client.list_prompts()]
        return {"tools": [each.raw for each in await client.list_tools()], **found}


async def _list_templates(client: Any) -> list[dict[str, Any]]:
    try:
        return [each.raw for each in await client.list_resource_templates()]
    except McpError:  # a server may have resources and no templates
        return []


def _show(found: dict[str, list[dict[str, Any]]]) -> None:
    from rich.table import Table  # noqa: PLC0415 - loads rich

    listed = found["tools"]
    if listed:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("Tool", "Parameters", "Description", ""):
            table.add_column(column, overflow="fold")
        for tool in listed:
            name = markup(one_line(tool["name"]))
            parameters = markup(one_line(describe_parameters(tool.get("inputSchema"))))
            description = markup(one_line(tool.get("description") or ""))
            table.add_row(
                f"[cyan]{name}[/]", parameters, description, f"[yellow]{', '.join(_hints(tool))}[/]"
            )
        show(table)
    for title, key, label in (
        ("Resources", "resources", "uri"),
        ("Resource templates", "resourceTemplates", "uriTemplate"),
        ("Prompts", "prompts", "name"),
    ):
        if found[key]:
            typer.echo(f"\n{title}:")
        for each in found[key]:
            description = one_line(each.get("description") or "")
            typer.echo(f"  {one_line(str(each.get(label)))}" + (f"  {description}" if description else ""))
    typer.echo(("\n" if listed else "") + ", ".join(_count(found)))


def _count(found: dict[str, list[Any]]) -> list[str]:
    words = {"tools": "tool", "resources": "resource", "resourceTemplates": "template", "prompts": "prompt"}
    counted = {word: len(found[key]) for key, word in words.items() if found[key] or key == "tools"}
    return [count(number, word) for word, number in counted.items()]


def _show_schemas(found: dict[str, list[dict[str, Any]]]) -> None:
    console = out()
    for tool in found["tools"]:
        console.print(one_line(tool["name"]), style="bold cyan", markup=False, soft_wrap=True)
        if description := tool.get("description"):
            typer.echo(plain(description))
        for title, key in (("input", "inputSchema"), ("output", "outputSchema")):
            if key in tool:
                typer.echo(f"{title} {to_json(tool[key])}")
        typer.echo()
    typer.echo(", ".join(_count(found)))


def describe_parameters(schema: Any) -> str:
    """Describe the parameters of a tool in a line: `a: number, b: string?`; `?` marks the optional ones."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return ""
    required = schema.get("required") or []
    return ", ".join(
        f"{name}: {_kind(value, schema)}{'' if name in required else '?'}"
        for name, value in properties.items()
    )


def _kind(schema: Any, root: dict[str, Any]) -> str:
    kinds = find_types(schema, root)
    return " | ".join(sorted(kinds, key=lambda kind: (kind == "null", kind))) if kinds else "any"


def _hints(tool: dict[str, Any]) -> list[str]:
    hints = tool.get("annotations") or {}
    words = {"readOnlyHint": "read-only", "destructiveHint": "destructive"}
    return [word for key, word in words.items() if hints.get(key) is True]
