"""How a command fails: one clear line on stderr and an exit code, never a traceback for a user's mistake.

2 is wrong use (a target that is not there, an option that makes no sense), 1 a failure of something that was
used rightly, 130 Ctrl-C.
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
    """End the command with a line on stderr."""
    from rich.console import Console  # noqa: PLC0415 - only when something went wrong
    from rich.markup import escape  # noqa: PLC0415

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(f"[red]Error:[/] {escape(plain(message))}")
    raise typer.Exit(code)


def _refuse(error: ClaudeSDKError) -> NoReturn:
    wrong = isinstance(error, UsageError | OptionsError | ToolDefinitionError)
    fail(str(error), WRONG_USE if wrong else FAILURE)


def _only(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def friendly(command: Callable[P, R]) -> Callable[P, R]:
    """A command whose errors are sentences. What is no error of ours or the user's still shows its trace."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            return command(*args, **kwargs)
        except ClaudeSDKError as error:
            _refuse(error)
        except BaseExceptionGroup as group:  # of a task group, with one real reason in it
            reason = _only(group)
            if not isinstance(reason, ClaudeSDKError):
                raise
            _refuse(reason)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            raise typer.Exit(FAILURE) from None

    return run
