"""Exit codes of the commands, and their error messages: a user's mistake is a line on stderr, never a traceback.

2 is wrong use, such as a target that does not exist; 1 is any other failure; 130 is Ctrl-C.
"""

import functools
from collections.abc import Callable
from typing import Any, Final, NoReturn, ParamSpec, TypeVar

import typer

from toolwire._support.terminal import plain
from toolwire.errors import ClaudeSDKError, OptionsError, ToolDefinitionError, UsageError

P = ParamSpec("P")
R = TypeVar("R")

FAILURE: Final = 1
WRONG_USE: Final = 2
INTERRUPTED: Final = 130


def fail(message: str, code: int = FAILURE) -> NoReturn:
    """Exit with a message on stderr."""
    from rich.console import Console  # noqa: PLC0415 - heavy, and only failures need it
    from rich.markup import escape  # noqa: PLC0415

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(f"[red]Error:[/] {escape(plain(message))}")
    raise typer.Exit(code)


def _fail_with(error: ClaudeSDKError) -> NoReturn:
    wrong = isinstance(error, UsageError | OptionsError | ToolDefinitionError)
    fail(str(error), WRONG_USE if wrong else FAILURE)


def _unwrap(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def report_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Wrap a command so that its errors become messages and exit codes. Bugs still show their traceback."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            return command(*args, **kwargs)
        except ClaudeSDKError as error:
            _fail_with(error)
        except BaseExceptionGroup as group:  # a task group wraps the error of its task
            reason = _unwrap(group)
            if not isinstance(reason, ClaudeSDKError):
                raise
            _fail_with(reason)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            raise typer.Exit(FAILURE) from None

    return run
