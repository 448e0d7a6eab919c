"""`toolwire catalog pin`: agree to a catalogue as it is now, and see first what has changed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolwire._support.terminal import plain
from toolwire.cli.shared.target_options import connected, resolved, run
from toolwire.errors import UsageError

if TYPE_CHECKING:
    from toolwire.catalog.tools.definitions import Definition
    from toolwire.cli.shared.target import Target


def pin(
    target: Annotated[str, typer.Argument(metavar="catalog:PROFILE", help="The catalogue.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file of pins, for serve --pins.")],
    check: Annotated[
        bool, typer.Option("--check", help="Only show what differs; exit 1 if anything does.")
    ] = False,
) -> None:
    """Agree to the tools and prices of a catalogue: what differs from them later is not offered.

    Examples:

      toolwire catalog pin catalog:agentpmt pins.json

      toolwire catalog pin catalog:agentpmt pins.json --check

      toolwire serve catalog:agentpmt --pins pins.json
    """
    if not target.startswith("catalog:"):
        raise UsageError(f"only catalogues are pinned, and {target} is none: catalog:PROFILE")
    from toolwire.catalog.tools.pins import Pins, compare  # noqa: PLC0415 - heavy

    definitions = run(_definitions, resolved(target, None))
    before = Pins.load(file)
    changes = compare(definitions, before)
    for change in changes if before.tools or check else ():
        typer.echo(plain(f"{change.name}: {change.kind.replace('_', ' ')}\n{change.diff}".rstrip()))
    if check:
        if changes:
            raise typer.Exit(1)
        typer.echo(f"{len(definitions)} tools, all as pinned.")
        return
    Pins.of(definitions).save(file)
    typer.echo(f"{len(definitions)} tools are pinned in {file}.")


async def _definitions(target: "Target") -> "list[Definition]":
    async with connected(target):
        return list(target.server.definitions.values())
