"""Decides about options as a whole: refuses what cannot run, and puts the rest into its documented form.

Refused is only what cannot run. What `claude_agent_sdk` takes and the CLI runs, runs: where a value fails its
checks, `repairs` knows the other forms that it may stand for, and a warning tells what was made of it.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import MISSING
from functools import cache, partial
from typing import Any, NamedTuple

from toolwire.errors import OptionsError
from toolwire.options.checks import (
    Check,
    Kind,
    check_kind,
    find_fields,
    iterate_texts,
    kinds_of,
    refuse,
)
from toolwire.sessions.types import implements

Warn = Callable[[str], None]
"""Called with the text of a warning."""


class _Row(NamedTuple):
    """An option, as `resolve` looks at it."""

    name: str
    default: object
    """MISSING, which no value is, where a factory makes it."""
    make_default: Any
    kind: Kind
    raw_text: bool
    check: Check | None


@cache
def _rows(options_class: type) -> list[_Row]:
    """Collect the rows that `option()` put beside the fields of a class."""
    kinds = kinds_of(options_class)
    return [
        _Row(
            field.name,
            field.default,
            field.default_factory if field.default is MISSING else partial(_get, field.default),
            kinds[field.name],
            field.metadata.get("raw_text", False),
            field.metadata.get("check"),
        )
        for field in find_fields(options_class)
    ]


def _get(value: Any) -> Any:
    return value


def resolve(options: Any, warn: Warn | None = None) -> Any:
    """Return the options with every value in its documented form; these themselves if all are.

    Raises `OptionsError` for the first option that cannot work. `warn` gets a text for each value whose form says
    something else than its author may have meant.
    """
    changes: dict[str, Any] = {}
    for row in _rows(options.__class__):
        value = getattr(options, row.name)
        if value is row.default:  # a default is never wrong
            continue
        if row.kind.item is not None and isinstance(value, Iterator):  # it can be read once only
            value = list(value)
            setattr(options, row.name, value)
        if (resolved := _resolve_value(row, value, warn)) is not value:
            changes[row.name] = resolved
    _check_conflicts(options, warn)
    if not changes:
        return options
    copied = copy.copy(options)
    for name, value in changes.items():
        setattr(copied, name, value)
    return copied


def _resolve_value(row: _Row, value: Any, warn: Warn | None) -> Any:
    """Return the value of an option in its documented form."""
    if value is None and not row.kind.fits(None):
        return row.make_default()
    try:
        _check_value(row, value)
    except OptionsError:
        from toolwire.options.repairs import find_repairs  # noqa: PLC0415 - few programs need one

        for repair in find_repairs(row.name, value, row.kind.literals):
            if repair.final or _fits(row, repair.value):
                for warning in repair.warnings:
                    _tell(warn, row.name, warning)
                return repair.value
        raise
    return value


def _check_value(row: _Row, value: Any) -> None:
    """Raise `OptionsError` unless an option may have this value."""
    check_kind(row.name, value, row.kind)
    if row.raw_text and any("\0" in text for text in iterate_texts(value)):
        refuse(row.name, "contains a NUL character, which no command line can carry; remove it")
    if row.check is not None and value is not None:
        row.check(row.name, value)


def _fits(row: _Row, value: Any) -> bool:
    try:
        _check_value(row, value)
    except OptionsError:
        return False
    return True


def _tell(warn: Warn | None, option: str, warning: str) -> None:
    """Warn about an option, or about a part of it, which the text then begins with."""
    if warn is not None:
        text = f"ClaudeAgentOptions.{option}{'' if warning.startswith('[') else ' '}{warning}"
        warn(text if text.endswith("?") else f"{text}.")


def _check_conflicts(options: Any, warn: Warn | None) -> None:
    for conflict in _CONFLICTS:
        if conflict.when(options):
            if not conflict.runs:
                refuse(conflict.option, conflict.problem)
            _tell(warn, conflict.option, conflict.problem)


# --- options that contradict each other -----------------------------------------------------------------------


class _Conflict(NamedTuple):
    option: str
    when: Callable[[Any], bool]
    problem: str
    runs: bool = False
    """True: the CLI decides which of them counts, and a warning says so."""


_CONFLICTS = (
    _Conflict(
        "can_use_tool",
        # "stdio" is the tool that the callback is for the CLI: options that were prepared for it have both.
        lambda it: bool(it.can_use_tool and it.permission_prompt_tool_name not in (None, "", "stdio")),
        "and permission_prompt_tool_name both answer permission requests; use one or the other",
    ),
    _Conflict(
        "continue_conversation",
        lambda it: bool(it.continue_conversation and it.resume),
        "and resume both name a conversation to continue: resume counts; leave out continue_conversation",
        runs=True,
    ),
    _Conflict(
        "session_id",
        lambda it: bool(it.session_id and (it.resume or it.continue_conversation) and not it.fork_session),
        "cannot be given for a conversation that has an id already; set fork_session=True, "
        "or leave out resume and continue_conversation",
    ),
    _Conflict(
        "resume_session_at",
        lambda it: bool(it.resume_session_at and not it.resume),
        "is a point in a resumed conversation; say which one with resume",
    ),
    _Conflict(
        "resume_drops_turn",
        lambda it: it.resume_drops_turn == "",
        "is empty; give the UUID of the prompt whose turn may be dropped, or None",
    ),
    _Conflict(
        "resume_drops_turn",
        lambda it: it.resume_drops_turn is not None and not it.resume_session_at,
        "guards a cut in the conversation; say where to cut with resume_session_at",
    ),
    _Conflict(
        "session_store",
        lambda it: (
            it.session_store is not None
            and not (it.persist_session and "no-session-persistence" not in it.extra_args)
        ),
        "gets what the CLI saves, and with persist_session=False (or that flag) it saves nothing; use one of them",
    ),
    _Conflict(
        "session_store",
        lambda it: it.session_store is not None and bool(it.enable_file_checkpointing),
        "does not hold copies of files, so enable_file_checkpointing cannot be used with it",
    ),
    _Conflict(
        "session_store",
        lambda it: (
            it.session_store is not None
            and bool(it.continue_conversation and not it.resume)
            and not implements(it.session_store, "list_sessions")
        ),
        "needs the method list_sessions() for continue_conversation; name the session with resume, or add it",
    ),
    _Conflict(
        "supported_dialog_kinds",
        lambda it: bool(it.supported_dialog_kinds) and it.on_user_dialog is None,
        "names dialogs that nothing would answer; set on_user_dialog too",
    ),
)
