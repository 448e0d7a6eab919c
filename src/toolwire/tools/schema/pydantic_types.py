"""Compiles Python types to parameters, with Pydantic.

Owns the validator and JSON schema that are made from annotations, the differences of that schema from Pydantic's
own, and the texts of Pydantic's errors. Arguments are validated as JSON, not as Python values: then a string can be
a date and a value an enum member, in unions and strict models too, and only JSON values are accepted. Must not know
signatures.
"""

import collections.abc
import re
import sys
import typing
import warnings
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Final, Literal, NoReturn, NotRequired, Union
from weakref import WeakKeyDictionary

import typing_extensions
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import SchemaError, core_schema
from typing_extensions import TypedDict

from toolwire._protocol.json_codec import dumps, loads
from toolwire._support.schema_structure import resolve
from toolwire._support.words import late_pattern
from toolwire.tools.schema.arguments import (
    REQUIRED,
    TOO_LARGE_TO_NAME,
    DefinitionError,
    InvalidArguments,
    Violation,
    format_path,
    got,
    shorten,
    to_json,
    unknown_argument,
)

HINT: Final = (
    "use JSON-like types: str, int, float, bool, None, list, dict, tuple, set, Literal, Enum, dates, UUID, "
    "dataclasses, TypedDict, NamedTuple or Pydantic models"
)
_NO_SCHEMA: Final = late_pattern(
    r"Unable to generate pydantic-core schema for <class '(?:.*\.)?(?P<name>\w+)'>"
)
# The exceptions for a type that has no schema, from Pydantic or from the type's own hooks.
BUILD_ERRORS: Final = (
    PydanticUserError,
    SchemaError,
    TypeError,
    ValueError,
    NameError,
    AttributeError,
    RecursionError,
)
# The end of Pydantic's messages that describes the value, which is shown anyway.
_REASON: Final = late_pattern(r", (unable to |got a ).*", re.DOTALL)
_MAX_NAMED: Final = 1_000  # beyond this number of errors, only some are described
_OF_WHOLE_LISTS: Final = ("too_short",)  # errors that a list may have because it was cut
_UNKNOWN: Final = ("extra_forbidden", "unexpected_keyword_argument", "unexpected_positional_argument")


class TypedParameters:
    """Parameters defined by Python types. The values are Python objects, one for each given argument."""

    def __init__(
        self, adapter: TypeAdapter[Any], json_schema: dict[str, Any], *, closed: bool = False
    ) -> None:
        self.json_schema = json_schema
        self._validate_json = adapter.validator.validate_json
        # Models without a setting for extra fields refuse them.
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
            if count > _MAX_NAMED:
                self._name_some(arguments, count)
            raise InvalidArguments(_violations(error, arguments, self.json_schema)) from None
        return values

    def _name_some(self, arguments: dict[str, Any], count: int) -> NoReturn:
        """Raise `InvalidArguments` for very many errors, of which only some are described."""
        part = shorten(arguments, _MAX_NAMED)
        found = [] if part is None else self._find_errors(part)
        if not found:
            raise InvalidArguments([Violation("", TOO_LARGE_TO_NAME)])
        raise InvalidArguments(found, max(0, count - len(found)))

    def _find_errors(self, arguments: dict[str, Any]) -> list[Violation]:
        try:
            self._validate_json(dumps(arguments), extra=self._extra)
        except ValidationError as error:
            return _violations(error, arguments, self.json_schema, ignored=_OF_WHOLE_LISTS)
        return []


def build(
    name: str,
    annotations: Mapping[str, Any],
    optional: Iterable[str] = (),
    namespace: Mapping[str, Any] | None = None,
    *,
    closed: bool = True,
) -> TypedParameters:
    """Compile parameters. `closed` refuses unknown arguments, and unknown fields in nested classes.

    For `namespace` see `adapter_of`. `DefinitionError` names the parameter whose type has no schema.
    """
    try:
        return _build(name, annotations, optional, namespace, closed=closed)
    except DefinitionError:
        raise
    except BUILD_ERRORS as error:
        raise _find_culprit(annotations, namespace, error) from error


def open_form(given: Any) -> TypedParameters:
    """Compile a dict from names to types, or a class. Unknown arguments are accepted."""
    if isinstance(given, dict):
        return build(
            "arguments", {name: readable(annotation) for name, annotation in given.items()}, closed=False
        )
    try:
        adapter = adapter_of(readable(given))
        json_schema, _ = input_schema(adapter, closed=False)
    except BUILD_ERRORS as error:
        raise no_schema_error(given, error) from error
    return TypedParameters(adapter, _require_object(given, json_schema))


