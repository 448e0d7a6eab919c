"""`ClaudeAgentOptions.mcp_servers`: checks the entries, and finds those that are server objects of this process.

An in-process server is recognised by its methods, not by its class, so neither `mcp` nor our own server classes are
imported here. The CLI never gets the object: `split_servers` replaces it with `{"type": "sdk", "name": ...}`.
"""

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from toolwire.errors import OptionsError
from toolwire.options.checks import NOTHING, ORDERED_TEXTS, TEXT, TEXT_BY_NAME, Kind, is_json, refuse
from toolwire.tools.names import wire_name

# Names that JavaScript objects already have; the CLI ignores servers with these names.
_RESERVED = frozenset(
    {"__proto__", "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__"}
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _is_high_level_server(value: object) -> bool:
    from toolwire.mcp.foreign.detect import LOW_LEVEL_ATTRIBUTES  # noqa: PLC0415 - few programs have one

    return any(hasattr(value, name) for name in LOW_LEVEL_ATTRIBUTES)


_SERVER_SIGNS: tuple[Callable[[object], bool], ...] = (
    lambda it: callable(getattr(it, "connect", None)),  # toolwire's ToolServer
    lambda it: callable(getattr(it, "run", None)) and hasattr(it, "create_initialization_options"),
    _is_high_level_server,
)


def is_server(value: object) -> bool:
    """True if this object looks like an MCP server that can be served from this process."""
    plain = isinstance(value, type | Mapping | str | os.PathLike)
    return not plain and any(sign(value) for sign in _SERVER_SIGNS)


def build_tool_prefix(name: str) -> str:
    """Return the prefix that the CLI adds to the tool names of this server."""
    return f"mcp__{wire_name(name)}__"


def split_servers(mcp_servers: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the server objects of this process by key, and the configurations of all servers for the CLI.

    Both are empty if `mcp_servers` is a path or JSON text, which is passed to the CLI unchanged.
    """
    instances: dict[str, Any] = {}
    configs: dict[str, Any] = {}
    for key, entry in mcp_servers.items() if isinstance(mcp_servers, Mapping) else ():
        if entry is None or isinstance(entry, str | int | float | list):
            configs[key] = entry  # the CLI ignores it; the user has been warned
        elif not isinstance(entry, Mapping):
            instances[key] = entry
            configs[key] = {"type": "sdk", "name": key, **_get_own_config(entry)}
        elif entry.get("type") == "sdk":
            if is_server(entry["instance"]):  # otherwise each message to it gets an error response
                instances[key] = entry["instance"]
            config = {name: value for name, value in entry.items() if name != "instance"}
            config = {**_get_own_config(entry["instance"]), **config}
            configs[key] = config if config.get("name") else {**config, "name": key}
        else:
            configs[key] = dict(entry)
    return instances, configs


def _get_own_config(server: Any) -> dict[str, Any]:
    """Return the entries that one of our servers adds to its configuration for the CLI."""
    config: dict[str, Any] = server.cli_config() if hasattr(server, "cli_config") else {}
    return config


def get_policies(server: Any) -> list[dict[str, Any]]:
    """Return the tools of one of our servers that always need permission, or never run."""
    tools: list[dict[str, Any]] = server.cli_policies() if hasattr(server, "cli_policies") else []
    return tools


def check_servers(mcp_servers: object) -> None:
    """Raise `OptionsError` for the first entry that cannot work."""
    if isinstance(mcp_servers, Mapping):
        prefixes: dict[str, str] = {}
        for name, entry in mcp_servers.items():
            _check_server(name, entry, prefixes)


def find_problems(servers: Mapping[str, Any]) -> dict[str, OptionsError]:
    """Return an error for each server that cannot work, by name."""
    prefixes: dict[str, str] = {}
    found = {}
    for name, entry in servers.items():
        try:
            _check_server(name, entry, prefixes)
        except OptionsError as error:
            found[name] = error
    return found


def can_be_sent(entry: object) -> bool:
    """True if this entry can be sent to the CLI, whether or not the CLI can use it."""
    if isinstance(entry, Mapping) and entry.get("type") == "sdk":
        return "instance" in entry and is_json({**entry, "instance": None})
    return is_server(entry) or is_json(entry)


def _check_server(name: Any, entry: object, prefixes: dict[str, str]) -> None:
    """Raise `OptionsError` if the entry cannot work. `prefixes` has the tool prefixes of earlier servers."""
    _check_name(name)
    other = prefixes.setdefault(build_tool_prefix(name), name)
    if other != name:
        _refuse(
            f"has two servers, {other!r} and {name!r}, whose tool names would both begin with "
            f"{build_tool_prefix(name)}; rename one"
        )
    if isinstance(entry, Mapping):
        _check_config(f"mcp_servers[{name!r}]", entry)
    else:
        _check_object(f"mcp_servers[{name!r}]", entry)


def _refuse(problem: str) -> NoReturn:
    refuse("mcp_servers", problem)


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        _refuse(f"has a key that is not a string: {name!r} ({type(name).__name__}); keys are server names")
    if not name.strip():
        _refuse(f"has an empty server name {name!r}; name the server")
    if _CONTROL.search(name):
        _refuse(f"has a server name with control characters: {name!r}; remove them")
    if name in _RESERVED:
        _refuse(f"has a server called {name!r}, which the CLI does not allow; rename it")


def _check_object(where: str, entry: object) -> None:
    if entry is None:
        refuse(where, "is None; use a config dict or a server object, or remove the entry")
    if not is_server(entry):
        refuse(
            where,
            f"is {_describe_type(entry)}, which is neither a config dict nor an MCP server object; "
            'use {"command": ...}, {"type": "http", "url": ...} or a ToolServer',
        )


def _check_config(where: str, config: Mapping[str, Any]) -> None:
    if "url" in config and not config.keys() & {"type", "command"}:
        refuse(where, 'has a "url" but no "type"; add "type": "http" or "type": "sse"')
    kind = config.get("type", "stdio")
    fields = _FIELDS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        refuse(where, f'has "type": {kind!r}; allowed are {", ".join(map(repr, _FIELDS))}')
    for field, (wanted, needed) in fields.items():
        if field in config:
            if not wanted.fits(config[field]):
                # The value itself is not shown: headers and environments contain secrets.
                refuse(f"{where}[{field!r}]", f"must be {wanted.wanted}, is {_describe_type(config[field])}")
        elif needed:
            refuse(where, f"is of type {kind!r} and needs {field!r}, {wanted.wanted}")
    if not is_json({key: value for key, value in config.items() if key != "instance"}):
        refuse(where, "contains a value that cannot be written as JSON, so it cannot be sent to the CLI")


def _describe_type(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"


_SOME_TEXT = Kind(("a non-empty string",), lambda value: isinstance(value, str) and bool(value.strip()))
_REMOTE = {"url": (_SOME_TEXT, True), "headers": (TEXT_BY_NAME, False)}
_FIELDS: dict[str, dict[str, tuple[Kind, bool]]] = {
    "stdio": {"command": (_SOME_TEXT, True), "args": (ORDERED_TEXTS, False), "env": (TEXT_BY_NAME, False)},
    "sse": _REMOTE,
    "http": _REMOTE,
    "streamable-http": _REMOTE,
    "ws": _REMOTE,
    "sdk": {"instance": (Kind(("an MCP server object",), is_server), True), "name": (TEXT | NOTHING, False)},
}
