"""Checks single values, with errors that name the option, its value, and what to do.

The kind of a value follows from the field's annotation; the `check` of an option looks inside the value. An error
here is not final: `resolve` then looks for another form that the value may stand for. Only `check_paths` looks at
the file system. Must not know what an option is for, nor how it reaches the CLI.
"""

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field, fields
from functools import cache
from pathlib import Path
from types import GenericAlias, NoneType, UnionType
from typing import Any, Literal, NamedTuple, NoReturn, Union, get_args, get_origin, is_typeddict

from toolwire.errors import CLIConnectionError, OptionsError
from toolwire.hooks.events import HookEvent
from toolwire.options.types import AgentDefinition, ThinkingDisplay
from toolwire.sessions.types import implements

Check = Callable[[str, Any], None]
"""`(option, value)`: raises `OptionsError` if the value of that option cannot work. The value is never None."""

_LONGEST_SHOWN = 100


def check_paths(options: Any) -> None:
    """Raise `CLIConnectionError` if the working directory does not exist. Called when connecting."""
    if not options.cwd:
        return
    cwd = Path(options.cwd)
    if not cwd.exists():
        raise CLIConnectionError(f"Working directory does not exist: {cwd}")
    if not cwd.is_dir():
        raise CLIConnectionError(f"Working directory is not a directory: {cwd}")


def refuse(option: str, problem: str) -> NoReturn:
    """Raise `OptionsError`; `option` may name a part of an option, as in `plugins[0]`."""
    text = f"ClaudeAgentOptions.{option} {problem}"
    raise OptionsError(text if text.endswith("?") else f"{text}.", option=option.partition("[")[0])


# --- the kind of a value ----------------------------------------------------------------------------------


class Kind(NamedTuple):
    """A kind of value: a test for values, and the words that describe it in error messages."""

    words: tuple[str, ...]
    """The alternatives in words: "a string", "None"."""
    fits: Callable[[Any], bool]
    plurals: tuple[str, ...] = ()
    """The alternatives in the plural, for a list or a dict of them."""
    literals: tuple[str, ...] = ()
    """The strings that are allowed, if only some are."""
    item: "Kind | None" = None
    """The kind of the items of a list or a dict."""
    secret: bool = False
    """True: errors do not show the value."""

    @property
    def wanted(self) -> str:
        """The values that fit, in words: "a string, a dict or None"."""
        return _enumerate(self.words)

    def __or__(self, other: "Kind") -> "Kind":
        return Kind(
            self.words + other.words,
            lambda value: self.fits(value) or other.fits(value),
            self.plurals + other.plurals,
            self.literals + other.literals,
            self.item or other.item,
        )


def _enumerate(words: Iterable[str]) -> str:
    """Join words as in "a, b or c", each once."""
    *most, last = dict.fromkeys(words)
    return f"{', '.join(most)} or {last}" if most else last


def one_of(*names: str) -> Kind:
    """Return the kind for one of these strings."""
    words = tuple(map(repr, names))
    return Kind(words, lambda value: isinstance(value, str) and value in names, words, literals=names)


def many(item: Kind, *, ordered: bool = False) -> Kind:
    """Return the kind for a list of such items. Sets are accepted too, unless `ordered` is True.

    Pass that if the order matters or the list is sent as JSON.
    """
    types = (list, tuple) if ordered else (list, tuple, set, frozenset)
    return Kind(
        (f"a list of {_enumerate(item.plurals)}",),
        lambda value: isinstance(value, types) and all(map(item.fits, value)),
        literals=item.literals,
        item=item,
    )


def by_name(item: Kind) -> Kind:
    """Return the kind for a dict of such items, with strings as keys."""
    return Kind(
        (f"a dict of {_enumerate(item.plurals)}",),
        lambda value: (
            isinstance(value, Mapping)
            and all(isinstance(key, str) for key in value)
            and all(map(item.fits, value.values()))
        ),
        item=item,
    )


