"""Puts options into their documented form, where `claude_agent_sdk` and the CLI take another one too.

Loaded when a value has failed its checks. Each function knows the other forms of some values, and says what was
made of them where the author may have meant something else. What it returns is checked again.
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
from toolwire.options.mcp_servers import can_be_named, find_problems

_LONGEST_SHOWN: Final = 100


class Repair(NamedTuple):
    """A value in another form. The warnings, put after the option's name, say what it stands for."""

    value: Any
    warnings: tuple[str, ...] = ()
    final: bool = False
    """True: the CLI decides about this value, so it is not checked again."""


def _tell(value: Any, warning: str) -> Repair:
    """A repair with one warning, or with none if that is empty."""
    return Repair(value, (warning,) if warning else ())


def find_repairs(option: str, value: Any, literals: tuple[str, ...]) -> Iterator[Repair]:
    """Yield the forms that a value may stand for, the most likely first; `literals` are the words it can be."""
    own = _REPAIRS.get(option)
    if own is not None:
        yield from own(value)
        return
    if isinstance(value, str):
        yield from _read_text(value, literals)
    elif isinstance(value, os.PathLike):
        yield Repair(os.fspath(value))
        yield _tell([value], f"is one path and counts as [{_show(os.fspath(value))}]; write a list")
    elif not isinstance(value, bool):
        yield from _read_number(value)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        items = list(value)
        yield Repair(items)
        unknown = [item for item in items if isinstance(item, str) and item not in literals]
        if literals and unknown and all(isinstance(item, str) for item in items):
            yield _leave_to_cli(items, unknown[0], literals)
    try:
        yield _tell(bool(value), _explain_truth(value))
    except Exception:  # noqa: BLE001 - the code of the value's own class
        return


def _read_text(text: str, literals: tuple[str, ...]) -> Iterator[Repair]:
    """A string may be a number in quotes, one item of a list, or a word of a newer CLI."""
    for read in (int, float):
        with suppress(ValueError):
            yield Repair(read(text))
    if not text:
        yield Repair([])
        yield Repair("", final=bool(literals))
    else:
        yield _tell([text], f"is a string and counts as [{_show(text)}]; write a list")
        if literals:
            yield _leave_to_cli(text, text, literals)


def _read_number(value: Any) -> Iterator[Repair]:
    """A whole number may come as a float, and any number in a class of its own (Decimal, numpy)."""
    for read in (int, float):
        with suppress(Exception):  # the code of the value's own class
            number = read(value)
            if number == value:
                yield Repair(number)


def _leave_to_cli(value: Any, word: str, literals: tuple[str, ...]) -> Repair:
    by_lower = {each.lower(): each for each in literals}
    near = closest(word.lower(), by_lower, cutoff=0.5)
    hint = f". Did you mean {by_lower[near]!r}?" if near else ""
    text = f"has {_show(word)}, which toolwire does not know, and goes to the CLI as it is; known are"
    return Repair(value, (f"{text} {', '.join(map(repr, literals))}{hint}",), final=True)


def _explain_truth(value: Any) -> str:
    told = isinstance(value, str) and value
    return f"is the string {_show(value)} and counts as True; write True or False" if told else ""


