"""Finds problems that Claude would have with a list of tools.

Owns the rules and their messages, as pure functions over the definitions in `tools/list`. The limits are those of
the Claude Code CLI and of the Messages API. Calls no tool and prints nothing.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from toolwire._protocol.json_codec import dumps
from toolwire.tools.names import full_name, wire_name
from toolwire.tools.schema.arguments import DefinitionError
from toolwire.tools.schema.json_schema import compile_schema

Level = Literal["error", "warning", "hint"]
Definition = dict[str, Any]

LONGEST_NAME: Final = 64
"""Characters of `mcp__<server>__<tool>` that the Messages API accepts."""
LONGEST_DESCRIPTION: Final = 4096
"""Characters after which the CLI cuts a description."""
LARGEST_RESULT: Final = 500_000
"""The largest `maxResultSizeChars` that the CLI accepts."""
SHORTEST_DESCRIPTION: Final = 12
MANY_TOOLS: Final = 50
MANY_BYTES: Final = 64 * 1024
_SIZE: Final = "anthropic/maxResultSizeChars"
_COMBINED: Final = ("oneOf", "anyOf", "allOf")
_MAX_NAMED: Final = 5


@dataclass(frozen=True)
class Finding:
    """One problem. `tool` is None for a problem of the whole list."""

    level: Level
    tool: str | None
    what: str
    fix: str

    def as_json(self) -> dict[str, Any]:
        """Return it as a dict for JSON."""
        return asdict(self)


def find_problems(tools: list[Definition], server_name: str) -> list[Finding]:
    """Return all problems of these definitions: errors first, otherwise in the order of the list."""
    found = [each for tool in tools for rule in _TOOL_RULES for each in rule(tool, server_name)]
    found += [each for rule in _LIST_RULES for each in rule(tools, server_name)]
    return sorted(found, key=lambda each: ("error", "warning", "hint").index(each.level))


def _check_name(tool: Definition, server: str) -> Iterator[Finding]:
    name = tool.get("name")
    if not isinstance(name, str) or not name.strip():
        yield Finding(
            "error", None, f"the name of a tool is {name!r}", "give the tool a name that is a string"
        )
        return
    spelt = full_name(server, name)
    if not wire_name(name).strip("_"):
        fix = "use ASCII letters, digits, - and _"
        yield Finding("error", name, f"the name has no character that Claude can see: {spelt}", fix)
    elif not name.isascii():
        fix = "use ASCII letters, digits, - and _"
        yield Finding("warning", name, f"the name is not ASCII, so Claude sees {spelt}", fix)
    elif wire_name(name) != name:
        yield Finding("hint", name, f"Claude sees the name as {spelt}", "use letters, digits, - and _ only")
    if len(spelt) > LONGEST_NAME:
        what = f"{spelt} has {len(spelt)} characters, and the API accepts at most {LONGEST_NAME}"
        yield Finding("error", name, what, "shorten the name of the tool or of the server")


def _check_description(tool: Definition, _server: str) -> Iterator[Finding]:
    text = tool.get("description")
    name = tool.get("name")
    if not isinstance(text, str) or not text.strip():
        fix = "describe what it does and when to use it, in the docstring of the function"
        yield Finding("warning", name, "it has no description, so Claude only knows the name", fix)
    elif len(text) > LONGEST_DESCRIPTION:
        what = f"the description has {len(text):,} characters, and the CLI cuts it at {LONGEST_DESCRIPTION:,}"
        yield Finding("warning", name, what, "put the important part first, and the rest elsewhere")
    elif len(text.strip()) < SHORTEST_DESCRIPTION:
        fix = "describe what it does and when to use it, in a sentence"
        yield Finding("hint", name, f"the description is very short: {text.strip()!r}", fix)


def _check_schema(tool: Definition, _server: str) -> Iterator[Finding]:
    name, schema = tool.get("name"), tool.get("inputSchema")
    if not isinstance(schema, dict) or schema.get("type") != "object":
        got = "missing" if schema is None else "not of type object"
        what = f"the input schema is {got}: the CLI then drops all tools of the server"
        yield Finding("error", name, what, 'give it {"type": "object", "properties": {...}}')
        return
    if combined := [key for key in _COMBINED if key in schema]:
        what = f"the input schema has {' and '.join(combined)} at the top, which the API rejects"
        yield Finding("error", name, what, "put the variants into one property, or merge them")
    try:
        compile_schema(schema)
    except DefinitionError as error:
        fix = "copy it into $defs" if "refers to" in str(error) else "correct the schema"
        yield Finding("error", name, str(error).partition(": copy what")[0], fix)


def _check_parameters(tool: Definition, _server: str) -> Iterator[Finding]:
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return
    bare = [key for key, value in properties.items() if not _has_description(value)]
    if bare:
        many = "parameters" if len(bare) > 1 else "parameter"
        what = f"no description for {many} {_join_names(bare)}"
        yield Finding("hint", tool.get("name"), what, "describe it in the docstring, under Args:")


def _has_description(schema: Any) -> bool:
    return isinstance(schema, dict) and bool(
        schema.get("description") or schema.get("enum") or "$ref" in schema
    )


def _check_output(tool: Definition, _server: str) -> Iterator[Finding]:
    schema = tool.get("outputSchema")
    if schema is None:
        return
    if not isinstance(schema, dict) or schema.get("type") != "object":
        what = "the output schema is not of type object, which MCP requires"
        yield Finding("error", tool.get("name"), what, "wrap the value in an object, or leave the schema out")
        return
    try:
        compile_schema(schema)
    except DefinitionError as error:
        yield Finding("error", tool.get("name"), f"output schema: {error}", "correct the schema")


def _check_hints(tool: Definition, _server: str) -> Iterator[Finding]:
    hints = tool.get("annotations")
    if isinstance(hints, dict) and hints.get("readOnlyHint") is True and hints.get("destructiveHint") is True:
        yield Finding(
            "warning", tool.get("name"), "it is marked as read-only and as destructive", "keep one of the two"
        )


def _check_result_size(tool: Definition, _server: str) -> Iterator[Finding]:
    meta = tool.get("_meta")
    size = meta.get(_SIZE) if isinstance(meta, dict) else None
    if size is None:
        return
    if isinstance(size, bool) or not isinstance(size, int) or size <= 0:
        yield Finding("error", tool.get("name"), f"{_SIZE} is {size!r}", "give a whole number over 0")
    elif size > LARGEST_RESULT:
        what = f"{_SIZE} is {size:,}, and the CLI accepts at most {LARGEST_RESULT:,}"
        yield Finding("warning", tool.get("name"), what, "return less, or page the results")


def _check_empty(tools: list[Definition], _server: str) -> Iterator[Finding]:
    if not tools:
        yield Finding("warning", None, "the server has no tools", "add one: @server.tool above a function")


def _check_duplicates(tools: list[Definition], server: str) -> Iterator[Finding]:
    names = [tool["name"] for tool in tools if isinstance(tool.get("name"), str)]
    for name, times in Counter(names).items():
        if times > 1:
            yield Finding("error", name, f"there are {times} tools with this name", "rename all but one")
    spelt: dict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(names):
        spelt[full_name(server, name)].append(name)
    for wire, alike in spelt.items():
        if len(alike) > 1:
            what = f"{' and '.join(map(repr, alike))} both have the name {wire} for Claude"
            yield Finding("error", alike[0], what, "rename one")


def _check_size(tools: list[Definition], _server: str) -> Iterator[Finding]:
    size = sum(len(dumps(tool)) for tool in tools)
    if len(tools) > MANY_TOOLS or size > MANY_BYTES:
        what = (
            f"the list is long: {len(tools)} tools, {size / 1024:.0f} KB, which is about {size // 4:,} tokens"
        )
        fix = "keep the CLI's tool search on, give tools a search_hint, or serve fewer of them"
        yield Finding("hint", None, what, fix)


def _join_names(names: list[str]) -> str:
    more = len(names) - _MAX_NAMED
    return ", ".join(re.sub(r"\s+", " ", name) for name in names[:_MAX_NAMED]) + (
        f" and {more} more" if more > 0 else ""
    )


_TOOL_RULES: Final[tuple[Callable[[Definition, str], Iterator[Finding]], ...]] = (
    _check_name,
    _check_description,
    _check_schema,
    _check_parameters,
    _check_output,
    _check_hints,
    _check_result_size,
)
_LIST_RULES: Final[tuple[Callable[[list[Definition], str], Iterator[Finding]], ...]] = (
    _check_empty,
    _check_duplicates,
    _check_size,
)
