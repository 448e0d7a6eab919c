"""What kind of value each option takes: one row each, for `ClaudeAgentOptions` and for `AgentDefinition`.

A kind is a predicate and the words for it. This table knows types and literals only; what must hold inside
a value or between two options is in `_option_checks`.
"""

import json
import math
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn, get_args

from toolwire._support.words import closest
from toolwire.errors import OptionsError
from toolwire.options.types import (
    EffortLevel,
    PermissionPrompts,
    PluginDelivery,
    SessionStoreFlushMode,
    SettingSource,
)
from toolwire.permissions import PermissionMode

# They may hold secrets, so errors do not show their values.
_HIDDEN = frozenset({"env", "extra_args", "mcp_servers", "settings", "managed_settings", "sandbox"})
_SHOWN = 100


class Kind(NamedTuple):
    """A test for a value, and what to call the values that pass; the rest is for better error texts."""

    wanted: str
    fits: Callable[[Any], bool]
    literals: tuple[str, ...] = ()
    item: "Kind | None" = None

    def __or__(self, other: "Kind") -> "Kind":
        return Kind(
            f"{self.wanted} or {other.wanted}",
            lambda value: self.fits(value) or other.fits(value),
            self.literals + other.literals,
            self.item or other.item,
        )


def is_list(value: object) -> bool:
    """Several values in one: a list, or what does as well as one."""
    return isinstance(value, list | tuple | set | frozenset)


def many(item: Kind, wanted: str) -> Kind:
    """A list of such items."""
    return Kind(wanted, lambda value: is_list(value) and all(map(item.fits, value)), item.literals, item)


def by_name(item: Kind, wanted: str) -> Kind:
    """A dict of such items, with strings as keys."""
    return Kind(
        wanted,
        lambda value: (
            isinstance(value, Mapping)
            and all(isinstance(key, str) for key in value)
            and all(map(item.fits, value.values()))
        ),
        item=item,
    )


def one_of(literal: Any) -> Kind:
    """One of the strings of a `Literal`."""
    names: tuple[str, ...] = get_args(literal)
    return Kind(" or ".join(map(repr, names)), lambda value: isinstance(value, str) and value in names, names)


