"""The application of the command and of its groups.

Errors become messages and exit codes: a user's mistake is reported in a line on stderr, never with a traceback.
Help shows flags without a type.
"""

import contextlib
import errno
import functools
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, Final, NoReturn, ParamSpec, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from toolwire.cli.shared.printing import FAILURE, INTERRUPTED, WRONG_USE, fail, to_json
from toolwire.errors import ClaudeSDKError, OptionsError, ToolDefinitionError, UsageError

_CANNOT_WRITE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Errors of a full disk, and of a terminal that was closed."""
P = ParamSpec("P")
R = TypeVar("R")


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
    """Make an application, or a group of commands, from functions. `list_` becomes the command `list`.

    A parameter whose type is a dataclass gives the command an option for each of its fields.
    """
    app = typer.Typer(
        name=name,
        help=help_text,
        cls=_Group,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for command in commands:
        name = command.__name__.rstrip("_").replace("_", "-")
        app.command(name, cls=_Command)(_spread_options(_report_errors(command)))
    return app


def _spread_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Replace each parameter that is a dataclass by its fields, for typer, which knows no groups of options."""
    signature = inspect.signature(command)
    groups: dict[str, Any] = {
        name: each.annotation for name, each in signature.parameters.items() if is_dataclass(each.annotation)
    }

    @functools.wraps(command)
    def run(**given: Any) -> Any:
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
        return command(**given)

    parameters = [
        each.replace(kind=each.KEYWORD_ONLY)
        for name, own in signature.parameters.items()
        for each in (inspect.signature(groups[name]).parameters.values() if name in groups else [own])
    ]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _fail_with(error: ClaudeSDKError, *, as_json: bool) -> NoReturn:
    wrong = isinstance(error, UsageError | OptionsError | ToolDefinitionError)
    code = WRONG_USE if wrong else FAILURE
    if as_json:
        # One line, since a command may print JSON lines.
        typer.echo(to_json({"error": str(error)}, indent=None))
        raise typer.Exit(code)
    fail(str(error), code)


def _unwrap(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _discard_output() -> None:
    """Redirect stdout to the null device: Python would report an error when it flushes the rest at exit."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _report_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Wrap a command so that its errors become messages and exit codes. Bugs still show their traceback.

    With `--json` the message is `{"error": ...}` on stdout, so that a script always finds JSON there.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> Any:
        as_json = kwargs.get("json") is True
        try:
            return command(*args, **kwargs)
        except ClaudeSDKError as error:
            _fail_with(error, as_json=as_json)
        except BaseExceptionGroup as group:  # a task group wraps the error of its task
            reason = _unwrap(group)
            if not isinstance(reason, ClaudeSDKError):
                raise
            _fail_with(reason, as_json=as_json)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            _discard_output()
            raise typer.Exit(FAILURE) from None
        except OSError as error:
            if error.errno not in _CANNOT_WRITE:
                raise
            if error.filename is not None:
                text = f"{error.filename} cannot be read or written: {error.strerror}"
                _fail_with(ClaudeSDKError(text), as_json=as_json)
            _discard_output()
            fail(f"the output cannot be written: {error.strerror}")

    return run