def _build(
    name: str,
    annotations: Mapping[str, Any],
    optional: Iterable[str],
    namespace: Mapping[str, Any] | None,
    *,
    closed: bool,
) -> TypedParameters:
    left_out = set(optional)
    fields = {
        key: NotRequired[annotation] if key in left_out else annotation
        for key, annotation in annotations.items()
    }
    make: Any = TypedDict  # with a name and fields that a type checker cannot know
    shape = make(name, fields)
    if closed:
        shape.__pydantic_config__ = ConfigDict(extra="forbid")
    adapter = adapter_of(shape, namespace)
    json_schema, closed = input_schema(adapter, closed=closed)
    if len(json_schema["properties"]) != len(fields):
        raise DefinitionError("two parameters have the same name in JSON: change an alias")
    # Converted to JSON and back, so that it is valid JSON and shares no part with another schema.
    return TypedParameters(adapter, loads(dumps(json_schema)), closed=closed)


def _find_culprit(
    annotations: Mapping[str, Any], namespace: Mapping[str, Any] | None, error: Exception
) -> DefinitionError:
    """Make the error for the parameter that cannot be compiled, found by compiling each alone."""
    for name, annotation in annotations.items():
        try:
            _build(name, {name: annotation}, (), namespace, closed=True)
        except BUILD_ERRORS as its_error:
            return DefinitionError(f"parameter {name!r}: {no_schema_error(annotation, its_error)}")
    return DefinitionError(f"the parameters have no JSON schema: {gist(error)}; {HINT}")


def adapter_of(annotation: Any, namespace: Mapping[str, Any] | None = None) -> TypeAdapter[Any]:
    """Return the Pydantic adapter of a type. Raises one of `BUILD_ERRORS`.

    `namespace` has names that its classes may use in strings beside those of their module: locals of a function.
    """
    with warnings.catch_warnings():
        # These are for the author of a class (ReadOnly, shadowed names), and repeated at each use of it.
        warnings.simplefilter("ignore", UserWarning)
        adapter = TypeAdapter(annotation)
        if not adapter.pydantic_complete:
            adapter.rebuild(
                _types_namespace=namespace or {}
            )  # raises the NameError that Pydantic has put off
        return adapter


def input_schema(adapter: TypeAdapter[Any], *, closed: bool) -> tuple[dict[str, Any], bool]:
    """Return the schema of arguments, and whether classes refuse unknown fields, as `closed` requests.

    If one class allows extra fields explicitly, all classes keep their own settings: Pydantic can only refuse extra
    fields everywhere or nowhere.
    """
    generator = Generator(closed=closed)
    schema = generator.object_schema(adapter.core_schema, "validation")
    if closed and generator.lenient and generator.undecided:
        return Generator(closed=False).object_schema(adapter.core_schema, "validation"), False
    return schema, closed and generator.undecided


def output_schema(annotation: Any) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    """Return the adapter and schema of a result type. `DefinitionError` unless it is an object."""
    try:
        adapter = adapter_of(readable(annotation))
        schema = Generator(closed=False).object_schema(adapter.core_schema, "serialization")
    except BUILD_ERRORS as error:
        raise no_schema_error(annotation, error) from error
    return adapter, _require_object(annotation, schema)