def is_json(value: object) -> bool:
    """True if a value can be sent to the CLI as JSON; NaN and infinity are not JSON."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


NOTHING = Kind(("None",), lambda value: value is None, ("None",))
ANYTHING = Kind(("anything",), lambda _: True, ("anything",))
TEXT = Kind(("a string",), lambda value: isinstance(value, str), ("strings",))
FLAG = Kind(("True", "False"), lambda value: isinstance(value, bool), ("booleans",))
WHOLE = Kind(
    ("a whole number",),
    lambda value: isinstance(value, int) and not isinstance(value, bool),
    ("whole numbers",),
)
NUMBER = Kind(
    ("a number",),
    lambda value: isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value),
    ("numbers",),
)
PATH = Kind(("a path (string or Path)",), lambda value: isinstance(value, str | os.PathLike), ("paths",))
FUNCTION = Kind(("a function",), callable, ("functions",))
DICT = Kind(("a dict",), lambda value: isinstance(value, Mapping), ("dicts",))
JSON_DICT = Kind(
    ("a dict of JSON values",),
    lambda value: isinstance(value, Mapping) and is_json(value),
    ("dicts of JSON values",),
)
TEXTS = many(TEXT)
ORDERED_TEXTS = many(TEXT, ordered=True)
TEXT_BY_NAME = by_name(TEXT)

_KINDS: dict[Any, Kind] = {
    Any: ANYTHING,
    NoneType: NOTHING,
    bool: FLAG,
    int: WHOLE,
    float: NUMBER,
    str: TEXT,
    Path: PATH,
    dict[str, Any]: JSON_DICT,
    dict[str, str]: TEXT_BY_NAME,
}


def kind_of(annotation: Any, *, ordered: bool = False) -> Kind:
    """Return the kind of value that an annotation allows; `ordered` as in `many`."""
    if isinstance(annotation, GenericAlias | type) and (known := _KINDS.get(annotation)):
        return known
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is UnionType or origin is Union:
        # PATH accepts strings too.
        members = [each for each in arguments if each is not str or Path not in arguments]
        kinds = [kind_of(each, ordered=ordered) for each in members]
        united = kinds[0]
        for kind in kinds[1:]:
            united |= kind
        return united
    if origin is Literal:
        return one_of(*arguments)
    if origin is list:
        return many(kind_of(arguments[0], ordered=ordered), ordered=ordered)
    if origin is dict or is_typeddict(annotation) or _is_class(annotation, Mapping):
        return DICT
    return FUNCTION if origin is Callable else ANYTHING


def _is_class(annotation: Any, base: type) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, base)


def check_kind(option: str, value: object, kind: Kind) -> None:
    """Raise `OptionsError` unless the value is of this kind."""
    if not kind.fits(value):
        why = _describe_item(value, kind) + _suggest(option, value, kind)
        refuse(option, f"must be {kind.wanted}, got {describe(value, secret=kind.secret)}{why}")


def describe(value: object, *, secret: bool = False) -> str:
    """Describe a value for an error message, cut short; with `secret`, by its type only."""
    type_name = type(value).__name__
    if secret and not isinstance(value, bool | int | float | None):
        return f"a value of type {type_name}"
    text = repr(value)
    shown = text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."
    return f"{shown} ({type_name})"


def _describe_item(value: object, kind: Kind) -> str:
    """Describe the first item of a list or a dict that is of the wrong kind."""
    if kind.item is None or not isinstance(value, Mapping | list | tuple):
        return ""
    for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
        if isinstance(value, Mapping) and not isinstance(key, str):
            return f" whose key {key!r} is not a string"
        if not kind.item.fits(item):
            wrong = item if kind.literals and isinstance(item, str) else type(item)
            return f" whose item {key!r} is {wrong!r}"
    return ""


def _suggest(option: str, value: object, kind: Kind) -> str:
    """Suggest a fix if one can be guessed."""
    if isinstance(value, str) and len(value) < _LONGEST_SHOWN and kind.fits([value]):
        return f". Did you mean [{value!r}]?"
    if option == "mcp_servers" and (hasattr(value, "connect") or isinstance(value, list | tuple)):
        servers = value if isinstance(value, list | tuple) else [value]
        names = [getattr(each, "name", None) for each in servers] or ["name"]
        shown = ", ".join(f'"{name if isinstance(name, str) else "name"}": ...' for name in names[:3])
        return f". Each server needs a name: {{{shown}}}"
    if option == "extra_args" and isinstance(value, Mapping) and any(map(FLAG.fits, value.values())):
        return "; for a flag without a value, use None"
    words = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
    for word in words if kind.literals else []:
        import difflib  # noqa: PLC0415 - only a mistake needs it

        near = difflib.get_close_matches(str(word), kind.literals, n=1, cutoff=0.5)
        if near and word not in kind.literals:
            return f". Did you mean {near[0]!r}?"
    return ""


def find_fields(record: type) -> tuple[Field[Any], ...]:
    """Return the fields of one of our dataclasses; for a user's subclass, the fields of our class.

    A subclass that changes a default replaces the field, and would lose the metadata of `option()`.
    """
    ours = next((base for base in record.__mro__ if base.__module__.startswith("toolwire.")), record)
    return fields(ours)


def kinds_of(record: type, *, ordered: bool = False) -> dict[str, Kind]:
    """Return the kind of each field of a dataclass: the one passed to `option()`, else that of its annotation."""
    kinds = {}
    for field in find_fields(record):
        kind = field.metadata.get("kind") or kind_of(field.type, ordered=ordered)
        kinds[field.name] = kind._replace(secret=field.metadata.get("secret", False))
    return kinds


def iterate_texts(value: object) -> Iterator[str]:
    """Yield all strings in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, os.PathLike):
        yield os.fspath(value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from iterate_texts(key)
            yield from iterate_texts(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from iterate_texts(item)


# --- the inside of single values --------------------------------------------------------------------------


def at_least(least: float) -> Check:
    """Return a check that a number is not below `least`."""

    def check_number(option: str, value: float) -> None:
        if value < least:
            refuse(option, f"must be at least {least}, got {value}")

    return check_number


def more_than(least: float, *, finite: bool = False) -> Check:
    """Return a check that a number is above `least`."""

    def check_number(option: str, value: float) -> None:
        if value <= least:
            refuse(option, f"must be more than {least}, got {value}; leave it unset for the default")
        if finite and math.isinf(value):
            refuse(option, f"must be a finite number, got {value}; leave it unset for no limit")

    return check_number


def _check_key(option: str, value: Mapping[str, Any], key: str, kind: Kind, *, needed: bool = False) -> None:
    """Check one key of a dict."""
    if key in value:
        check_kind(f"{option}[{key!r}]", value[key], kind)
    elif needed:
        refuse(option, f"needs {key!r}, {kind.wanted}; it has {', '.join(map(repr, value)) or 'no keys'}")


_CLAUDE_CODE = one_of("claude_code")
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
_DISPLAY = kind_of(ThinkingDisplay)
_THINKING: dict[str, dict[str, tuple[Kind, bool]]] = {
    "adaptive": {"display": (_DISPLAY, False)},
    "enabled": {"budget_tokens": (WHOLE, True), "display": (_DISPLAY, False)},
    "disabled": {},
}


def _check_by_type(option: str, value: Mapping[str, Any], types: Mapping[str, Any]) -> None:
    """Check a dict whose `type` says which other keys it has."""
    _check_key(option, value, "type", one_of(*types), needed=True)
    for key, (kind, needed) in types[value["type"]].items():
        _check_key(option, value, key, kind, needed=needed)


def check_system_prompt(option: str, value: object) -> None:
    """Check the keys of a system prompt that is a dict."""
    if isinstance(value, Mapping):
        _check_by_type(option, value, _SYSTEM_PROMPTS)


def check_tools(option: str, value: object) -> None:
    """Check the keys of a tools preset."""
    if isinstance(value, Mapping):
        _check_key(option, value, "type", one_of("preset"), needed=True)
        _check_key(option, value, "preset", _CLAUDE_CODE)


def check_thinking(option: str, value: Mapping[str, Any]) -> None:
    """Check the keys of a thinking configuration."""
    _check_by_type(option, value, _THINKING)


def check_task_budget(option: str, value: Mapping[str, Any]) -> None:
    """Check that the total is present and above zero."""
    _check_key(option, value, "total", WHOLE, needed=True)
    if value["total"] <= 0:
        refuse(f"{option}['total']", f"must be more than 0, got {value['total']}")


def check_output_format(option: str, value: Mapping[str, Any]) -> None:
    """Check that a schema is wrapped as the CLI expects it."""
    want = '{"type": "json_schema", "schema": {...}}'
    if value.get("type") != "json_schema":
        hint = "; this looks like the schema itself" if "properties" in value else ""
        refuse(option, f'must be {want}, got a dict with "type": {value.get("type")!r}{hint}')
    if not isinstance(value.get("schema"), Mapping):
        refuse(option, f'must be {want}; its "schema" is a {type(value.get("schema")).__name__}')


def check_plugins(option: str, value: list[Mapping[str, Any]]) -> None:
    """Check the keys of each plugin."""
    for number, plugin in enumerate(value):
        _check_key(f"{option}[{number}]", plugin, "type", one_of("local"), needed=True)
        _check_key(f"{option}[{number}]", plugin, "path", PATH, needed=True)
        _check_key(f"{option}[{number}]", plugin, "skipMcpDiscovery", FLAG)


def check_session_id(option: str, value: str) -> None:
    """Check that it is empty or a UUID."""
    if value and not re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", value):
        refuse(option, f"must be a UUID, got {value!r}; make one with str(uuid.uuid4())")


def check_session_store(option: str, value: object) -> None:
    """Check that it has the two methods that every store needs."""
    missing = [name for name in ("append", "load") if not implements(value, name)]
    if missing:
        refuse(option, f"needs the method {missing[0]}(), which {describe(value)} does not have")


def check_env(option: str, value: Mapping[str, str]) -> None:
    """Check the names of the variables."""
    for name in value:
        if "=" in name:
            refuse(option, f"has a variable called {name!r}; a name must not contain '='")


def check_extra_args(option: str, value: Mapping[str, Any]) -> None:
    """Check the names of the flags."""
    for name in value:
        bare = name.lstrip("-")
        if not bare:
            refuse(option, f"has a flag called {name!r}, which has no name; write the name of a flag")
        if bare != name:
            refuse(option, f"has {name!r}: flags are named without --, so write {bare!r}")


def check_client_app(option: str, value: str) -> None:
    """Check that an application name can be sent in an HTTP header."""
    if re.search(r"[^\x20-\x7e\x80-\xff]", value):
        refuse(option, f"has characters that an HTTP header cannot contain: {value!r}; remove them")


EVENTS: frozenset[str] = frozenset(get_args(HookEvent))
"""The hook events that toolwire knows."""
_MATCHER_KINDS = {
    "matcher": TEXT | NOTHING,
    "hooks": many(FUNCTION),
    "timeout": NUMBER | NOTHING,
    # The CLI treats an unknown word as "block".
    "on_failure": one_of("continue", "block") | NOTHING,
}


def check_hooks(option: str, value: Mapping[Any, Any], *, any_event: bool = False) -> None:
    """Check that each event is known and has a list of matchers, and the fields of each matcher."""
    for event, matchers in value.items():
        if not isinstance(event, str):
            refuse(option, f"has a key that is not a string: {event!r}; keys are events such as 'PreToolUse'")
        where = f"{option}[{event!r}]"
        if not isinstance(matchers, list | tuple):
            refuse(where, f"must be a list of HookMatcher, got {describe(matchers)}")
        for matcher in matchers:
            if not hasattr(matcher, "hooks"):
                refuse(where, f"has {describe(matcher)}; wrap functions: HookMatcher(hooks=[function])")
            for key, kind in _MATCHER_KINDS.items():
                if hasattr(matcher, key):
                    check_kind(f"{where}.{key}", getattr(matcher, key), kind)
    unknown = [] if any_event else [event for event in value if event not in EVENTS]
    if unknown:
        refuse(option, f"has the unknown event {unknown[0]!r}")


def check_agents(option: str, value: Mapping[Any, Any]) -> None:
    """Check the name and the fields of each agent."""
    for name, agent in value.items():
        if not isinstance(name, str) or not name.strip():
            refuse(option, f"has {name!r} as an agent's name; a name must be a non-empty string")
        where = f"{option}[{name!r}]"
        if isinstance(agent, Mapping) or not hasattr(agent, "__dataclass_fields__"):
            hint = "; write AgentDefinition(**...)" if isinstance(agent, Mapping) else ""
            refuse(where, f"must be an AgentDefinition, got a {type(agent).__name__}{hint}")
        for key, kind in agent_kinds().items():
            if hasattr(agent, key):
                check_kind(f"{where}.{key}", getattr(agent, key), kind)


@cache
def agent_kinds() -> dict[str, Kind]:
    """Return the kinds of an agent's fields. They are sent as JSON, so sets are not accepted as lists."""
    kinds = kinds_of(AgentDefinition, ordered=True)
    return {**kinds, "mcpServers": kinds["mcpServers"]._replace(secret=True)}


def check_tool_config(option: str, value: Mapping[str, Any]) -> None:
    """Check the settings of the tool that asks the user."""
    where = f"{option}['askUserQuestion']"
    question = value.get("askUserQuestion")
    check_kind(where, question, JSON_DICT | NOTHING)
    _check_key(where, question or {}, "previewFormat", one_of("markdown", "html"))


def check_absolute(option: str, value: str | os.PathLike[str]) -> None:
    """Check that a path is absolute."""
    if not Path(value).is_absolute():
        refuse(option, f"must be an absolute path, got {os.fspath(value)!r}")


# --- names of skills ------------------------------------------------------------------------------------------

# A skill is allowed by a `Skill(name)` rule. The CLI splits its list of rules at commas and spaces, supports no
# escapes there, and trims names. A name that it would interpret differently is rejected: its rule would allow
# nothing or something else.
_SKILL_NAME_PROBLEMS: tuple[tuple[Callable[[str], object], str], ...] = (
    (lambda name: not name.strip(), "a name must not be empty"),
    (lambda name: re.search("[\ud800-\udfff]", name), "a name cannot contain half of a surrogate pair"),
    (lambda name: name != name.strip(), "spaces around a name never match; remove them"),
    (
        lambda name: re.search("[(),\x00-\x1f\x7f-\x9f\ufeff]", name),
        "a name cannot contain parentheses, commas or control characters",
    ),
    (lambda name: name == "*", 'for every skill, write skills="all"'),
    (
        lambda name: name.endswith((":*", " *")),
        "wildcards are not allowed; list each skill by its exact name",
    ),
    (lambda name: name.startswith("/"), "write the name without the slash of the command"),
    (lambda name: "\\\\" in name, "two backslashes in a row would be read as one"),
    (lambda name: name.endswith("\\"), "a backslash at the end would be read as an escape"),
)
SKILLS = (
    Kind(("a list of skill names",), lambda value: isinstance(value, list))
    | Kind(("'all'",), lambda value: value == "all")
    | NOTHING
)


def check_skills(option: str, value: object) -> None:
    """Check each name in a list of skills."""
    for name in value if isinstance(value, list) else ():
        if problem := find_skill_name_problem(name):
            refuse(option, f"has {name!r}: {problem}")


def find_skill_name_problem(name: object) -> str | None:
    """Return why this cannot be the name of a skill; None if it can."""
    if not isinstance(name, str):
        return f"a name must be a string, not a {type(name).__name__}"
    return next((problem for wrong, problem in _SKILL_NAME_PROBLEMS if wrong(name)), None)
