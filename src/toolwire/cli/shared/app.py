"""The application of the command and of its groups: errors become messages, and help shows a flag as a flag."""

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from toolwire.cli.shared.printing import report_errors


class _Command(TyperCommand):
    """A command whose help shows flags without a type: `--json`, not `--json <bool>`."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _hide_types_of_flags(super().get_params(ctx))


class _Group(TyperGroup):
    """A group of commands, with the same help."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _hide_types_of_flags(super().get_params(ctx))


def _hide_types_of_flags(parameters: list[Any]) -> list[Any]:
    for each in parameters:
        if getattr(each, "is_flag", False) and each.metavar is None:
            each.metavar = ""
    return parameters


def make_app(name: str, help_text: str, commands: tuple[Callable[..., None], ...]) -> typer.Typer:
    """Make an application, or a group of commands, from functions. `list_` becomes the command `list`."""
    app = typer.Typer(
        name=name,
        help=help_text,
        cls=_Group,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for command in commands:
        app.command(command.__name__.rstrip("_").replace("_", "-"), cls=_Command)(report_errors(command))
    return app
