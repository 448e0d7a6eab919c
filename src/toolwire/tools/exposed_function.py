"""A typed function that gets its arguments as text: the common part of resources and prompts.

Owns the inspection of such a function, the conversion of strings to the types of its parameters, and completion:
the values that are suggested while a user types an argument, from a list, a function, or the type itself
(`Literal`, `Enum`, `bool`). `resources` and `prompts` own the conversion of its result. Must not know connections.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import partial
from itertools import islice
from typing import Any, ClassVar, Final

from toolwire._protocol.json_codec import dumps, loads
from toolwire._support.schema_structure import resolve
from toolwire._support.tasks import is_async
from toolwire.errors import ToolDefinitionError
from toolwire.tools.context import Context
from toolwire.tools.results.to_json import BadResult, clean, plain
from toolwire.tools.schema.arguments import InvalidArguments, Parameters, Violation

Source = Iterable[str] | Callable[..., Any]
"""Values to suggest, or a function `fn(value)` or `fn(value, arguments)` that returns them."""

MOST: Final = 100
"""Values in one response: the limit of MCP."""
_MAX_COUNTED: Final = 10_000  # the values are counted up to here, since an iterator may be infinite
_EMPTY: Final = inspect.Parameter.empty


@dataclass
class ExposedFunction:
    """A function that is served under a name."""

    function: Callable[..., Any]
    _: KW_ONLY
    name: str = ""
    title: str | None = None
    """A name to show to users."""
    description: str | None = None
    """Its purpose; by default the function's docstring."""
    complete: Mapping[str, Source] | None = None
    """For arguments: the values to suggest, or a function that returns them."""
    icons: list[Any] | None = None
    meta: dict[str, Any] | None = None
    timeout: float | None = None
    """Seconds that it may take."""
    inline: bool = False
    """True: run a quick sync function on the event loop instead of in a thread."""
    label: str = field(default="", init=False, repr=False)
    """Its kind and name, for errors."""
    repeatable: ClassVar[bool] = True

    def inspect_function(self) -> None:
        """Inspect the function; `ToolDefinitionError` if it cannot be served. `label` must be set."""
        from toolwire.tools.schema.signature import signature_of  # noqa: PLC0415 - loads Pydantic

        if self.timeout is not None and not self.timeout > 0:
            raise self.error(f"timeout must be over 0 seconds, got {self.timeout!r}")
        if inspect.isasyncgenfunction(self.function) or inspect.isgeneratorfunction(self.function):
            raise self.error("a generator has no single result; return a list instead")
        try:
            self.signature = signature_of(self.function, context_type=Context, name=self.name)
        except ToolDefinitionError as error:
            raise self.error(str(error).removeprefix(f"tool {self.name!r}: ")) from error.__cause__
        if self.description is None:
            self.description = self.signature.description
        self.is_async = is_async(self.function)
        schema = self.signature.parameters.json_schema
        self.arguments: dict[str, dict[str, Any]] = schema["properties"]
        """The JSON schema of each argument."""
        self.required: frozenset[str] = frozenset(schema.get("required", ()))
        try:
            self.completer = Completer(self.complete or {}, schema)
        except ToolDefinitionError as error:
            raise self.error(str(error)) from None

    @property
    def threaded(self) -> bool:
        """True if a worker thread runs it."""
        return not self.is_async and not self.inline

    def error(self, problem: str) -> ToolDefinitionError:
        """Make an error about its definition."""
        return ToolDefinitionError(f"{self.label[0].lower()}{self.label[1:]}: {problem}")

    def values(self, texts: dict[str, Any]) -> dict[str, Any]:
        """Convert texts to the types of the parameters; `InvalidArguments` if they do not fit."""
        return parse_texts(self.signature.parameters, texts)

    def invoke(self, values: dict[str, Any], context: Context[Any] | None) -> Any:
        """Call the function with validated values. Returns its result, or an awaitable of it."""
        args, kwargs = self.signature.arguments_for(values, context)
        return self.function(*args, **kwargs)

    def extras(self) -> dict[str, Any]:
        """Return the fields of the definition that resources and prompts share."""
        if not isinstance(self.meta, dict | None):
            raise self.error(f"meta must be a dict, got {self.meta!r}")
        try:
            found = plain({"icons": [_icon(each) for each in self.icons or ()], "_meta": self.meta or {}})[0]
        except BadResult as error:
            raise self.error(str(error)) from error
        return {key: value for key, value in found.items() if value}


