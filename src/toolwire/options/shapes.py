"""What must hold inside single options, one function each (`SHAPES`): the keys of dicts, the items of lists.

The kind of the whole value has been checked before (`_option_kinds`); None never comes here.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from toolwire.options.kinds import (
    AGENT_KINDS,
    FLAG,
    FUNCTION,
    KINDS,
    NOTHING,
    NUMBER,
    ORDERED_TEXTS,
    PATH,
    TEXT,
    WHOLE,
    Kind,
    check_kind,
    many,
    one_of,
    refuse,
    shown,
)
from toolwire.options.mcp_servers import check_servers
from toolwire.options.skill_names import skill_name_problem
from toolwire.options.types import ThinkingDisplay

_UUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_CONTROL = r"[\x00-\x1f\x7f]"
_LATIN_1 = 0xFF


def _check_key(option: str, value: Mapping[str, Any], key: str, kind: Kind, *, needed: bool = False) -> None:
    """One key of a dict option."""
    if key in value:
        check_kind(f"{option}[{key!r}]", value[key], kind)
    elif needed:
        refuse(option, f"needs {key!r}, {kind.wanted}; it has {', '.join(map(repr, value)) or 'no keys'}")


def _literal(*names: str) -> Kind:
    return Kind(" or ".join(map(repr, names)), lambda value: value in names, names)


_CLAUDE_CODE = _literal("claude_code")
_SYSTEM_PROMPTS: dict[str, dict[str, tuple[Kind, bool]]] = {
    "preset": {
        "preset": (_CLAUDE_CODE, False),
        "append": (TEXT, False),
        "exclude_dynamic_sections": (FLAG | NOTHING, False),
        "snapshot": (FLAG | NOTHING, False),
    },
    "custom": {"prompt": (TEXT | ORDERED_TEXTS, True), "snapshot": (FLAG | NOTHING, False)},
    "file": {"path": (PATH, True)},
}
_THINKING: dict[str, dict[str, tuple[Kind, bool]]] = {
    "adaptive": {"display": (one_of(ThinkingDisplay), False)},
    "enabled": {"budget_tokens": (WHOLE, True), "display": (one_of(ThinkingDisplay), False)},
    "disabled": {},
}


def _check_by_type(option: str, value: Mapping[str, Any], types: Mapping[str, Any]) -> None:
    """A dict whose `type` says which other keys it has."""
    _check_key(option, value, "type", _literal(*types), needed=True)
    for key, (kind, needed) in types[value["type"]].items():
        _check_key(option, value, key, kind, needed=needed)


def _check_system_prompt(value: object) -> None:
    if isinstance(value, Mapping):
        _check_by_type("system_prompt", value, _SYSTEM_PROMPTS)


def _check_tools(value: object) -> None:
    if isinstance(value, Mapping):
        _check_key("tools", value, "type", _literal("preset"), needed=True)
        _check_key("tools", value, "preset", _CLAUDE_CODE)


def _check_thinking(value: Mapping[str, Any]) -> None:
    _check_by_type("thinking", value, _THINKING)
    if value.get("budget_tokens", 0) < 0:
        refuse("thinking['budget_tokens']", f"must be at least 0, got {value['budget_tokens']}")


def _check_task_budget(value: Mapping[str, Any]) -> None:
    _check_key("task_budget", value, "total", WHOLE, needed=True)
    if value["total"] <= 0:
        refuse("task_budget['total']", f"must be more than 0, got {value['total']}")


def _check_output_format(value: Mapping[str, Any]) -> None:
    want = '{"type": "json_schema", "schema": {...}}'
    if value.get("type") != "json_schema":
        hint = "; this looks like the schema itself" if "properties" in value else ""
        refuse("output_format", f'must be {want}, got a dict with "type": {value.get("type")!r}{hint}')
    if not isinstance(value.get("schema"), Mapping):
        refuse("output_format", f'must be {want}; its "schema" is a {type(value.get("schema")).__name__}')


def _check_plugins(value: list[Mapping[str, Any]]) -> None:
    for number, plugin in enumerate(value):
        option = f"plugins[{number}]"
        _check_key(option, plugin, "type", _literal("local"), needed=True)
        _check_key(option, plugin, "path", PATH, needed=True)
        _check_key(option, plugin, "skipMcpDiscovery", FLAG)


def _check_skills(value: object) -> None:
    for name in value if isinstance(value, list) else ():
        if problem := skill_name_problem(name):
            refuse("skills", f"has {name!r}: {problem}")


def _check_session_id(value: str) -> None:
    if value and not re.fullmatch(_UUID, value):
        refuse("session_id", f"must be a UUID, got {value!r}; make one with str(uuid.uuid4())")


def _check_env(value: Mapping[str, str]) -> None:
    for name in value:
        if not name or "=" in name:
            refuse("env", f"has a variable called {name!r}; a name is not empty and has no '='")


def _check_extra_args(value: Mapping[str, Any]) -> None:
    for name in value:
        bare = name.lstrip("-")
        if not bare:
            refuse("extra_args", f"has a flag called {name!r}; give its name")
        if bare != name:
            refuse("extra_args", f"has {name!r}: flags are named without --, so write {bare!r}")


def _check_client_app(value: str) -> None:
    if re.search(_CONTROL, value) or any(ord(char) > _LATIN_1 for char in value):
        refuse("client_app", f"is sent as an HTTP header and cannot hold such characters: {value!r}")


_MATCHER_KINDS = {
    "matcher": TEXT | NOTHING,
    "hooks": many(FUNCTION, "a list of functions"),
    "timeout": NUMBER | NOTHING,
    # The CLI takes a word that it does not know for "block".
    "on_failure": _literal("continue", "block") | NOTHING,
}


def _check_hooks(value: Mapping[Any, Any]) -> None:
    for event, matchers in value.items():
        if not isinstance(event, str):
            refuse(
                "hooks", f"has a key that is not a string: {event!r}; keys are events such as 'PreToolUse'"
            )
        option = f"hooks[{event!r}]"
        if not isinstance(matchers, list | tuple):
            refuse(option, f"must be a list of HookMatcher, got {shown('hooks', matchers)}")
        for matcher in matchers:
            if not hasattr(matcher, "hooks"):
                refuse(
                    option, f"has {shown('hooks', matcher)}; wrap functions: HookMatcher(hooks=[function])"
                )
            for key, kind in _MATCHER_KINDS.items():
                if hasattr(matcher, key):
                    check_kind(f"{option}.{key}", getattr(matcher, key), kind)


def _check_agents(value: Mapping[Any, Any]) -> None:
    for name, agent in value.items():
        if not isinstance(name, str) or not name.strip():
            refuse("agents", f"has {name!r} as an agent's name; names are strings that are not empty")
        option = f"agents[{name!r}]"
        if isinstance(agent, Mapping) or not hasattr(agent, "__dataclass_fields__"):
            hint = "; write AgentDefinition(**...)" if isinstance(agent, Mapping) else ""
            refuse(option, f"must be an AgentDefinition, got a {type(agent).__name__}{hint}")
        for key, kind in AGENT_KINDS.items():
            if hasattr(agent, key):
                check_kind(f"{option}.{key}", getattr(agent, key), kind)


def _check_tool_config(value: Mapping[str, Any]) -> None:
    question = value.get("askUserQuestion", {})
    check_kind("tool_config['askUserQuestion']", question, KINDS["tool_config"])
    _check_key(
        "tool_config['askUserQuestion']", question or {}, "previewFormat", _literal("markdown", "html")
    )


def _check_project_config_root(value: str | os.PathLike[str]) -> None:
    if not Path(value).is_absolute():
        refuse("project_config_root", f"must be an absolute path, got {os.fspath(value)!r}")


SHAPES: dict[str, Callable[[Any], None]] = {
    "tools": _check_tools,
    "system_prompt": _check_system_prompt,
    "mcp_servers": check_servers,
    "session_id": _check_session_id,
    "env": _check_env,
    "extra_args": _check_extra_args,
    "hooks": _check_hooks,
    "agents": _check_agents,
    "skills": _check_skills,
    "plugins": _check_plugins,
    "thinking": _check_thinking,
    "output_format": _check_output_format,
    "task_budget": _check_task_budget,
    "client_app": _check_client_app,
    "tool_config": _check_tool_config,
    "project_config_root": _check_project_config_root,
}
