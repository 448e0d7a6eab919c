"""`toolwire demo`: a conversation in which Claude calls two functions of this process."""

from typing import Annotated

import typer

NEXT = """
Next:
  [bold]toolwire new shop[/]      a project of your own, with tests
  [bold]toolwire demo --live[/]   the same with your own Claude
  [bold]docs/guide.md[/]          your own functions as tools
  [bold]docs/testing.md[/]        test your agent as this demo does"""


def demo(
    live: Annotated[
        bool, typer.Option("--live", help="Use your own CLI, key and model instead of a script.")
    ] = False,
    scripted: Annotated[
        bool, typer.Option("--scripted", help="Use the scripted CLI even if a real one is installed.")
    ] = False,
) -> None:
    """Show a conversation in which Claude calls your functions. Needs no key and no network.

    Examples:

      toolwire demo

      toolwire demo --live
    """
    if live and scripted:
        raise typer.BadParameter("--live and --scripted exclude each other")
    import anyio  # noqa: PLC0415 - heavy, as are the next ones
    from rich.console import Console  # noqa: PLC0415

    from toolwire.cli.demo_conversation import choose_peer, converse  # noqa: PLC0415

    console = Console(highlight=False)
    anyio.run(converse, console, "live" if live else "scripted" if scripted else choose_peer())
    console.print(NEXT)
