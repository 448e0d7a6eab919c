"""Converts values to their documented form, where `claude_agent_sdk` and the CLI accept another form too.

Loaded when a value has failed its checks. Each function knows other forms of some values. Where the author may have
meant something else, it adds a warning that says how the value is interpreted. Its result is checked again.
"""

import copy
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, fields, is_dataclass
from typing import Any, Final, NamedTuple

from toolwire._support.words import closest, did_you_mean
from toolwire.errors import OptionsError
from toolwire.hooks import HookMatcher
from toolwire.options.checks import EVENTS, check_agents, check_hooks, is_json
from toolwire.options.mcp_servers import can_be_sent, find_problems

_LONGEST_SHOWN: Final = 100


class Repair(NamedTuple):
    """A value in its documented form. The warnings follow the option's name and say how it was interpreted."""

    value: Any
    warnings: tuple[str, ...] = ()
    final: bool = False
    """True: the value is passed to the CLI, which decides about it, so it is not checked again."""


def _repair(value: Any, warning: str) -> Repair:
    """Return a repair with one warning, or without one if the text is empty."""
    return Repair(value, (warning,) if warning else ())


def find_repairs(option: str, value: Any, literals: tuple[str, ...]) -> Iterator[Repair]:
    """Yield the values that a value may stand for, the most likely first; `literals` are the allowed strings."""
    own = _REPAIRS.get(option)
    if own is not None:
        yield from own(value)
        return
    if isinstance(value, str):
        yield from _read_text(value, literals)
    elif isinstance(value, os.PathLike):
        yield Repair(os.fspath(value))
        yield _repair([value], f"is one path and counts as [{_show(os.fspath(value))}]; write a list")
    elif not isinstance(value, bool):
        yield from _read_number(value)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        items = list(value)
        yield Repair(items)
        unknown = [item for item in items if isinstance(item, str) and item not in literals]
        if literals and unknown and all(isinstance(item, str) for item in items):
            yield _leave_to_cli(items, unknown[0], literals)
    try:
        yield _repair(bool(value), _explain_truth(value))
    except Exception:  # noqa: BLE001 - the code of the value's own class
        return


def _read_text(text: str, literals: tuple[str, ...]) -> Iterator[Repair]:
    """Interpret a string as a number in quotes, as one item of a list, or as a word of a newer CLI."""
    for read in (int, float):
        with suppress(ValueError):
            yield Repair(read(text))
    if not text:
        yield Repair([])
        yield Repair("", final=bool(literals))
    else:
        yield _repair([text], f"is a string and counts as [{_show(text)}]; write a list")
        if literals:
            yield _leave_to_cli(text, text, literals)


def _read_number(value: Any) -> Iterator[Repair]:
    """Interpret a float as a whole number, and an object of a number class (Decimal, numpy) as a number."""
    for read in (int, float):
        with suppress(Exception):  # the code of the value's own class
            number = read(value)
            if number == value:
                yield Repair(number)


def _leave_to_cli(value: Any, word: str, literals: tuple[str, ...]) -> Repair:
    by_lower = {each.lower(): each for each in literals}
    near = closest(word.lower(), by_lower, cutoff=0.5)
    hint = f". Did you mean {by_lower[near]!r}?" if near else ""
    text = f"has {_show(word)}, which toolwire does not know, and is passed to the CLI unchanged; known are"
    return Repair(value, (f"{text} {', '.join(map(repr, literals))}{hint}",), final=True)


def _explain_truth(value: Any) -> str:
    if not isinstance(value, str) or not value:
        return ""
    return f"is the string {_show(value)} and counts as True; write True or False"


