"""Chains: declared sequences of tool calls that are tools themselves. Defines and checks them.

A step's arguments may refer to the chain's input and to the results of earlier steps: `${input/topic}`,
`${search/results/0/url}` or `${search.text}`. A reference is a name and a JSON pointer into the structured result
of that step. A string that consists of one reference becomes the value itself; inside a longer string the value is
inserted as text; `$${` stands for a literal `${`. Nothing is evaluated. Owns the syntax, the checks and the lookup
of values; `chained` runs the steps.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from toolwire._protocol.json_codec import dumps, loads
from toolwire._support.schema_structure import iter_subschemas
from toolwire._support.words import closest, did_you_mean
from toolwire.errors import ToolDefinitionError, UsageError
from toolwire.tools.names import find_name_problem
from toolwire.tools.schema.arguments import InvalidArguments, clip, show_value
from toolwire.tools.schema.json_schema import from_json_schema

INPUT: Final = "input"
"""The name that stands for the chain's arguments in references."""
_REFERENCE: Final = re.compile(r"\$\$\{|\$\{([^{}]*)\}")
_PARTS: Final = re.compile(r"([A-Za-z0-9_-]+)(\.text|(?:/[^{}]*)?)")
_STEP_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MOST_STEPS: Final = 100
_MOST_CALLS: Final = 1_000
_MOST_DEPTH: Final = 100
_LARGEST: Final = 8 << 20  # bytes of the arguments of one step
_MISSING: Final = object()
_ASKS_USER: Final = "anthropic/requiresUserInteraction"


class BadReference(ValueError):  # noqa: N818 - it names the reference
    """A reference to a value that does not exist."""


@dataclass(frozen=True)
class Reference:
    """A reference in a step's arguments: to the chain's input or to a step, and to which part of it."""

    source: str
    pointer: tuple[str, ...] = ()
    as_text: bool = False

    @classmethod
    def parse(cls, text: str) -> "Reference":
        """Parse the text between the braces. `ValueError` says what is wrong with it."""
        found = _PARTS.fullmatch(text)
        if found is None:
            raise ValueError(
                f"${{{clip(text)}}} is not a reference: write ${{input/NAME}}, ${{STEP/PATH}} or ${{STEP.text}}"
            )
        source, rest = found.groups()
        if rest == ".text":
            if source == INPUT:
                raise ValueError(f"${{{text}}}: the input has no text; name an argument: ${{input/NAME}}")
            return cls(source, as_text=True)
        steps = rest.split("/")[1:]
        return cls(source, tuple(each.replace("~1", "/").replace("~0", "~") for each in steps))

    def __str__(self) -> str:
        if self.as_text:
            return f"${{{self.source}.text}}"
        return "${" + "/".join([self.source, *(_escape(each) for each in self.pointer)]) + "}"