def _show(value: Any) -> str:
    """A value for a warning, cut short."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."


def _pass_problem_on(error: OptionsError, option: str) -> str:
    """The text of an error as a warning, for a value that the CLI is left to decide about."""
    problem = str(error).removeprefix(f"ClaudeAgentOptions.{option}").strip()
    return f"{problem} It goes to the CLI as it is, which leaves out what it cannot use"


# --- single options -------------------------------------------------------------------------------------------


def _spell_identifier(value: Any) -> Iterator[Repair]:
    if isinstance(value, uuid.UUID | int) and not isinstance(value, bool):
        yield Repair(str(value))


_PROMPT_KEYS: Final = ("prompt", "text", "content", "value")
_DOCUMENTED_PROMPTS: Final = (
    'a string, {"type": "preset", "preset": "claude_code"} or {"type": "custom", "prompt": ...}'
)


def _read_system_prompt(value: Any) -> Iterator[Repair]:
    """A dict of an unknown form stands for the text that it holds, or for the preset, as the CLI takes it."""
    if not isinstance(value, Mapping):
        return
    kind = value.get("type")
    if kind not in ("custom", "file", "preset") or (kind == "custom" and "prompt" not in value):
        text = next((value[key] for key in _PROMPT_KEYS if isinstance(value.get(key), str)), None)
        if text is not None:
            told = f"has the type {_show(kind)} and counts as the prompt that it holds; write {_DOCUMENTED_PROMPTS}"
            yield _tell({"type": "custom", "prompt": text}, told)
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
    told = f"counts as the preset, Claude Code's own prompt; write {_DOCUMENTED_PROMPTS}"
    yield _tell(repaired, "" if plain else told)


def _read_thinking(value: Any) -> Iterator[Repair]:
    if not isinstance(value, Mapping) or "type" not in value:
        return
    kept = {key: each for key, each in value.items() if key != "display" or each is not None}
    if kept["type"] not in ("adaptive", "enabled", "disabled"):
        known = "'adaptive', 'enabled' or 'disabled'"
        yield _tell(None, f"has the type {kept['type']!r}, which changes nothing; write {known}")
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
            yield _tell({"type": "json_schema", "schema": inner}, f"has its schema elsewhere; write {want}")
        if value.keys() & {"properties", "$ref", "$defs", "anyOf", "items"}:
            yield _tell(
                {"type": "json_schema", "schema": value}, f"counts as the schema itself; write {want}"
            )
    if not isinstance(value, Mapping) or value.get("type") != "json_schema" or value.get("schema") is None:
        yield _tell(None, f"changes nothing: it is not {want}")


def _read_tools(value: Any) -> Iterator[Repair]:
    if isinstance(value, str) and value:
        yield _tell([value], f"is a string and counts as [{_show(value)}]; write a list")
    elif isinstance(value, Mapping | bool | str):
        told = f"is {_show(value)} and counts as all built-in tools; write None or a list of names"
        yield _tell({"type": "preset", "preset": "claude_code"}, told)
    elif isinstance(value, Iterable):
        yield Repair(list(value))


def _read_env(value: Any) -> Iterator[Repair]:
    if isinstance(value, Mapping):
        able = (bytes, os.PathLike)
        yield Repair({name: os.fsdecode(it) if isinstance(it, able) else it for name, it in value.items()})


def _read_stderr(value: Any) -> Iterator[Repair]:
    if callable(write := getattr(value, "write", None)):
        told = "is a file and gets each line; write a function, such as lambda line: print(line, file=file)"
        yield _tell(lambda line: write(line + "\n"), told)
    else:
        yield _tell(None, "is not a function and is never called; write a function that takes a line")


def _read_plugins(value: Any) -> Iterator[Repair]:
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        plugins = list(value)
        if all(isinstance(plugin, Mapping) for plugin in plugins):
            key = "skipMcpDiscovery"
            yield Repair([{**each, key: bool(each[key])} if key in each else each for each in plugins])


def _read_extra_args(value: Any) -> Iterator[Repair]:
    """A flag that is True stands alone and one that is False is left out; other values are put into words."""
    if not isinstance(value, Mapping):
        return
    kept: dict[Any, Any] = {}
    told = []
    for name, given in value.items():
        if isinstance(given, bool):
            what = "stands alone; write None" if given else "is left out"
            told.append(f"[{name!r}] is {given} and the flag {what}")
        if given is not False:
            kept[name] = None if given is True else given if given is None else str(given)
    yield Repair(kept, tuple(told))


def _read_hooks(value: Any) -> Iterator[Repair]:
    """An event may be one that only another CLI has; a function or a dict stands for its `HookMatcher`."""
    if not isinstance(value, Mapping):
        if value == []:
            yield Repair(None)
        return
    repaired: dict[str, Any] = {}
    told: list[str] = []
    for event, matchers in value.items():
        name = event if isinstance(event, str) else str(event)
        if name not in EVENTS:
            hint = did_you_mean(name, EVENTS, cutoff=0.8)
            text = f"has the event {name!r}, which toolwire does not know: a CLI that does not know it either"
            told.append(f"{text} never calls its hooks{hint and f'.{hint}'}")
        listed = matchers if isinstance(matchers, list | tuple) else None
        repaired[name] = matchers if listed is None else [_read_matcher(name, each, told) for each in listed]
    try:
        check_hooks("hooks", repaired, any_event=True)
    except OptionsError:
        return
    yield Repair(repaired, tuple(told), final=True)


def _read_matcher(event: str, given: Any, told: list[str]) -> Any:
    if callable(given) and not hasattr(given, "hooks"):
        told.append(f"[{event!r}] has a function; write HookMatcher(hooks=[function])")
        return HookMatcher(hooks=[given])
    if isinstance(given, Mapping) and given.keys() <= {field.name for field in fields(HookMatcher)}:
        told.append(f"[{event!r}] has a dict; write HookMatcher(...)")
        given = HookMatcher(**given)
    if not hasattr(given, "hooks"):
        return given
    read = HookMatcher(getattr(given, "matcher", None), given.hooks)
    read.timeout = _read_timeout(getattr(given, "timeout", None))
    read.on_failure = getattr(given, "on_failure", None)
    if isinstance(read.on_failure, str) and read.on_failure not in ("continue", "block"):
        told.append(
            f"[{event!r}] has on_failure={_show(read.on_failure)}, which counts as 'block'; write that"
        )
        read.on_failure = "block"
    return read


def _read_timeout(value: Any) -> Any:
    if isinstance(value, str):
        return next((it.value for it in _read_text(value, ()) if isinstance(it.value, int | float)), value)
    return int(value) if isinstance(value, bool) else value


def _read_agents(value: Any) -> Iterator[Repair]:
    """The fields of an agent go to the CLI as they are: other CLIs know other words."""
    if not isinstance(value, Mapping):
        if value == []:
            yield Repair(None)
        return
    repaired: dict[str, Any] = {}
    told: list[str] = []
    agents: dict[Any, Any] = dict(value)
    for name, agent in agents.items():
        if isinstance(agent, type) or not is_dataclass(agent):
            return
        changes: dict[str, Any] = {}
        for key in ("tools", "disallowedTools", "skills"):
            if isinstance(text := getattr(agent, key, None), str):
                changes[key] = [text]
                told.append(f"[{name!r}].{key} is a string and counts as [{_show(text)}]; write a list")
        repaired[str(name)] = copy.copy(agent)
        for key, each in changes.items():
            setattr(repaired[str(name)], key, each)
    yield Repair(repaired, tuple(told))
    try:
        check_agents("agents", repaired)
    except OptionsError as error:
        told.append(_pass_problem_on(error, "agents"))
    wire = {name: asdict(agent) for name, agent in repaired.items()}
    if is_json(wire):
        yield Repair(repaired, tuple(told), final=True)


def _read_servers(value: Any) -> Iterator[Repair]:
    """The CLI leaves out a server that it cannot use, and so the conversation goes on without it."""
    if not isinstance(value, Mapping):
        if not value:
            yield Repair({})
        return
    told: list[str] = []
    repaired: dict[str, Any] = {}
    if list(value) == ["mcpServers"] and isinstance(value["mcpServers"], Mapping):
        told.append('is a whole configuration and counts as the servers in it; leave out "mcpServers"')
        value = value["mcpServers"]
    for name, entry in value.items():
        repaired[str(name)] = _read_server(name, entry, told) if isinstance(entry, Mapping) else entry
    yield Repair(repaired, tuple(told))
    errors = find_problems(repaired)
    if all(can_be_named(repaired[name]) for name in errors):
        told += [_pass_problem_on(error, "mcp_servers") for error in errors.values()]
        yield Repair(repaired, tuple(told), final=True)


def _read_server(name: Any, config: Mapping[str, Any], told: list[str]) -> dict[str, Any]:
    kept = {key: each for key, each in config.items() if each is not None or key == "instance"}
    if isinstance(kept.get("url"), str) and not kept.keys() & {"type", "command"}:
        told.append(f'[{name!r}] has a "url" and no "type", and counts as "http"; write that, or "sse"')
        kept["type"] = "http"
    return kept


def _pass_on(value: Any) -> Iterator[Repair]:
    """It matters to nothing yet."""
    yield Repair(value, final=True)


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
    "skills": lambda _: iter(()),  # the official SDK refuses other forms too
    "session_store_flush": _pass_on,
    "load_timeout_ms": _pass_on,
    **dict.fromkeys(("resume", "session_id", "resume_session_at", "resume_drops_turn"), _spell_identifier),
}
