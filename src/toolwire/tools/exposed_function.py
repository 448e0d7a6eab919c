"""A typed function that gets its arguments as text: the common part of resources and prompts.

Owns the inspection of such a function, and the conversion of strings to the types of its parameters. `resources`
and `prompts` own what becomes of its result. It must not know connections.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any, ClassVar

from toolwire._protocol.json_codec import loads
from toolwire._support.tasks import is_async
from toolwire.errors import ToolDefinitionError
from toolwire.tools.completion import Completer, Source
from toolwire.tools.context import Context
from toolwire.tools.results.to_json import BadResult, plain
from toolwire.tools.schema.arguments import InvalidArguments, Parameters, Violation


@dataclass
class ExposedFunction:
    """A function that is served under a name."""

    function: Callable[..., Any]
    _: KW_ONLY
    name: str = ""
    title: str | None = None
    """A name to show to people."""
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
        raise ToolDefinitionError(f"a function is needed, got {function!r}")
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