def _escape(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")


@dataclass(frozen=True)
class Step:
    """One call of a chain: the tool, its arguments, and the name by which later steps refer to it."""

    tool: str
    args: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    timeout: float | None = None
    max_price: float | str | None = None


def step(
    tool: str,
    args: Mapping[str, Any] | None = None,
    *,
    name: str = "",
    timeout: float | None = None,
    max_price: float | str | None = None,
) -> Step:
    """Declare a step of a chain.

    `name` is the name for references, by default that of the tool. `timeout` is in seconds. `max_price`, in
    dollars, is the most that a paid step may cost. A paid step of unknown price needs it: that much is reserved.
    """
    return Step(tool, dict(args or {}), name, timeout, max_price)


@dataclass(frozen=True)
class Chain:
    """A declared chain of tools. `wrap.with_chains` makes it a tool of a server."""

    name: str
    description: str
    steps: tuple[Step, ...]
    input_schema: Mapping[str, Any] | None = None
    result: Any = None
    title: str | None = None
    timeout: float | None = None
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        where = f"chain {self.name!r}"
        if (problem := find_name_problem(self.name)) is not None:
            raise ToolDefinitionError(f"chain: {problem}")
        if not self.steps or len(self.steps) > _MOST_STEPS:
            raise ToolDefinitionError(
                f"{where}: a chain must have 1 to {_MOST_STEPS} steps, got {len(self.steps)}"
            )
        known = [INPUT]
        for number, each in enumerate(self.steps, 1):
            label = f"{where}, step {number} ({clip(str(each.tool))})"
            if not each.tool:
                raise ToolDefinitionError(f"{label}: tool must be the name of a tool, got {each.tool!r}")
            if each.timeout is not None and not each.timeout > 0:
                raise ToolDefinitionError(f"{label}: timeout must be over 0 seconds, got {each.timeout!r}")
            if not _STEP_NAME.fullmatch(each.name):
                raise ToolDefinitionError(
                    f"{label}: the name {each.name!r} must be 1 to 64 letters, digits, _ or -: set it with name=..."
                )
            if each.name in known:
                raise ToolDefinitionError(
                    f"{label}: the name {each.name!r} is taken; give the step another with name=..."
                )
            _check_references(each.args, known, label)
            known.append(each.name)
        _check_references(self.result, known, f"{where}, result")

    @cached_property
    def inputs(self) -> dict[str, bool]:
        """The names of the chain's arguments that references use, each with True if it cannot be omitted."""
        found: dict[str, bool] = {}
        for each in (*(step.args for step in self.steps), self.result):
            for reference, whole in iter_references(each):
                if reference.source == INPUT and reference.pointer:
                    name = reference.pointer[0]
                    found[name] = found.get(name, False) or not whole or len(reference.pointer) > 1
        return found


def chain(
    name: str,
    description: str,
    steps: Sequence[Step],
    *,
    input_schema: Mapping[str, Any] | None = None,
    result: Any = None,
    title: str | None = None,
    timeout: float | None = None,
    tags: Sequence[str] = (),
) -> Chain:
    """Declare a chain of tools: `steps` run one after the other, and the first error ends it.

    `input_schema` is the JSON schema of the chain's arguments. By default it is derived from the tools: an
    `${input/NAME}` has the schema of the argument that it is passed to. `result` is the value to return, which may
    contain references; by default it is the result of the last step. `timeout` is for the whole chain, in seconds.
    """
    names: list[str] = []
    for each in steps:
        if type(each) is not Step or type(each.tool) is not str:
            raise ToolDefinitionError(f"chain {name!r}: steps are made by step('TOOL', ...), got {each!r}")
        base = each.name or re.sub(r"[^A-Za-z0-9_-]", "_", str(each.tool))[:64]
        made, number = base, 2
        while not each.name and made in (*names, INPUT):
            made, number = f"{base[:60]}_{number}", number + 1
        names.append(made)
    named = tuple(
        Step(each.tool, each.args, made, each.timeout, each.max_price)
        for each, made in zip(steps, names, strict=True)
    )
    schema = None if input_schema is None else dict(input_schema)
    return Chain(name, description, named, schema, result, title, timeout, tuple(tags))


def iter_references(value: Any, depth: int = 0) -> Iterator[tuple[Reference, bool]]:
    """Yield the references in a value, each with True if it is the whole string. `ValueError` if malformed."""
    if depth > _MOST_DEPTH:
        raise ValueError(f"the arguments are nested more than {_MOST_DEPTH} levels deep")
    if isinstance(value, str):
        for found in _REFERENCE.finditer(value):
            if found[1] is not None:
                yield Reference.parse(found[1]), found.span() == (0, len(value))
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from iter_references(each, depth + 1)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from iter_references(each, depth + 1)


def _check_references(value: Any, known: Sequence[str], label: str) -> None:
    try:
        dumps(value)
        found = [reference for reference, _ in iter_references(value)]
    except (ValueError, TypeError) as error:
        raise ToolDefinitionError(f"{label}: {error}") from None
    for reference in found:
        if reference.source not in known:
            raise ToolDefinitionError(
                f"{label}: {reference} refers to {reference.source!r}, which is neither the input nor an"
                f" earlier step (known: {', '.join(known)}).{did_you_mean(reference.source, known)}"
            )


# Values.


class Results:
    """The values that references are looked up in: the chain's input, and the results of its steps so far."""

    def __init__(self, arguments: Mapping[str, Any], optional: Callable[[str], bool]) -> None:
        self._values: dict[str, Any] = {INPUT: arguments}
        self._texts: dict[str, str | None] = {}
        self._parsed: dict[str, Any] = {}  # texts of results that were parsed as JSON
        self._optional = optional

    def add(self, name: str, result: Mapping[str, Any]) -> None:
        """Add the MCP result of a step."""
        blocks = [each for each in result.get("content") or [] if isinstance(each, Mapping)]
        texts = [
            each["text"]
            for each in blocks
            if each.get("type") == "text" and isinstance(each.get("text"), str)
        ]
        self._texts[name] = "\n".join(texts) if texts else None
        structured = result.get("structuredContent")
        self._values[name] = _MISSING if structured is None else structured

    def fill(self, value: Any) -> Any:
        """Replace the references in a value. `BadReference` if one of them refers to nothing.

        A reference to an optional input that was not given is left out, with its key or list item.
        """
        if isinstance(value, str):
            return self._fill_text(value)
        if isinstance(value, Mapping):
            filled = {key: self.fill(each) for key, each in value.items()}
            return {key: each for key, each in filled.items() if each is not _MISSING}
        if isinstance(value, list | tuple):
            return [each for each in map(self.fill, value) if each is not _MISSING]
        return value

    def result(self, value: Any) -> Any:
        """Return the result of a chain; None if it is an optional input that was not given."""
        filled = self.fill(value)
        return None if filled is _MISSING else filled

    def arguments(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a step. `BadReference` if one refers to nothing, or they are too large."""
        filled: dict[str, Any] = self.fill(args)
        if (size := len(dumps(filled))) > _LARGEST:
            raise BadReference(f"its arguments would have {size:,} bytes; the limit is {_LARGEST:,}")
        return filled

    def _fill_text(self, text: str) -> Any:
        whole = _REFERENCE.fullmatch(text)
        if whole is not None and whole[1] is not None:
            reference = Reference.parse(whole[1])
            if reference.source == INPUT and len(reference.pointer) == 1:
                name = reference.pointer[0]
                if name not in self._values[INPUT] and self._optional(name):
                    return _MISSING
            return self._find(reference)
        return _REFERENCE.sub(self._insert, text)

    def _insert(self, found: re.Match[str]) -> str:
        """Return the text that replaces a match of `_REFERENCE`."""
        if found[1] is None:
            return "${"
        value = self._find(Reference.parse(found[1]))
        return value if isinstance(value, str) else dumps(value).decode()

    def _find(self, reference: Reference) -> Any:
        source = reference.source
        if reference.as_text:
            if (text := self._texts[source]) is None:
                raise BadReference(f"{reference}: the result of {source!r} has no text")
            return text
        value = self._values[source]
        if value is _MISSING:
            value = self._parse_text(reference)
        for at, part in enumerate(reference.pointer):
            value = _get_item(value, part, reference, at)
        return value

    def _parse_text(self, reference: Reference) -> Any:
        """Return the text of a result without structured content, parsed as JSON if there is a pointer into it."""
        text = self._texts[reference.source]
        if text is None:
            raise BadReference(
                f"{reference}: the result of {reference.source!r} has neither structured content nor text"
            )
        if not reference.pointer:
            return text
        try:
            if reference.source not in self._parsed:
                self._parsed[reference.source] = loads(text.encode())
            return self._parsed[reference.source]
        except ValueError:
            raise BadReference(
                f"{reference}: the result of {reference.source!r} is text that is not JSON; use"
                f" ${{{reference.source}.text}} for the whole text"
            ) from None


def _get_item(value: Any, part: str, reference: Reference, at: int) -> Any:
    where = "/".join([reference.source, *reference.pointer[:at]])
    if isinstance(value, Mapping):
        if part in value:
            return value[part]
        keys = clip(", ".join(map(str, value)) or "nothing", 200)
        raise BadReference(f"{reference}: {where} has no {part!r}, it has {keys}")
    if isinstance(value, list):
        if part.isdecimal() and part.isascii() and len(part) < 10 and int(part) < len(value):  # noqa: PLR2004
            return value[int(part)]
        raise BadReference(f"{reference}: {where} is a list of {len(value)} items, and has no {part!r}")
    raise BadReference(f"{reference}: {where} is {show_value(value)}, and has no {part!r}")


# Checks against the tools.


@dataclass(frozen=True)
class Plan:
    """A chain that was checked against its tools, with the values for its definition."""

    chain: Chain
    input_schema: dict[str, Any]
    annotations: dict[str, bool]
    calls: int
    """The number of tool calls, including those of nested chains."""
    asks_user: bool = False
    """True if a step requires that the user is asked before it runs."""

    def is_optional(self, name: str) -> bool:
        """True if an argument of the chain may be left out."""
        return name not in self.input_schema.get("required", ())


def plan_all(
    chains: Mapping[str, Chain], definitions: Mapping[str, Mapping[str, Any]]
) -> dict[str, "Plan | str"]:
    """Check chains against the existing tools. Returns the plan of each, or the reason why it cannot run."""
    plans: dict[str, Plan | str] = {}

    def plan(name: str, above: tuple[str, ...]) -> "Plan | str":
        if name in above:
            loop = " -> ".join([*above[above.index(name) :], name])
            return f"chain {name!r} calls itself: {loop}"
        if name not in plans:
            nested = {}
            for each in chains[name].steps:
                if each.tool in chains:
                    nested[each.tool] = plan(each.tool, (*above, name))
            try:
                plans[name] = _plan(chains[name], definitions, nested)
            except ToolDefinitionError as error:
                plans[name] = str(error)
        return plans[name]

    for name in chains:
        plan(name, ())
    return plans


def _plan(
    chain: Chain, definitions: Mapping[str, Mapping[str, Any]], nested: Mapping[str, "Plan | str"]
) -> "Plan":
    where = f"chain {chain.name!r}"
    calls = sum(
        inner.calls if isinstance(inner := nested.get(each.tool), Plan) else 1 for each in chain.steps
    )
    if calls > _MOST_CALLS:
        raise ToolDefinitionError(
            f"{where}: it makes {calls:,} calls with its nested chains; the limit is {_MOST_CALLS:,}"
        )
    tools: list[Mapping[str, Any]] = []
    for number, each in enumerate(chain.steps, 1):
        label = f"{where}, step {number} ({each.name})"
        tool = _find_tool(each, definitions, nested, label)
        if (problem := _check_arguments(each, tool.get("inputSchema") or {})) is not None:
            raise ToolDefinitionError(f"{label}: {problem}")
        tools.append(tool)
    schema = _derive_input(chain, tools) if chain.input_schema is None else dict(chain.input_schema)
    try:
        known = from_json_schema(schema).json_schema
    except ToolDefinitionError as error:
        raise ToolDefinitionError(f"{where}: {error}") from error
    properties = known.get("properties")
    if chain.input_schema is not None and isinstance(properties, Mapping):
        for name in chain.inputs:
            if name not in properties:
                names = ", ".join(properties) or "none"
                raise ToolDefinitionError(
                    f"{where}: ${{input/{name}}} is not in its input_schema (it has {names})"
                )
    asks_user = any((tool.get("_meta") or {}).get(_ASKS_USER) is True for tool in tools)
    return Plan(chain, known, _combine_annotations(tools), calls, asks_user)


def _find_tool(
    step: Step, definitions: Mapping[str, Mapping[str, Any]], nested: Mapping[str, "Plan | str"], label: str
) -> Mapping[str, Any]:
    inner = nested.get(step.tool)
    if isinstance(inner, str):
        raise ToolDefinitionError(f"{label}: {inner}")
    if inner is not None:
        meta = {_ASKS_USER: inner.asks_user}
        return {"inputSchema": inner.input_schema, "annotations": inner.annotations, "_meta": meta}
    if step.tool not in definitions:
        hint = did_you_mean(step.tool, definitions)
        raise ToolDefinitionError(f"{label}: there is no tool {step.tool!r}.{hint}")
    return definitions[step.tool]


def _check_arguments(step: Step, schema: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the arguments of a step, as far as that is known before it runs."""
    missing = [name for name in schema.get("required") or () if name not in step.args]
    if missing:
        return f"{step.tool} requires {', '.join(map(repr, missing))}"
    properties = schema.get("properties")
    if schema.get("additionalProperties") is False and isinstance(properties, Mapping):
        unknown = [name for name in step.args if name not in properties]
        if unknown:
            return f"{step.tool} has no {', '.join(map(repr, unknown))}; it has {', '.join(properties) or 'none'}"
    if not any(True for _ in iter_references(step.args)):
        try:
            from_json_schema(dict(schema)).validate(dict(step.args))
        except InvalidArguments as error:
            return str(error)
        except ToolDefinitionError:
            return None  # a schema of another library: that library checks the arguments itself
    return None


def _derive_input(chain: Chain, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Make the schema of a chain's arguments from the schemas of the tools that they are passed to."""
    properties: dict[str, Any] = {}
    required: dict[str, None] = {}
    shared: dict[str, Any] = {}
    for each, tool in zip(chain.steps, tools, strict=True):
        schema = tool.get("inputSchema") or {}
        found_properties = schema.get("properties")
        known = found_properties if isinstance(found_properties, Mapping) else {}
        for argument, value in each.args.items():
            if (
                not isinstance(value, str)
                or (found := _REFERENCE.fullmatch(value)) is None
                or found[1] is None
            ):
                continue
            reference = Reference.parse(found[1])
            if reference.source != INPUT or len(reference.pointer) != 1:
                continue
            name = reference.pointer[0]
            if name not in properties and argument in known:
                properties[name] = _copy_subschema(known[argument], schema, shared)
            if argument in (schema.get("required") or ()):
                required[name] = None
    for name, inside in chain.inputs.items():
        properties.setdefault(name, {"type": "string"} if inside and _is_only_in_text(chain, name) else {})
        if inside:
            required[name] = None
    derived: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        derived["required"] = list(required)
    return {**derived, "$defs": shared} if shared else derived


def _is_only_in_text(chain: Chain, name: str) -> bool:
    uses = [
        (reference, whole)
        for each in (*(step.args for step in chain.steps), chain.result)
        for reference, whole in iter_references(each)
        if reference.source == INPUT and reference.pointer[:1] == (name,)
    ]
    return all(not whole and len(reference.pointer) == 1 for reference, whole in uses)


def _copy_subschema(schema: Any, root: Mapping[str, Any], shared: dict[str, Any]) -> Any:
    """Return a part of a schema, and copy the definitions that it uses to `shared`; {} if that is impossible."""
    if b'"$ref"' not in dumps(schema):
        return schema
    defs = root.get("$defs")
    targets: dict[str, Any] = {}
    left = [schema]
    while left:
        each = left.pop()
        if not isinstance(each, Mapping):
            continue
        target = each.get("$ref")
        if isinstance(target, str):
            name = target.removeprefix("#/$defs/")
            if name == target or "/" in name or not isinstance(defs, Mapping) or name not in defs:
                return {}
            if name not in targets:
                targets[name] = defs[name]
                left.append(defs[name])
        left += [inner for _, inner in iter_subschemas(dict(each))]
    if any(name in shared and shared[name] != target for name, target in targets.items()):
        return {}
    shared.update(targets)
    return schema


def _combine_annotations(tools: Sequence[Mapping[str, Any]]) -> dict[str, bool]:
    """Return the hints of a chain: as cautious as its most cautious step. A missing hint has MCP's default."""
    defaults = {
        "readOnlyHint": False,
        "destructiveHint": True,
        "idempotentHint": False,
        "openWorldHint": True,
    }
    found = {name: [_hint(tool, name, default) for tool in tools] for name, default in defaults.items()}
    return {
        "readOnlyHint": all(found["readOnlyHint"]),
        "destructiveHint": not all(found["readOnlyHint"]) and any(found["destructiveHint"]),
        "idempotentHint": all(found["idempotentHint"]) or all(found["readOnlyHint"]),
        "openWorldHint": any(found["openWorldHint"]),
    }


def _hint(tool: Mapping[str, Any], name: str, default: bool) -> bool:
    annotations = tool.get("annotations")
    if not isinstance(annotations, Mapping):
        return default
    if name == "destructiveHint" and annotations.get("readOnlyHint") is True:
        return False
    value = annotations.get(name)
    return value if isinstance(value, bool) else default


# Files.

_SECONDS: Final = (int, float)
_CHAIN_KEYS: Final[dict[str, tuple[type, ...]]] = {
    "description": (str,),
    "steps": (list,),
    "input_schema": (dict,),
    "result": (object,),
    "title": (str,),
    "timeout": _SECONDS,
    "tags": (list,),
}
_STEP_KEYS: Final[dict[str, tuple[type, ...]]] = {
    "tool": (str,),
    "args": (dict,),
    "name": (str,),
    "timeout": _SECONDS,
    "max_price": (int, float, str),
}
_KINDS: Final = {str: "text", dict: "a table", list: "a list", int: "a number"}


def load_chains(path: str | Path) -> list[Chain]:
    """Read chains from a TOML file: a table for each, `[[NAME.steps]]` for its steps. `UsageError` if invalid."""
    try:
        data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: the chains cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
    chains = []
    for name, table in data.items():
        try:
            chains.append(_read_chain(name, table))
        except ToolDefinitionError as error:
            raise UsageError(f"{path}: {error}") from error
    if not chains:
        raise UsageError(
            f"{path} has no chains: a chain is a table such as [research] with [[research.steps]]"
        )
    return chains


def _read_chain(name: str, table: Any) -> Chain:
    _check_table(f"chain {name!r}", table, _CHAIN_KEYS, ("description", "steps"))
    steps = []
    for number, each in enumerate(table["steps"], 1):
        _check_table(f"chain {name!r}, step {number}", each, _STEP_KEYS, ("tool",))
        steps.append(step(**each))
    return chain(name, steps=steps, **{key: value for key, value in table.items() if key != "steps"})


def _check_table(
    label: str, table: Any, known: Mapping[str, tuple[type, ...]], required: Sequence[str]
) -> None:
    if not isinstance(table, dict):
        raise ToolDefinitionError(f"{label}: it must be a table, got {show_value(table)}")
    for key, value in table.items():
        if key not in known:
            near = closest(key, known)
            hint = f"; did you mean {near!r}?" if near else f": it has {', '.join(sorted(known))}"
            raise ToolDefinitionError(f"{label}: there is no setting {key!r}{hint}")
        kinds = known[key]
        if not isinstance(value, kinds) or (isinstance(value, bool) and int in kinds):
            raise ToolDefinitionError(f"{label}: {key} must be {_KINDS[kinds[0]]}, got {show_value(value)}")
    for key in required:
        if key not in table:
            raise ToolDefinitionError(f"{label}: {key} is missing")