def _require_object(annotation: Any, schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type") != "object":
        raise DefinitionError(
            f"{show_type(annotation)} is not an object: use a dataclass, TypedDict, Pydantic model or "
            "dict[str, ...]"
        )
    return schema


def no_schema_error(annotation: Any, error: BaseException) -> DefinitionError:
    """Make the error for a type that has no JSON schema."""
    reason, hint = gist(error), HINT
    if isinstance(error, NameError):
        hint = "import or define the name at module level, outside of TYPE_CHECKING"
        if f"ForwardRef({error.name!r}" in repr(annotation):
            reason = f"{error.name!r} is an alias that contains itself"
            hint = "define it with TypeAliasType of typing_extensions, or use pydantic.JsonValue for any JSON"
    return DefinitionError(f"{show_type(annotation)} has no JSON schema: {reason}; {hint}")


def show_type(annotation: Any) -> str:
    """Show an annotation approximately as it was written."""
    if typing.get_origin(annotation) is typing.Annotated:
        return show_type(typing.get_args(annotation)[0])
    if isinstance(annotation, type) and not hasattr(annotation, "__origin__"):
        return annotation.__qualname__ if annotation.__module__ == "builtins" else _qualify(annotation)
    return str(annotation).replace("typing.", "")


def _qualify(given: type) -> str:
    return f"{given.__module__}.{given.__qualname__}"


def gist(error: BaseException) -> str:
    """Return the most useful line of an error, without Pydantic's advice to authors of models."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if unknown := _NO_SCHEMA.match(lines[0]):
        return f"{unknown['name']} is a class that has no JSON form"
    return (
        lines[-1 if isinstance(error, SchemaError) else 0]
        .partition(". Set `arbitrary_types_allowed")[0]
        .strip()
    )


def _violations(
    error: ValidationError, arguments: Any, json_schema: dict[str, Any], ignored: Collection[str] = ()
) -> list[Violation]:
    """Describe the errors that Pydantic found, except those of the types in `ignored`."""
    known = list(json_schema.get("properties", ()))
    found = []
    for each in error.errors(include_url=False, include_context=False):
        if each["type"] in ignored:
            continue
        missing = each["type"].startswith("missing")
        path = _path(each["loc"], arguments, missing=missing)
        if missing:
            message = REQUIRED
        elif each["type"] in _UNKNOWN:
            message = unknown_argument(known if len(each["loc"]) == 1 else ())
        else:
            message = _message(each["type"], each["msg"], each["input"])
            if each["loc"] and each["loc"][-1] == "[key]":
                message = f"key: {message}"
        found.append(Violation(path, message))
    return found


def _message(kind: str, text: str, value: Any) -> str:
    if kind == "json_invalid":  # the value is too deep, or has a lone surrogate
        return f"The arguments cannot be read: {text.removeprefix('Invalid JSON: ')}"
    if kind in ("value_error", "assertion_error"):  # the text of the model's author
        return got(text.removeprefix("Value error, ").removeprefix("Assertion failed, "), value)
    return got(_REASON.sub("", text), value)


def _path(location: tuple[str | int, ...], arguments: Any, *, missing: bool) -> str:
    """Convert a location of Pydantic to a path in the arguments.

    A location also contains names of union branches and validators. A step that is not in the arguments is one of
    these, except the last step of a missing field.
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
    return format_path(steps)


# --- annotations, prepared for Pydantic ---

_QUALIFIERS: Final = (typing.Required, typing.NotRequired, typing_extensions.ReadOnly)
_LAZY: Final = (collections.abc.Iterable, collections.abc.Collection)
_OPAQUE: Final = (Literal, collections.abc.Callable)
UNIONS: Final = (Union, type(int | None))
_NULLABLE: Final = (Any, object, None, type(None))


def readable(annotation: Any, namespace: Mapping[str, Any] | None = None) -> Any:
    """Convert an annotation to a form that Pydantic accepts and describes, at any depth outside of classes.

    Texts become descriptions, lazy types lists, and a TypedDict of the standard library one that Pydantic accepts
    on this Python. `namespace` has names that the annotations in it may use beside those of their module, such as
    the locals of the function in which it is defined.
    """
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _annotate(readable(arguments[0], namespace), annotation.__metadata__)
    if _is_refused_typed_dict(origin or annotation):
        return Annotated[annotation, _TypedDictSchema(namespace or {})]
    if _is_refused_typed_dict(getattr(annotation, "__supertype__", None)):  # a NewType
        return readable(annotation.__supertype__, namespace)
    inner = tuple(arguments if origin in _OPAQUE else (readable(each, namespace) for each in arguments))
    if annotation in _LAZY or origin in _LAZY:
        return _parametrize(list, inner or (Any,))
    if inner == arguments:
        return annotation
    return _parametrize(Union if origin in UNIONS else origin, inner)


def _is_refused_typed_dict(given: Any) -> bool:
    """True if Pydantic refuses a TypedDict: before Python 3.12 it accepts only those of typing_extensions."""
    return sys.version_info < (3, 12) and typing.is_typeddict(given) and type(given).__module__ == "typing"


class _TypedDictSchema:
    """Metadata of `Annotated` that makes Pydantic treat a TypedDict as an equal one of typing_extensions.

    The user's class is not changed. Pydantic reads the fields of other classes itself: a dataclass or named tuple
    with such a TypedDict inside gets its error, which says to import TypedDict from typing_extensions.
    """

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace = dict(namespace)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        given, arguments = typing.get_origin(source) or source, typing.get_args(source)
        # One for each parametrisation, so that a TypedDict which contains itself is recognised.
        twins = _twins.setdefault(given, {})
        if arguments not in twins:
            twins[arguments] = self._twin(given, arguments)
        return handler.generate_schema(twins[arguments])

    def _twin(self, given: Any, arguments: tuple[Any, ...]) -> Any:
        hints = typing.get_type_hints(given, localns=self._namespace, include_extras=True)
        bound = dict(zip(getattr(given, "__parameters__", ()), arguments, strict=False))
        make: Any = TypedDict  # with a name and fields that a type checker cannot know
        twin = make(
            given.__name__, {name: self._field(given, name, bound, hint) for name, hint in hints.items()}
        )
        for attribute in ("__module__", "__qualname__", "__doc__", "__pydantic_config__"):
            if attribute in vars(given):
                setattr(twin, attribute, vars(given)[attribute])
        return twin

    def _field(self, given: Any, name: str, bound: dict[Any, Any], hint: Any) -> Any:
        """Return the type of a field, marked as required or not."""
        hint = readable(_substitute(hint, bound), self._namespace)
        inner, qualifiers = hint, set()
        while (origin := typing.get_origin(inner)) in (*_QUALIFIERS, Annotated):
            qualifiers.add(origin)
            inner = typing.get_args(inner)[0]
        if qualifiers & {typing.Required, typing.NotRequired}:
            # Read from the hint and not from __required_keys__, which is wrong where annotations are strings.
            return hint
        return typing.Required[hint] if name in given.__required_keys__ else NotRequired[hint]


_twins: WeakKeyDictionary[Any, dict[tuple[Any, ...], Any]] = WeakKeyDictionary()


def _substitute(hint: Any, bound: dict[Any, Any]) -> Any:
    """Fill in the type variables of a generic TypedDict."""
    if isinstance(hint, typing.TypeVar):
        return bound.get(hint, hint)
    variables = getattr(hint, "__parameters__", ())
    return hint[tuple(bound.get(each, each) for each in variables)] if bound and variables else hint


def find_description(metadata: tuple[Any, ...]) -> str | None:
    """Return the text in the metadata of an `Annotated`: a string, or an object with `.documentation`."""
    for item in metadata:
        text = item if isinstance(item, str) else getattr(item, "documentation", None)
        if isinstance(text, str):
            return text
    return None


def with_metadata(annotation: Any, *metadata: Any) -> Any:
    """Add metadata to an annotation."""
    return Annotated[annotation, *metadata] if metadata else annotation


def nullable(annotation: Any) -> Any:
    """Add None to an annotation. Metadata stays around the whole, where aliases and descriptions have effect."""
    if typing.get_origin(annotation) is Annotated:
        return with_metadata(nullable(typing.get_args(annotation)[0]), *annotation.__metadata__)
    return annotation if _admits_none(annotation) else _parametrize(Union, (annotation, None))


def metadata_of(annotation: Any) -> tuple[Any, ...]:
    """Return the metadata of the `Annotated` around a type, inside or outside of `Required` and the like."""
    found: tuple[Any, ...] = ()
    while (origin := typing.get_origin(annotation)) is Annotated or origin in _QUALIFIERS:
        found = (*getattr(annotation, "__metadata__", ()), *found)
        annotation = typing.get_args(annotation)[0]
    return found


def has_default(annotation: Any) -> bool:
    """True if a `Field(...)` around the type has a default."""
    return any(isinstance(item, FieldInfo) and not item.is_required() for item in metadata_of(annotation))


def _parametrize(origin: Any, arguments: tuple[Any, ...]) -> Any:
    """Make a generic type with arguments that are only known at run time."""
    return origin[arguments if len(arguments) > 1 else arguments[0]]


def _annotate(annotation: Any, metadata: tuple[Any, ...]) -> Any:
    text = find_description(metadata)
    # In front, so that the description of a later Field wins.
    first = () if text is None else (Field(description=text),)
    return with_metadata(annotation, *first, *(item for item in metadata if not isinstance(item, str)))


def _admits_none(annotation: Any) -> bool:
    if annotation in _NULLABLE or isinstance(annotation, typing.TypeVar):
        return True
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in UNIONS:
        return any(_admits_none(argument) for argument in arguments)
    if origin is Literal:
        return None in arguments
    if origin is Annotated:
        return _admits_none(arguments[0])
    for attribute in ("__supertype__", "__value__"):  # a NewType, a named alias
        if (inner := getattr(annotation, attribute, None)) is not None:
            return _admits_none(inner)
    return False


# --- JSON schemas from Pydantic's own, without made-up titles ---

_FIRST: Final = ("type", "title", "description", "properties", "required", "additionalProperties")


class Generator(GenerateJsonSchema):
    """Makes one schema, and records which settings for extra fields its classes have."""

    def __init__(self, *, closed: bool) -> None:
        super().__init__(by_alias=True, ref_template="#/$defs/{model}")
        self.closed = closed
        """True if a class that has no setting for it refuses unknown fields."""
        self.undecided = False
        """True if a class has settings of its own, without one for extra fields."""
        self.lenient = False
        """True if a class allows extra fields explicitly."""
        self._enums: set[str] = set()

    def object_schema(self, schema: Any, mode: Literal["validation", "serialization"]) -> dict[str, Any]:
        """Make the schema of a type. A reference at the top is replaced by its definition."""
        result = self.generate(schema, mode=mode)
        for definition in result.get("$defs", {}).values():
            if "properties" not in definition and definition.get("title") in self._enums:
                del definition["title"]
        while (reference := result.pop("$ref", None)) is not None:
            result = {**resolve(reference, result), **result}
        return _sort_keys(result)

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:
        """Keep the order of the fields."""
        del parent_key
        return value

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return False: a field has a title only if its author gave it one."""
        del schema
        return False

    def emit_warning(self, kind: Any, detail: str) -> None:
        """Refuse a union branch that has no schema. A default that is not JSON is left out of the schema."""
        if kind == "skipped-choice":
            raise PydanticInvalidForJsonSchema(detail)

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Make the schema of a Pydantic model."""
        return self._of_class(super().model_schema(schema), schema["cls"], schema["cls"].model_config)

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        """Make the schema of a dataclass, standard or Pydantic's."""
        config = getattr(schema["cls"], "__pydantic_config__", None)
        return self._of_class(super().dataclass_schema(schema), schema["cls"], config)

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        """Make the schema of a TypedDict."""
        result = super().typed_dict_schema(schema)
        cls = schema.get("cls")
        return (
            result if cls is None else self._of_class(result, cls, getattr(cls, "__pydantic_config__", None))
        )

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        """Make the schema of an enum, by value. Pydantic adds its name as a title, which is removed at the end."""
        self._enums.add(schema["cls"].__name__)
        return super().enum_schema(schema)

    def is_subclass_schema(self, schema: core_schema.IsSubclassSchema) -> JsonSchemaValue:
        """Refuse `type[X]`: its schema would allow any value, and validation none."""
        raise PydanticInvalidForJsonSchema(
            f"the class {schema['cls'].__name__}, or a subclass, is not a JSON value"
        )

    def generator_schema(self, schema: core_schema.GeneratorSchema) -> JsonSchemaValue:
        """Refuse iterators, whose items Pydantic checks only when they are read."""
        del schema
        raise PydanticInvalidForJsonSchema("an iterator cannot be checked before the call; use list[...]")

    def _of_class(self, result: JsonSchemaValue, cls: type[Any], config: Any) -> JsonSchemaValue:
        """Adapt the schema of a class with fields. `config` is None for a class without settings."""
        settings = config or {}
        own_title = "title" in settings or "model_title_generator" in settings
        if not own_title and result.get("title") == cls.__name__:
            del result["title"]
        if "properties" in result:
            extra = settings.get("extra")
            self.lenient |= extra in ("allow", "ignore")
            self.undecided |= config is not None and extra is None
            if self.closed and extra is None:
                result.setdefault("additionalProperties", False)
            _describe(result["properties"], cls)
        return _sort_keys(result)


def _describe(properties: dict[str, Any], cls: type[Any]) -> None:
    """Use the text of `Annotated[T, "text"]` as the description of a field that has none."""
    if issubclass(cls, BaseModel):
        metadata = {name: tuple(field.metadata) for name, field in cls.model_fields.items()}
    else:
        try:
            hints = typing.get_type_hints(cls, include_extras=True)
        except (NameError, TypeError, AttributeError):
            return  # a name that only Pydantic could resolve: the schema has no description then
        metadata = {name: metadata_of(hint) for name, hint in hints.items()}
    for name, items in metadata.items():
        if name in properties and (text := find_description(items)) is not None:
            properties[name].setdefault("description", text)


def _sort_keys(result: dict[str, Any]) -> dict[str, Any]:
    """Sort keys: the most important ones first, definitions last."""
    first = {key: result[key] for key in _FIRST if key in result}
    last = {key: result[key] for key in ("$defs",) if key in result}
    return (
        first | {key: value for key, value in result.items() if key not in first and key not in last} | last
    )
