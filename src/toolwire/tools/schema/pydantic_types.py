"""Python types as parameters, by way of Pydantic.

Owns the build of a validator and a JSON schema from named annotations, and the words for what Pydantic finds wrong.
Arguments are validated as JSON, not as Python values: then text is a date and a value an enum member in unions and
models that are strict, and nothing that only Python knows gets through. It knows nothing of signatures.
"""

import re
import typing
import warnings
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Literal, NoReturn, NotRequired

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import SchemaError
from typing_extensions import TypedDict

from toolwire._protocol.json_codec import dumps, loads
from toolwire.tools.schema.annotations import readable
from toolwire.tools.schema.generate import Generator
from toolwire.tools.schema.parameters import (
    REQUIRED,
    TOO_LARGE_TO_SAY,
    DefinitionError,
    InvalidArguments,
    Violation,
    got,
    path_of,
    shortened,
    to_json,
    unknown,
)
from toolwire.tools.schema.typeddict import teach

HINT: Final = (
    "use JSON-like types: str, int, float, bool, None, list, dict, tuple, set, Literal, Enum, dates, UUID, "
    "dataclasses, TypedDict, NamedTuple or Pydantic models"
)
# What a type that has no schema raises, be it from Pydantic or from the type's own hooks.
BUILD_ERRORS: Final = (
    PydanticUserError,
    SchemaError,
    TypeError,
    ValueError,
    NameError,
    AttributeError,
    RecursionError,
)
# What Pydantic adds about a value that is shown anyway.
_REASON: Final = re.compile(r", (unable to |got a ).*", re.DOTALL)
_NAMED: Final = 1_000  # mistakes that are all put into words
_OF_WHOLE_LISTS: Final = ("too_short",)  # what is wrong with a list only because it is cut
_UNKNOWN: Final = ("extra_forbidden", "unexpected_keyword_argument", "unexpected_positional_argument")


class TypedParameters:
    """Parameters by named types. The values are Python objects, one for each argument that came."""

    def __init__(
        self, adapter: TypeAdapter[Any], json_schema: dict[str, Any], *, closed: bool = False
    ) -> None:
        self.json_schema = json_schema
        self._validate_json = adapter.validator.validate_json
        # Models that do not say what they think of extra fields are told to refuse them.
        self._extra: Literal["forbid"] | None = "forbid" if closed else None

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        data = to_json(arguments)
        try:
            values: dict[str, Any] = (
                self._validate_json(data)
                if self._extra is None
                else self._validate_json(data, extra=self._extra)
            )
        except ValidationError as error:
            count = error.error_count()
            if count > _NAMED:
                self._name_some(arguments, count)
            raise InvalidArguments(_violations(error, arguments, self.json_schema)) from None
        return values

    def _name_some(self, arguments: dict[str, Any], count: int) -> NoReturn:
        """Raise `InvalidArguments` for very many mistakes, of which some are named."""
        part = shortened(arguments, _NAMED)
        found = [] if part is None else self._mistakes(part)
        if not found:
            raise InvalidArguments([Violation("", TOO_LARGE_TO_SAY)])
        raise InvalidArguments(found, max(0, count - len(found)))

    def _mistakes(self, arguments: dict[str, Any]) -> list[Violation]:
        try:
            self._validate_json(dumps(arguments), extra=self._extra)
        except ValidationError as error:
            return _violations(error, arguments, self.json_schema, besides=_OF_WHOLE_LISTS)
        return []


def build(
    name: str, annotations: Mapping[str, Any], optional: Iterable[str] = (), *, closed: bool = True
) -> TypedParameters:
    """Parameters by name. `closed` refuses what is not named, in nested classes too.

    `DefinitionError` names the parameter whose type has no schema.
    """
    try:
        return _build(name, annotations, optional, closed=closed)
    except DefinitionError:
        raise
    except BUILD_ERRORS as error:
        raise _culprit(annotations, error) from error


def open_form(given: Any) -> TypedParameters:
    """Parameters by a dict of names to types, or by a class. What is not named is let through."""
    if isinstance(given, dict):
        for annotation in given.values():
            teach(annotation)
        return build(
            "arguments", {name: readable(annotation) for name, annotation in given.items()}, closed=False
        )
    try:
        teach(given)
        adapter = adapter_of(readable(given))
        json_schema, _ = input_schema(adapter, closed=False)
    except BUILD_ERRORS as error:
        raise no_schema(given, error) from error
    return TypedParameters(adapter, _must_be_object(given, json_schema))


def _build(
    name: str, annotations: Mapping[str, Any], optional: Iterable[str], *, closed: bool
) -> TypedParameters:
    left_out = set(optional)
    fields = {
        key: NotRequired[annotation] if key in left_out else annotation
        for key, annotation in annotations.items()
    }
    make: Any = TypedDict  # by a name and fields that no type checker can know
    shape = make(name, fields)
    if closed:
        shape.__pydantic_config__ = ConfigDict(extra="forbid")
    adapter = adapter_of(shape)
    json_schema, closed = input_schema(adapter, closed=closed)
    if len(json_schema["properties"]) != len(fields):
        raise DefinitionError("two parameters have the same name on the wire: change an alias")
    # Through JSON and back: what goes on the wire can go there, and no part of it is shared.
    return TypedParameters(adapter, loads(dumps(json_schema)), closed=closed)


