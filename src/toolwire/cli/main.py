"""The `toolwire` command: puts the commands together."""

from typing import Annotated

import typer

from toolwire._version import __version__
from toolwire.cli.batch import batch_app
from toolwire.cli.call import call
from toolwire.cli.catalog import catalog_app
from toolwire.cli.check import check
from toolwire.cli.config import config
from toolwire.cli.demo import demo
from toolwire.cli.doctor import doctor
from toolwire.cli.new import new
from toolwire.cli.pack import pack
from toolwire.cli.run import run
from toolwire.cli.serve import serve
from toolwire.cli.sessions import sessions_app
from toolwire.cli.shared.app import make_app
from toolwire.cli.studio import studio
from toolwire.cli.tools import tools

app = make_app(
    "toolwire",
    "Give Claude, or any other MCP client, the functions in your own process.",
    (demo, new, tools, call, check, run, studio, serve, config, pack, doctor),
)
app.add_typer(catalog_app)
app.add_typer(sessions_app)
app.add_typer(batch_app)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"toolwire {__version__}")
        raise typer.Exit


@app.callback()
def main(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Give Claude, or any other MCP client, the functions in your own process."""
