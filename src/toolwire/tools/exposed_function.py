"""A typed function behind a name that gets its arguments as text: the common part of resources and prompts.

Owns the reading of such a function, and the way from the wire's strings to the types that it asks for. What is done
with the function's result is the business of `resources` and `prompts`; who calls it nobody here knows.
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
    """A name for people."""
    description: str | None = None
    """Its purpose; by default the function's docstring."""
    complete: Mapping[str, Source] | None = None
    """For arguments: the values to offer, or a function that finds them."""
    icons: list[Any] | None = None
    meta: dict[str, Any] | None = None
    timeout: float | None = None
    """Seconds that it may take."""
    inline: bool = False
    """True: run a quick sync function on the event loop instead of in a thread."""
    label: str = field(default="", init=False, repr=False)
    """Its kind and name, for errors."""
    repeatable: ClassVar[bool] = True

    def read(self) -> None:
        """Look at the function; `ToolDefinitionError` says what cannot be. `label` must be set."""
        from toolwire.tools.schema.signature import signature_of  # noqa: PLC0415 - loads Pydantic

        if self.timeout is not None and not self.timeout > 0:
            raise self.wrong(f"timeout must be over 0 seconds, got {self.timeout!r}")
        if inspect.isasyncgenfunction(self.function) or inspect.isgeneratorfunction(self.function):
            raise self.wrong("a generator gives no one result; return a list instead")
        try:
            self.signature = signature_of(self.function, context_type=Context, name=self.name)
        except ToolDefinitionError as error:
            raise self.wrong(str(error).removeprefix(f"tool {self.name!r}: ")) from error.__cause__
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
            raise self.wrong(str(error)) from None

    @property
    def threaded(self) -> bool:
        """True if a worker thread runs it."""
        return not self.is_async and not self.inline

    def wrong(self, what: str) -> ToolDefinitionError:
        """An error about its definition."""
        return ToolDefinitionError(f"{self.label[0].lower()}{self.label[1:]}: {what}")

    def values(self, texts: dict[str, Any]) -> dict[str, Any]:
        """The arguments in the types that the function asks for, or `InvalidArguments`."""
        return from_texts(self.signature.parameters, texts)

    def invoke(self, values: dict[str, Any], context: Context[Any] | None) -> Any:
        """Call the function with validated values. Gives its result, or an awaitable of it."""
        args, kwargs = self.signature.arguments_for(values, context)
        return self.function(*args, **kwargs)

    def extras(self) -> dict[str, Any]:
        """The parts of the definition that every kind has."""
        if not isinstance(self.meta, dict | None):
            raise self.wrong(f"meta must be a dict, got {self.meta!r}")
        try:
            found = plain({"icons": [_icon(each) for each in self.icons or ()], "_meta": self.meta or {}})[0]
        except BadResult as error:
            raise self.wrong(str(error)) from error
        return {key: value for key, value in found.items() if value}


def checked_settings(kind: type[ExposedFunction], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that were given; a misspelt one is named."""
    known = {each.name for each in fields(kind) if each.init} - {"function", "uri"}
    unknown = sorted(settings.keys() - known)
    if unknown:
        what = kind.__name__.removeprefix("Served").lower()
        raise ToolDefinitionError(
            f"a {what} has no setting {', '.join(unknown)}: it has {', '.join(sorted(known))}"
        )
    return {key: value for key, value in settings.items() if value is not None}


def function_name(function: Any) -> str:
    """The name of a function, or of the class of an object that can be called."""
    if not callable(function):
        raise ToolDefinitionError(f"a function is needed, got {function!r}")
    return getattr(function, "__name__", None) or type(function).__name__


def from_texts(parameters: Parameters, texts: dict[str, Any]) -> dict[str, Any]:
    """Typed values from strings: `"5"` for an int, `"true"` for a bool, JSON for what has no other spelling.

    A string that fits as it is stays one. Of those that do not, the ones that are JSON get a second chance as what
    they spell: lists, objects, null, and numbers where a `Literal` or `Enum` has some.
    """
    try:
        return parameters.validate(texts)
    except InvalidArguments as error:
        first = error
    spelled = {name: _spelled(texts[name]) for name in _at_fault(first) if isinstance(texts.get(name), str)}
    again = {name: value for name, value in spelled.items() if not isinstance(value, str)}
    try:
        return parameters.validate({**texts, **again})
    except InvalidArguments as second:
        # Inside of lists and objects the second look says more; anything else is shown as it came.
        deep = {name for name, value in again.items() if isinstance(value, list | dict)}
        shown = _at_fault(second) - deep
        raise InvalidArguments(
            [each for each in first.violations if _root(each) in shown]
            + [each for each in second.violations if _root(each) in deep]
        ) from None


def _at_fault(error: InvalidArguments) -> set[str]:
    return {_root(each) for each in error.violations}


def _root(violation: Violation) -> str:
    """The argument that it is about."""
    return re.split(r"[.\[]", violation.path, maxsplit=1)[0]


def _spelled(text: str) -> Any:
    try:
        return loads(text.encode())
    except ValueError:
        return text


def _icon(given: Any) -> dict[str, Any]:
    icon = given.model_dump(by_alias=True, exclude_none=True) if hasattr(given, "model_dump") else given
    if not isinstance(icon, Mapping) or not isinstance(icon.get("src"), str):
        raise BadResult(f'an icon is a dict such as {{"src": "https://..."}}, not {given!r}', type(given))
    return dict(icon)