def _culprit(annotations: Mapping[str, Any], error: Exception) -> DefinitionError:
    """Name the parameter that cannot be built, found by building each alone."""
    for name, annotation in annotations.items():
        try:
            _build(name, {name: annotation}, (), closed=True)
        except BUILD_ERRORS as its_error:
            return DefinitionError(f"parameter {name!r}: {no_schema(annotation, its_error)}")
    return DefinitionError(f"the parameters have no JSON schema: {gist(error)}; {HINT}")


def adapter_of(annotation: Any) -> TypeAdapter[Any]:
    """Pydantic's view of a type. Raises one of `BUILD_ERRORS`."""
    with warnings.catch_warnings():
        # Advice to the author of a class (ReadOnly, shadowed names), repeated at each use of it.
        warnings.simplefilter("ignore", UserWarning)
        return TypeAdapter(annotation)


def input_schema(adapter: TypeAdapter[Any], *, closed: bool) -> tuple[dict[str, Any], bool]:
    """The schema of what goes in; `closed` asks for, and tells, whether classes refuse fields that they lack.

    They keep their own rules when one of them allows extra fields by its own word: Pydantic can be told to refuse
    them everywhere or nowhere.
    """
    generator = Generator(closed=closed)
    schema = generator.object_schema(adapter.core_schema, "validation")
    if closed and generator.lenient and generator.undecided:
        return Generator(closed=False).object_schema(adapter.core_schema, "validation"), False
    return schema, closed and generator.undecided


def output_schema(annotation: Any) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    """Adapter and schema of what comes out. `DefinitionError` unless it is an object."""
    try:
        teach(annotation)
        adapter = adapter_of(readable(annotation))
        schema = Generator(closed=False).object_schema(adapter.core_schema, "serialization")
    except BUILD_ERRORS as error:
        raise no_schema(annotation, error) from error
    return adapter, _must_be_object(annotation, schema)


def _must_be_object(annotation: Any, schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type") != "object":
        raise DefinitionError(
            f"{shown_type(annotation)} is no object: use a dataclass, TypedDict, Pydantic model or dict[str, ...]"
        )
    return schema


def no_schema(annotation: Any, error: BaseException) -> DefinitionError:
    """What to say of a type that has none."""
    return DefinitionError(f"{shown_type(annotation)} has no JSON schema: {gist(error)}; {HINT}")


def shown_type(annotation: Any) -> str:
    """An annotation as its author wrote it, more or less."""
    if typing.get_origin(annotation) is typing.Annotated:
        return shown_type(typing.get_args(annotation)[0])
    if isinstance(annotation, type) and not hasattr(annotation, "__origin__"):
        return annotation.__qualname__ if annotation.__module__ == "builtins" else _qualified(annotation)
    return str(annotation).replace("typing.", "")


def _qualified(given: type) -> str:
    return f"{given.__module__}.{given.__qualname__}"


def gist(error: BaseException) -> str:
    """The line of an error that says the most, without Pydantic's advice to authors of models."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return (
        lines[-1 if isinstance(error, SchemaError) else 0]
        .partition(". Set `arbitrary_types_allowed")[0]
        .strip()
    )


def _violations(
    error: ValidationError, arguments: Any, json_schema: dict[str, Any], besides: Collection[str] = ()
) -> list[Violation]:
    """What is wrong, in words, but for errors of the types in `besides`."""
    known = list(json_schema.get("properties", ()))
    found = []
    for each in error.errors(include_url=False, include_context=False):
        if each["type"] in besides:
            continue
        missing = each["type"].startswith("missing")
        path = _path(each["loc"], arguments, missing=missing)
        if missing:
            message = REQUIRED
        elif each["type"] in _UNKNOWN:
            message = unknown(known if len(each["loc"]) == 1 else ())
        else:
            message = _message(each["type"], each["msg"], each["input"])
            if each["loc"] and each["loc"][-1] == "[key]":
                message = f"key: {message}"
        found.append(Violation(path, message))
    return found


def _message(kind: str, text: str, value: Any) -> str:
    if kind == "json_invalid":  # it was JSON once: the value is too deep, or has half a surrogate pair
        return f"The arguments cannot be read: {text.removeprefix('Invalid JSON: ')}"
    if kind in ("value_error", "assertion_error"):  # the author's own words
        return got(text.removeprefix("Value error, ").removeprefix("Assertion failed, "), value)
    return got(_REASON.sub("", text), value)


def _path(location: tuple[str | int, ...], arguments: Any, *, missing: bool) -> str:
    """The location as a path in the arguments.

    Pydantic also names the branch of a union, or a validator, that it was in. These are told from keys by walking
    the arguments along: what is not there was no key, but for the last step of something that is missing.
    """
    steps: list[str | int] = []
    here = arguments
    for number, step in enumerate(location, start=1):
        there = isinstance(here, dict) and step in here
        if there or (isinstance(here, list) and isinstance(step, int) and step < len(here)):
            here = here[step]
        elif not (missing and number == len(location)):
            continue
        steps.append(step)
    return path_of(steps)
