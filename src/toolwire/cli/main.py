"""The commands, put together. A user's mistake is a sentence and an exit code, never a traceback."""

import typer

from toolwire._version import __version__
from toolwire.cli.demo import demo

app = typer.Typer(
    name="toolwire",
    help="Give Claude the functions in your own process.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"toolwire {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Give Claude the functions in your own process."""