def _show(value: Any) -> str:
    """Return a value's repr for a warning, cut if it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."


def _to_warning(error: OptionsError, option: str) -> str:
    """Return the text of an error as a warning, for a value that the CLI decides about."""
    problem = str(error).removeprefix(f"ClaudeAgentOptions.{option}").strip()
    return f"{problem} It is passed to the CLI unchanged, which ignores what it cannot use"


# --- single options -------------------------------------------------------------------------------------------


def _spell_identifier(value: Any) -> Iterator[Repair]:
    if isinstance(value, uuid.UUID | int) and not isinstance(value, bool):
        yield Repair(str(value))


_PROMPT_KEYS: Final = ("prompt", "text", "content", "value")
_DOCUMENTED_PROMPTS: Final = (
    'a string, {"type": "preset", "preset": "claude_code"} or {"type": "custom", "prompt": ...}'
)


def _read_system_prompt(value: Any) -> Iterator[Repair]:
    """Interpret a dict of an unknown form as the text in it, or as the preset, as the CLI does."""
    if not isinstance(value, Mapping):
        return
    kind = value.get("type")
    if kind not in ("custom", "file", "preset") or (kind == "custom" and "prompt" not in value):
        text = next((value[key] for key in _PROMPT_KEYS if isinstance(value.get(key), str)), None)
        if text is not None:
            warning = (
                f"has the type {_show(kind)} and counts as the prompt in it; write {_DOCUMENTED_PROMPTS}"
            )
            yield _repair({"type": "custom", "prompt": text}, warning)
    if kind in ("custom", "file"):
        return
    kept = {key: each for key, each in value.items() if key == "append" and each is not None}
    for key in ("exclude_dynamic_sections", "snapshot"):
        if isinstance(value.get(key), bool):
            kept[key] = value[key]
    repaired = {"type": "preset", "preset": "claude_code", **kept}
    same = all(
        each is None or key in repaired for key, each in value.items() if key not in ("type", "preset")
    )
    plain = kind == "preset" and value.get("preset", "claude_code") == "claude_code" and same
    warning = f"counts as the preset, Claude Code's own prompt; write {_DOCUMENTED_PROMPTS}"
    yield _repair(repaired, "" if plain else warning)


def _read_thinking(value: Any) -> Iterator[Repair]:
    if not isinstance(value, Mapping) or "type" not in value:
        return
    kept = {key: each for key, each in value.items() if key != "display" or each is not None}
    if kept["type"] not in ("adaptive", "enabled", "disabled"):
        known = "'adaptive', 'enabled' or 'disabled'"
        yield _repair(None, f"has the type {kept['type']!r}, which has no effect; write {known}")
        return
    for number in _read_number(kept.get("budget_tokens")):
        kept["budget_tokens"] = number.value
        break
    else:
        if isinstance(kept.get("budget_tokens"), str) and kept["budget_tokens"].isdigit():
            kept["budget_tokens"] = int(kept["budget_tokens"])
    yield Repair(kept)
    if isinstance(display := kept.get("display"), str):
        yield _leave_to_cli(kept, display, ("summarized", "omitted"))


def _read_task_budget(value: Any) -> Iterator[Repair]:
    if isinstance(value, Mapping) and not isinstance(value.get("total"), bool):
        text = value.get("total")
        numbers = _read_text(text, ()) if isinstance(text, str) else _read_number(text)
        yield from (Repair({**value, "total": number.value}) for number in numbers)


def _read_output_format(value: Any) -> Iterator[Repair]:
    want = '{"type": "json_schema", "schema": {...}}'
    if isinstance(value, Mapping) and value.get("schema") is None:
        nested = value.get("json_schema")
        inner = nested.get("schema", nested) if isinstance(nested, Mapping) else None
        if isinstance(inner, Mapping):
            yield _repair(
                {"type": "json_schema", "schema": inner}, f"has its schema in another place; write {want}"
            )
        if value.keys() & {"properties", "$ref", "$defs", "anyOf", "items"}:
            yield _repair(
                {"type": "json_schema", "schema": value}, f"counts as the schema itself; write {want}"
            )
    if not isinstance(value, Mapping) or value.get("type") != "json_schema" or value.get("schema") is None:
        yield _repair(None, f"has no effect: it is not {want}")


def _read_tools(value: Any) -> Iterator[Repair]:
    if isinstance(value, str) and value:
        yield _repair([value], f"is a string and counts as [{_show(value)}]; write a list")
    elif isinstance(value, Mapping | bool | str):
        warning = f"is {_show(value)} and counts as all built-in tools; write None or a list of names"
        yield _repair({"type": "preset", "preset": "claude_code"}, warning)
    elif isinstance(value, Iterable):
        yield Repair(list(value))


def _read_env(value: Any) -> Iterator[Repair]:
    if isinstance(value, Mapping):
        able = (bytes, os.PathLike)
        yield Repair({name: os.fsdecode(it) if isinstance(it, able) else it for name, it in value.items()})


def _read_stderr(value: Any) -> Iterator[Repair]:
    if callable(write := getattr(value, "write", None)):
        warning = "is a file; each line is written to it. Use a function: lambda line: print(line, file=file)"
        yield _repair(lambda line: write(line + "\n"), warning)
    else:
        yield _repair(None, "is not a function and is ignored; use a function that takes a line")


def _read_plugins(value: Any) -> Iterator[Repair]:
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        plugins = list(value)
        if all(isinstance(plugin, Mapping) for plugin in plugins):
            key = "skipMcpDiscovery"
            yield Repair([{**each, key: bool(each[key])} if key in each else each for each in plugins])


def _read_extra_args(value: Any) -> Iterator[Repair]:
    """Interpret True as a flag without a value and False as no flag; other values are converted to strings."""
    if not isinstance(value, Mapping):
        return
    kept: dict[Any, Any] = {}
    warnings = []
    for name, given in value.items():
        if isinstance(given, bool):
            effect = "has no value; write None" if given else "is left out"
            warnings.append(f"[{name!r}] is {given} and the flag {effect}")
        if given is not False:
            kept[name] = None if given is True or given is None else str(given)
    yield Repair(kept, tuple(warnings))


def _read_hooks(value: Any) -> Iterator[Repair]:
    """Keep events that only another CLI may know, and convert a function or a dict to its `HookMatcher`."""
    if not isinstance(value, Mapping):
        if value == []:
            yield Repair(None)
        return
    repaired: dict[str, Any] = {}
    warnings: list[str] = []
    for event, matchers in value.items():
        name = event if isinstance(event, str) else str(event)
        if name not in EVENTS:
            hint = did_you_mean(name, EVENTS, cutoff=0.8)
            text = f"has the event {name!r}, which toolwire does not know: a CLI that does not know it either"
            warnings.append(f"{text} never calls its hooks{hint and f'.{hint}'}")
        listed = matchers if isinstance(matchers, list | tuple) else None
        repaired[name] = (
            matchers if listed is None else [_read_matcher(name, each, warnings) for each in listed]
        )
    try:
        check_hooks("hooks", repaired, any_event=True)
    except OptionsError:
        return
    yield Repair(repaired, tuple(warnings), final=True)


def _read_matcher(event: str, given: Any, warnings: list[str]) -> Any:
    if callable(given) and not hasattr(given, "hooks"):
        warnings.append(f"[{event!r}] has a function; write HookMatcher(hooks=[function])")
        return HookMatcher(hooks=[given])
    if isinstance(given, Mapping) and given.keys() <= {field.name for field in fields(HookMatcher)}:
        warnings.append(f"[{event!r}] has a dict; write HookMatcher(...)")
        given = HookMatcher(**given)
    if not hasattr(given, "hooks"):
        return given
    read = HookMatcher(getattr(given, "matcher", None), given.hooks)
    read.timeout = _read_timeout(getattr(given, "timeout", None))
    read.on_failure = getattr(given, "on_failure", None)
    if isinstance(read.on_failure, str) and read.on_failure not in ("continue", "block"):
        warnings.append(
            f"[{event!r}] has on_failure={_show(read.on_failure)}, which counts as 'block'; write that"
        )
        read.on_failure = "block"
    return read


def _read_timeout(value: Any) -> Any:
    if isinstance(value, str):
        return next((it.value for it in _read_text(value, ()) if isinstance(it.value, int | float)), value)
    return int(value) if isinstance(value, bool) else value


def _read_agents(value: Any) -> Iterator[Repair]:
    """Pass the fields of an agent to the CLI unchanged: another version of the CLI may know other words."""
    if not isinstance(value, Mapping):
        if value == []:
            yield Repair(None)
        return
    repaired: dict[str, Any] = {}
    warnings: list[str] = []
    agents: dict[Any, Any] = dict(value)
    for name, agent in agents.items():
        if isinstance(agent, type) or not is_dataclass(agent):
            return
        changes: dict[str, Any] = {}
        for key in ("tools", "disallowedTools", "skills"):
            if isinstance(text := getattr(agent, key, None), str):
                changes[key] = [text]
                warnings.append(f"[{name!r}].{key} is a string and counts as [{_show(text)}]; write a list")
        repaired[str(name)] = copy.copy(agent)
        for key, each in changes.items():
            setattr(repaired[str(name)], key, each)
    yield Repair(repaired, tuple(warnings))
    try:
        check_agents("agents", repaired)
    except OptionsError as error:
        warnings.append(_to_warning(error, "agents"))
    wire = {name: asdict(agent) for name, agent in repaired.items()}
    if is_json(wire):
        yield Repair(repaired, tuple(warnings), final=True)


def _read_servers(value: Any) -> Iterator[Repair]:
    """Pass servers to the CLI even if it may not accept them: it ignores such a server and continues without it."""
    if not isinstance(value, Mapping):
        if not value:
            yield Repair({})
        return
    warnings: list[str] = []
    repaired: dict[str, Any] = {}
    if list(value) == ["mcpServers"] and isinstance(value["mcpServers"], Mapping):
        warnings.append('is a whole configuration and counts as the servers in it; leave out "mcpServers"')
        value = value["mcpServers"]
    for name, entry in value.items():
        repaired[str(name)] = _read_server(name, entry, warnings) if isinstance(entry, Mapping) else entry
    yield Repair(repaired, tuple(warnings))
    errors = find_problems(repaired)
    if all(can_be_sent(repaired[name]) for name in errors):
        warnings += [_to_warning(error, "mcp_servers") for error in errors.values()]
        yield Repair(repaired, tuple(warnings), final=True)


def _read_server(name: Any, config: Mapping[str, Any], warnings: list[str]) -> dict[str, Any]:
    kept = {key: each for key, each in config.items() if each is not None or key == "instance"}
    if isinstance(kept.get("url"), str) and not kept.keys() & {"type", "command"}:
        warnings.append(f'[{name!r}] has a "url" and no "type", and counts as "http"; write that, or "sse"')
        kept["type"] = "http"
    return kept


def _accept_anything(value: Any) -> Iterator[Repair]:
    """Accept any value, as the official SDK does: it has no effect without a session store."""
    yield Repair(value, final=True)


def _read_load_timeout(value: Any) -> Iterator[Repair]:
    yield from _read_text(value, ()) if isinstance(value, str) else _read_number(value)
    yield from _accept_anything(value)


_REPAIRS: Final[dict[str, Callable[[Any], Iterator[Repair]]]] = {
    "system_prompt": _read_system_prompt,
    "thinking": _read_thinking,
    "task_budget": _read_task_budget,
    "output_format": _read_output_format,
    "tools": _read_tools,
    "env": _read_env,
    "stderr": _read_stderr,
    "extra_args": _read_extra_args,
    "hooks": _read_hooks,
    "agents": _read_agents,
    "mcp_servers": _read_servers,
    "plugins": _read_plugins,
    "skills": lambda _: iter(()),  # the official SDK rejects other forms too
    "session_store_flush": _accept_anything,
    "load_timeout_ms": _read_load_timeout,
    **dict.fromkeys(("resume", "session_id", "resume_session_at", "resume_drops_turn"), _spell_identifier),
}