def is_json(value: object) -> bool:
    """Whether the CLI can be sent this as JSON; NaN and infinity are not JSON."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


NOTHING = Kind("None", lambda value: value is None)
ANYTHING = Kind("anything", lambda _: True)
TEXT = Kind("a string", lambda value: isinstance(value, str))
FLAG = Kind("True or False", lambda value: isinstance(value, bool))
WHOLE = Kind("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool))
NUMBER = Kind(
    "a number",
    lambda value: isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value),
)
PATH = Kind("a path (string or Path)", lambda value: isinstance(value, str | os.PathLike))
FUNCTION = Kind("a function", callable)
DICT = Kind("a dict", lambda value: isinstance(value, Mapping))
JSON_DICT = Kind("a dict of JSON values", lambda value: isinstance(value, Mapping) and is_json(value))
TEXTS = many(TEXT, "a list of strings")
# Where order counts or the list is sent as JSON: not a set.
ORDERED_TEXTS = Kind("a list of strings", lambda value: isinstance(value, list | tuple) and TEXTS.fits(value))
PATHS = many(PATH, "a list of paths")
DICTS = many(DICT, "a list of dicts")
TEXT_BY_NAME = by_name(TEXT, "a dict of strings")
ARGUMENTS = by_name(TEXT | NUMBER | NOTHING, "a dict of flag names to strings, numbers or None")

# NOTHING stands where None is the default, and where the official SDK takes None for unset.
KINDS: dict[str, Kind] = {
    "tools": TEXTS | DICT | NOTHING,
    "allowed_tools": TEXTS,
    "system_prompt": TEXT | ORDERED_TEXTS | DICT | NOTHING,
    "mcp_servers": DICT | PATH | NOTHING,
    "strict_mcp_config": FLAG,
    "permission_mode": one_of(PermissionMode) | NOTHING,
    "continue_conversation": FLAG,
    "resume": TEXT | NOTHING,
    "session_id": TEXT | NOTHING,
    "max_turns": WHOLE | NOTHING,
    "max_budget_usd": NUMBER | NOTHING,
    "disallowed_tools": TEXTS | NOTHING,
    "model": TEXT | NOTHING,
    "fallback_model": TEXT | NOTHING,
    "betas": TEXTS | NOTHING,
    "permission_prompt_tool_name": TEXT | NOTHING,
    "cwd": PATH | NOTHING,
    "cli_path": PATH | NOTHING,
    "settings": PATH | JSON_DICT | NOTHING,
    "add_dirs": PATHS | NOTHING,
    "env": TEXT_BY_NAME,
    "extra_args": ARGUMENTS,
    "max_buffer_size": WHOLE | NOTHING,
    "debug_stderr": ANYTHING,
    "stderr": FUNCTION | NOTHING,
    "can_use_tool": FUNCTION | NOTHING,
    "hooks": DICT | NOTHING,
    "user": TEXT | WHOLE | NOTHING,
    "include_partial_messages": FLAG,
    "include_hook_events": FLAG,
    "forward_subagent_text": FLAG,
    "verbatim_prompts": FLAG,
    "fork_session": FLAG,
    "resume_session_at": TEXT | NOTHING,
    "resume_drops_turn": TEXT | NOTHING,
    "agents": DICT | NOTHING,
    "setting_sources": many(one_of(SettingSource), "a list of 'user', 'project' or 'local'") | NOTHING,
    "skills": Kind("a list of skill names", lambda value: isinstance(value, list))
    | Kind("'all'", lambda value: value == "all")
    | NOTHING,
    "sandbox": JSON_DICT | NOTHING,
    "plugins": DICTS | NOTHING,
    "max_thinking_tokens": WHOLE | NOTHING,
    "thinking": DICT | NOTHING,
    "effort": one_of(EffortLevel) | NOTHING,
    "output_format": JSON_DICT | NOTHING,
    "enable_file_checkpointing": FLAG,
    "session_store": ANYTHING,
    "session_store_flush": one_of(SessionStoreFlushMode),
    "load_timeout_ms": WHOLE,
    "task_budget": DICT | NOTHING,
    "client_app": TEXT | NOTHING,
    "inherit_env": FLAG,
    "include_all_messages": FLAG,
    "initialize_timeout": NUMBER | NOTHING,
    "control_timeout": NUMBER,
    "close_timeout": NUMBER,
    "agent": TEXT | NOTHING,
    "tool_aliases": TEXT_BY_NAME | NOTHING,
    "tool_config": JSON_DICT | NOTHING,
    "on_elicitation": FUNCTION | NOTHING,
    "on_sampling": FUNCTION | NOTHING,
    "roots": many(PATH | DICT, "a list of paths, URIs or dicts") | NOTHING,
    "on_user_dialog": FUNCTION | NOTHING,
    "supported_dialog_kinds": TEXTS | NOTHING,
    "per_task_stop_affordance": FLAG,
    "persist_session": FLAG,
    "plan_mode_instructions": TEXT | NOTHING,
    "allow_dangerously_skip_permissions": FLAG,
    "permission_prompts": one_of(PermissionPrompts) | NOTHING,
    "plugin_delivery": one_of(PluginDelivery),
    "prompt_suggestions": FLAG,
    "agent_progress_summaries": FLAG,
    "managed_settings": JSON_DICT | NOTHING,
    "debug": FLAG | TEXT,
    "debug_file": PATH | NOTHING,
    "title": TEXT | NOTHING,
    "spawn_claude_code_process": FUNCTION | NOTHING,
    "project_config_root": PATH | NOTHING,
    "on_frame": FUNCTION | NOTHING,
}

AGENT_KINDS: dict[str, Kind] = {
    "description": TEXT,
    "prompt": TEXT,
    "tools": ORDERED_TEXTS | NOTHING,
    "disallowedTools": ORDERED_TEXTS | NOTHING,
    "model": TEXT | NOTHING,
    "skills": ORDERED_TEXTS | NOTHING,
    "memory": one_of(SettingSource) | NOTHING,
    "mcpServers": Kind(
        "a list of server names and {name: config} dicts",
        lambda value: isinstance(value, list) and all(TEXT.fits(it) or JSON_DICT.fits(it) for it in value),
    )
    | NOTHING,
    "initialPrompt": TEXT | NOTHING,
    "maxTurns": WHOLE | NOTHING,
    "background": FLAG | NOTHING,
    "effort": one_of(EffortLevel) | WHOLE | NOTHING,
    "permissionMode": one_of(PermissionMode) | NOTHING,
    "criticalSystemReminder_EXPERIMENTAL": TEXT | NOTHING,
    "autoCompactWindow": WHOLE | NOTHING,
    "omitClaudeMd": FLAG | NOTHING,
    "observer": TEXT | NOTHING,
    "observerMessage": TEXT | NOTHING,
}


def refuse(option: str, problem: str) -> NoReturn:
    """Say what is wrong with an option; `option` may name a part of it, as in `plugins[0]`."""
    text = f"ClaudeAgentOptions.{option} {problem}"
    raise OptionsError(text if text.endswith("?") else f"{text}.", option=option.partition("[")[0])


def check_kind(option: str, value: object, kind: Kind) -> None:
    """Raise `OptionsError` unless the value is of that kind."""
    if not kind.fits(value):
        why = _culprit(value, kind) + _suggestion(option, value, kind)
        refuse(option, f"must be {kind.wanted}, got {shown(option, value)}{why}")


def shown(option: str, value: object) -> str:
    """What was given, cut short; of options that may hold secrets only the type."""
    kind = type(value).__name__
    if option.partition("[")[0] in _HIDDEN and not isinstance(value, bool | int | float | None):
        return f"a value of type {kind}"
    text = repr(value)
    return f"{text if len(text) <= _SHOWN else text[: _SHOWN - 3] + '...'} ({kind})"


def _culprit(value: object, kind: Kind) -> str:
    """Which item of a list or a dict is of the wrong kind."""
    if kind.item is None or not isinstance(value, Mapping | list | tuple):
        return ""
    for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
        if isinstance(value, Mapping) and not isinstance(key, str):
            return f" whose key {key!r} is no string"
        if not kind.item.fits(item):
            wrong = item if kind.literals and isinstance(item, str) else type(item)
            return f" whose item {key!r} is {wrong!r}"
    return ""


def _suggestion(option: str, value: object, kind: Kind) -> str:
    """The fix, where it can be guessed."""
    if isinstance(value, str) and len(value) < _SHOWN and kind.fits([value]):
        return f". Did you mean [{value!r}]?"
    if option == "mcp_servers" and hasattr(value, "connect"):
        return '. Did you mean {"name": server}?'
    if option == "extra_args" and isinstance(value, Mapping) and any(map(FLAG.fits, value.values())):
        return "; for a flag that takes no value, give None"
    words = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
    for word in words if kind.literals else []:
        near = closest(str(word), kind.literals, cutoff=0.5)
        if near and word not in kind.literals:
            return f". Did you mean {near!r}?"
    return ""
