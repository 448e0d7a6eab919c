"""Completion: suggests values while a user types an argument of a prompt or of a resource's address.

Owns the sources of the values (a list, a function, or the type itself: `Literal`, `Enum`, `bool`) and the limit of
how many are sent. Calls no function itself: `find_source` returns what to call, `complete_result` takes the values.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final

from toolwire._protocol.json_codec import dumps
from toolwire._support.schema_structure import resolve
from toolwire.errors import ToolDefinitionError
from toolwire.tools.results.to_json import BadResult, clean

Source = Iterable[str] | Callable[..., Any]
"""Values to suggest, or a function `fn(value)` or `fn(value, arguments)` that returns them."""

MOST: Final = 100
"""Values in one response: the limit of MCP."""
_MAX_COUNTED: Final = 10_000  # values that are counted, since an iterator may be infinite
_EMPTY: Final = inspect.Parameter.empty


class Completer:
    """The values for the arguments of one function, whose parameters have this JSON schema."""

    def __init__(self, given: Mapping[str, Source], schema: dict[str, Any]) -> None:
        if not isinstance(given, Mapping):
            raise ToolDefinitionError(f"complete must be a dict of argument names, got {given!r}")
        properties: dict[str, Any] = schema["properties"]
        for name in given:
            if name not in properties:
                known = ", ".join(properties) or "none"
                raise ToolDefinitionError(
                    f"complete names {name!r}, which is not one of its arguments ({known})"
                )
        self._sources: dict[str, list[str] | Callable[..., Any]] = {}
        for name, shown in properties.items():
            if name in given:
                self._sources[name] = _check_source(name, given[name])
            elif choices := list(dict.fromkeys(_choices(shown, schema))):
                self._sources[name] = choices

    def __bool__(self) -> bool:
        return bool(self._sources)

    def find_source(
        self, argument: str, value: str, arguments: dict[str, str]
    ) -> list[str] | Callable[[], Any]:
        """Return the values for an argument, or the function to call for them."""
        source = self._sources.get(argument, [])
        if isinstance(source, list):
            start = value.casefold()
            return [each for each in source if each.casefold().startswith(start)]
        return partial(source, value, arguments) if _wants_arguments(source) else partial(source, value)


def complete_result(values: Any) -> dict[str, Any]:
    """Make a `CompleteResult`; `BadResult` for anything but an iterable of strings."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise BadResult(f"a list of strings is needed, not {type(values).__name__}", type(values))
    found = list(islice(values, _MAX_COUNTED + 1))
    for each in found:
        if not isinstance(each, str):
            raise BadResult(f"the values must be strings, not {type(each).__name__}", type(each))
    shown: dict[str, Any] = {"values": [clean(each) for each in found[:MOST]], "hasMore": len(found) > MOST}
    if len(found) <= _MAX_COUNTED:
        shown["total"] = len(found)
    return {"completion": shown}


def _check_source(name: str, given: Any) -> list[str] | Callable[..., Any]:
    if callable(given):
        if inspect.isasyncgenfunction(given):
            raise ToolDefinitionError(f"complete for {name!r}: an async generator; return a list instead")
        function: Callable[..., Any] = given
        return function
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ToolDefinitionError(
            f"complete for {name!r} must be a list of strings or a function, got {given!r}"
        )
    values = list(given)
    if not all(isinstance(each, str) for each in values):
        raise ToolDefinitionError(f"complete for {name!r}: all values must be strings, got {values!r}")
    return values


def _choices(schema: dict[str, Any], root: dict[str, Any]) -> Iterator[str]:
    """Yield the values that a type allows, as far as its JSON schema lists them."""
    if "$ref" in schema:
        target = resolve(schema["$ref"], root)
        # Only scalars have choices, and no scalar refers to itself: classes with fields are not entered.
        if isinstance(target, dict) and "properties" not in target:
            yield from _choices(target, root)
    for branch in (*schema.get("anyOf", ()), *schema.get("allOf", ()), *schema.get("oneOf", ())):
        yield from _choices(branch, root)
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    if schema.get("type") == "boolean" and not values:
        values = [True, False]
    for each in values:
        if each is not None:
            yield each if isinstance(each, str) else dumps(each).decode()


def _wants_arguments(function: Callable[..., Any]) -> bool:
    """True if a function takes the other arguments too: its second parameter is required or named `arguments`."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature
        return False
    places = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    return len(places) > 1 and (places[1].default is _EMPTY or places[1].name == "arguments")
