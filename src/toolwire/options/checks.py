"""Refuses options that cannot work, with an error that names the field, what was given, and what to do.

Three passes over tables: the kind of each value (`_option_kinds`), what must hold inside single values
(`_option_shapes`, `_LIMITS`), and what must hold between options (`_CLASHES`). Only `check_paths` looks at
the file system.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from toolwire.errors import CLIConnectionError, NotSupportedError
from toolwire.options.kinds import KINDS, check_kind, is_list, refuse
from toolwire.options.shapes import SHAPES

Given = Mapping[str, Any]


def check(given: Given) -> None:
    """Raise `OptionsError` for the first thing that is wrong; `given` maps each option to its value."""
    if given["session_store"] is not None:
        raise NotSupportedError(
            "ClaudeAgentOptions.session_store is not supported by toolwire yet; leave it None. "
            "Sessions are saved by the CLI itself, in its own directory."
        )
    for option, kind in KINDS.items():
        check_kind(option, given[option], kind)
    for option in _ON_COMMAND_LINE:
        if any("\0" in text for text in _texts(given[option])):
            refuse(option, "contains a NUL character, which no command line can carry; remove it")
    for option, limit in _LIMITS.items():
        _check_limit(option, given[option], limit)
    for option, check_shape in SHAPES.items():
        if given[option] is not None:
            check_shape(given[option])
    for clash in _CLASHES:
        if clash.when(given):
            refuse(clash.option, clash.problem)


def check_paths(options: Any) -> None:
    """Raise `CLIConnectionError` if the directory to work in is not there. For the moment of connecting."""
    if not options.cwd:
        return
    cwd = Path(options.cwd)
    if not cwd.exists():
        raise CLIConnectionError(f"Working directory does not exist: {cwd}")
    if not cwd.is_dir():
        raise CLIConnectionError(f"Working directory is not a directory: {cwd}")


def _texts(value: object) -> Iterator[str]:
    """All strings in a value that is put on the command line."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, os.PathLike):
        yield os.fspath(value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif is_list(value):
        for item in value:  # type: ignore[attr-defined]
            yield from _texts(item)


# What reaches the operating system as it is. The rest travels as JSON, which escapes any character.
_ON_COMMAND_LINE = (
    *("tools", "allowed_tools", "disallowed_tools", "system_prompt", "resume", "session_id", "model"),
    *("fallback_model", "betas", "permission_prompt_tool_name", "cwd", "cli_path", "add_dirs", "extra_args"),
    *("user", "resume_session_at", "resume_drops_turn", "plugins", "agent", "debug", "debug_file"),
    *("project_config_root", "env"),
)


class _Limit(NamedTuple):
    least: float
    included: bool
    finite: bool = False


_LIMITS = {
    "max_turns": _Limit(0, included=True),
    "max_budget_usd": _Limit(0, included=False, finite=True),
    "max_buffer_size": _Limit(0, included=False),
    "max_thinking_tokens": _Limit(0, included=True),
    "load_timeout_ms": _Limit(0, included=True),
    "initialize_timeout": _Limit(0, included=False),
    "control_timeout": _Limit(0, included=False),
    "close_timeout": _Limit(0, included=True),
}


def _check_limit(option: str, value: float | None, limit: _Limit) -> None:
    if value is None:
        return
    if value < limit.least or (value == limit.least and not limit.included):
        than = "at least" if limit.included else "more than"
        unset = "" if limit.included else "; leave it unset for the default"
        refuse(option, f"must be {than} {limit.least}, got {value}{unset}")
    if limit.finite and math.isinf(value):
        refuse(option, f"must be a finite number, got {value}; leave it unset for no limit")


class _Clash(NamedTuple):
    option: str
    when: Callable[[Given], bool]
    problem: str


_CLASHES = (
    _Clash(
        "can_use_tool",
        lambda it: bool(it["can_use_tool"] and it["permission_prompt_tool_name"]),
        "and permission_prompt_tool_name both answer permission questions; use one or the other",
    ),
    _Clash(
        "continue_conversation",
        lambda it: bool(it["continue_conversation"] and it["resume"]),
        "and resume name two conversations to go on with; use one or the other",
    ),
    _Clash(
        "session_id",
        lambda it: bool(
            it["session_id"] and (it["resume"] or it["continue_conversation"]) and not it["fork_session"]
        ),
        "cannot be given for a conversation that has an id already; set fork_session=True, "
        "or leave out resume and continue_conversation",
    ),
    _Clash(
        "resume_session_at",
        lambda it: bool(it["resume_session_at"] and not it["resume"]),
        "is a point in a resumed conversation; say which one with resume",
    ),
    _Clash(
        "resume_drops_turn",
        lambda it: it["resume_drops_turn"] == "",
        "is empty; give the UUID of the prompt whose turn may be dropped, or None",
    ),
    _Clash(
        "resume_drops_turn",
        lambda it: it["resume_drops_turn"] is not None and not it["resume_session_at"],
        "guards a cut in the conversation; say where to cut with resume_session_at",
    ),
    _Clash(
        "supported_dialog_kinds",
        lambda it: bool(it["supported_dialog_kinds"]) and it["on_user_dialog"] is None,
        "declares dialogs that nothing would answer; give on_user_dialog too",
    ),
)