def check_settings(kind: type[ExposedFunction], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that were given; `ToolDefinitionError` names an unknown one."""
    known = {each.name for each in fields(kind) if each.init} - {"function", "uri"}
    unknown = sorted(settings.keys() - known)
    if unknown:
        what = kind.__name__.removeprefix("Served").lower()
        raise ToolDefinitionError(
            f"a {what} has no setting {', '.join(unknown)}: it has {', '.join(sorted(known))}"
        )
    return {key: value for key, value in settings.items() if value is not None}


def function_name(function: Any) -> str:
    """Return the name of a function, or of the class of a callable object."""
    if not callable(function):
        raise ToolDefinitionError(f"expected a function, got {function!r}")
    return getattr(function, "__name__", None) or type(function).__name__


def parse_texts(parameters: Parameters, texts: dict[str, Any]) -> dict[str, Any]:
    """Convert strings to typed values: `"5"` to an int, `"true"` to a bool, JSON to lists and objects.

    A string that fits its parameter is kept. One that does not fit is tried again as the JSON value that it holds:
    a list, an object, null, or a number of a `Literal` or `Enum`.
    """
    try:
        return parameters.validate(texts)
    except InvalidArguments as error:
        first = error
    parsed = {
        name: _parse_json(texts[name])
        for name in _invalid_arguments(first)
        if isinstance(texts.get(name), str)
    }
    again = {name: value for name, value in parsed.items() if not isinstance(value, str)}
    try:
        return parameters.validate({**texts, **again})
    except InvalidArguments as second:
        # Errors inside lists and objects are from the second try; for all others the string is shown.
        deep = {name for name, value in again.items() if isinstance(value, list | dict)}
        shown = _invalid_arguments(second) - deep
        raise InvalidArguments(
            [each for each in first.violations if _argument_of(each) in shown]
            + [each for each in second.violations if _argument_of(each) in deep]
        ) from None


def _invalid_arguments(error: InvalidArguments) -> set[str]:
    return {_argument_of(each) for each in error.violations}


def _argument_of(violation: Violation) -> str:
    """Return the name of the argument."""
    return re.split(r"[.\[]", violation.path, maxsplit=1)[0]


def _parse_json(text: str) -> Any:
    try:
        return loads(text.encode())
    except ValueError:
        return text


def _icon(given: Any) -> dict[str, Any]:
    icon = given.model_dump(by_alias=True, exclude_none=True) if hasattr(given, "model_dump") else given
    if not isinstance(icon, Mapping) or not isinstance(icon.get("src"), str):
        raise BadResult(
            f'an icon must be a dict such as {{"src": "https://..."}}, not {given!r}', type(given)
        )
    return dict(icon)


class Completer:
    """The values to suggest for the arguments of one function, whose parameters have this JSON schema.

    Calls no function itself: `find_source` returns the function to call, and `complete_result` takes its result.
    """

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
        """Return the values to suggest for an argument, or the function that returns them."""
        source = self._sources.get(argument, [])
        if isinstance(source, list):
            start = value.casefold()
            return [each for each in source if each.casefold().startswith(start)]
        return partial(source, value, arguments) if _wants_arguments(source) else partial(source, value)


def complete_result(values: Any) -> dict[str, Any]:
    """Make a `CompleteResult`; `BadResult` for anything but an iterable of strings."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise BadResult(
            f"completion must return a list of strings, not {type(values).__name__}", type(values)
        )
    found = list(islice(values, _MAX_COUNTED + 1))
    for each in found:
        if not isinstance(each, str):
            raise BadResult(f"completion must return strings, not {type(each).__name__}", type(each))
    shown: dict[str, Any] = {"values": [clean(each) for each in found[:MOST]], "hasMore": len(found) > MOST}
    if len(found) <= _MAX_COUNTED:
        shown["total"] = len(found)
    return {"completion": shown}


def _check_source(name: str, given: Any) -> list[str] | Callable[..., Any]:
    if callable(given):
        if inspect.isasyncgenfunction(given):
            raise ToolDefinitionError(
                f"complete for {name!r} must not be an async generator; return a list instead"
            )
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
