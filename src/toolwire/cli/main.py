"""The `toolwire` command: puts the commands together."""

from typing import Annotated

import typer

from toolwire._version import __version__
from toolwire.cli.call import call
from toolwire.cli.catalog import catalog_app
from toolwire.cli.check import check
from toolwire.cli.config import config
from toolwire.cli.demo import demo
from toolwire.cli.doctor import doctor
from toolwire.cli.new import new
from toolwire.cli.run import run
from toolwire.cli.serve import serve
from toolwire.cli.shared.exit_codes import report_errors
from toolwire.cli.tools import tools

app = typer.Typer(
    name="toolwire",
    help="Give Claude, or any other MCP client, the functions in your own process.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(catalog_app)
for command in (demo, new, tools, call, check, run, serve, config, doctor):
    app.command()(report_errors(command))


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
