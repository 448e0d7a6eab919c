"""Python types as parameters, by way of Pydantic.

Owns the build of a validator and a JSON schema from annotations, the differences of that schema from Pydantic's
own, and the words for what Pydantic finds wrong. Arguments are validated as JSON, not as Python values: then text
is a date and a value an enum member in unions and models that are strict, and nothing that only Python knows gets
through. It knows nothing of signatures.
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
from toolwire.tools.schema.arguments import (
    REQUIRED,
    TOO_LARGE_TO_SAY,
    DefinitionError,
    InvalidArguments,
    Violation,
    got,
    path_of,
    shorten,
    to_json,
    unknown_argument,
)

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
        part = shorten(arguments, _NAMED)
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
        return build(
            "arguments", {name: readable(annotation) for name, annotation in given.items()}, closed=False
        )
    try:
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
    """Make the error for a type that has no JSON schema."""
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
    """Describe the errors that Pydantic found, except those of the types in `besides`."""
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
            message = unknown_argument(known if len(each["loc"]) == 1 else ())
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


# --- annotations, made ready for Pydantic ---

_QUALIFIERS: Final = (typing.Required, typing.NotRequired, typing_extensions.ReadOnly)
_LAZY: Final = (collections.abc.Iterable, collections.abc.Collection)
_OPAQUE: Final = (Literal, collections.abc.Callable)
UNIONS: Final = (Union, type(int | None))
_NULLABLE: Final = (Any, object, None, type(None))


def readable(annotation: Any, namespace: Mapping[str, Any] | None = None) -> Any:
    """Return the annotation in a form that Pydantic takes and describes, at any depth outside of classes.

    Texts become descriptions, lazy types lists, and a TypedDict of the standard library one that Pydantic takes on
    this Python. `namespace` has names that the annotations in it may use beside those of their module, such as the
    locals of the function in which it is defined.
    """
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _annotated(readable(arguments[0], namespace), annotation.__metadata__)
    if _is_refused_typed_dict(origin or annotation):
        return Annotated[annotation, _TypedDictSchema(namespace or {})]
    if _is_refused_typed_dict(getattr(annotation, "__supertype__", None)):  # a NewType
        return readable(annotation.__supertype__, namespace)
    inner = tuple(arguments if origin in _OPAQUE else (readable(each, namespace) for each in arguments))
    if annotation in _LAZY or origin in _LAZY:
        return _made(list, inner or (Any,))
    if inner == arguments:
        return annotation
    return _made(Union if origin in UNIONS else origin, inner)


def _is_refused_typed_dict(given: Any) -> bool:
    """Return whether Pydantic refuses a TypedDict: before Python 3.12 it takes only those of typing_extensions."""
    return sys.version_info < (3, 12) and typing.is_typeddict(given) and type(given).__module__ == "typing"


class _TypedDictSchema:
    """Metadata of `Annotated` that has Pydantic read a TypedDict as an equal one of typing_extensions.

    The user's class is not touched. Pydantic reads the fields of other classes itself: a dataclass or named tuple
    with such a TypedDict inside gets its error, which says to import TypedDict from typing_extensions.
    """

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace = dict(namespace)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        given, arguments = typing.get_origin(source) or source, typing.get_args(source)
        # One for each parametrisation, so that a TypedDict which holds itself is seen to be the same.
        twins = _twins.setdefault(given, {})
        if arguments not in twins:
            twins[arguments] = self._twin(given, arguments)
        return handler.generate_schema(twins[arguments])

    def _twin(self, given: Any, arguments: tuple[Any, ...]) -> Any:
        hints = typing.get_type_hints(given, localns=self._namespace, include_extras=True)
        bound = dict(zip(getattr(given, "__parameters__", ()), arguments, strict=False))
        make: Any = TypedDict  # by a name and fields that no type checker can know
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
    """The text in the metadata of an `Annotated`: a plain string, or anything with `.documentation`."""
    for item in metadata:
        text = item if isinstance(item, str) else getattr(item, "documentation", None)
        if isinstance(text, str):
            return text
    return None


def with_metadata(annotation: Any, *metadata: Any) -> Any:
    """The annotation with more metadata."""
    return Annotated[annotation, *metadata] if metadata else annotation


def nullable(annotation: Any) -> Any:
    """The annotation, None allowed. Metadata stays around the whole, where aliases and descriptions count."""
    if typing.get_origin(annotation) is Annotated:
        return with_metadata(nullable(typing.get_args(annotation)[0]), *annotation.__metadata__)
    return annotation if _admits_none(annotation) else _made(Union, (annotation, None))


def metadata_of(annotation: Any) -> tuple[Any, ...]:
    """Return the metadata of the `Annotated` around a type, inside or outside of `Required` and the like."""
    found: tuple[Any, ...] = ()
    while (origin := typing.get_origin(annotation)) is Annotated or origin in _QUALIFIERS:
        found = (*getattr(annotation, "__metadata__", ()), *found)
        annotation = typing.get_args(annotation)[0]
    return found


def has_default(annotation: Any) -> bool:
    """Return whether a `Field(...)` around the type has a default."""
    return any(isinstance(item, FieldInfo) and not item.is_required() for item in metadata_of(annotation))


def _made(origin: Any, arguments: tuple[Any, ...]) -> Any:
    """A generic type with arguments that are known at run time only."""
    return origin[arguments if len(arguments) > 1 else arguments[0]]


def _annotated(annotation: Any, metadata: tuple[Any, ...]) -> Any:
    text = find_description(metadata)
    # In front: what a Field further on says of itself wins.
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
    """Makes one schema, then tells what it has seen."""

    def __init__(self, *, closed: bool) -> None:
        super().__init__(by_alias=True, ref_template="#/$defs/{model}")
        self.closed = closed
        """True if a class that has no setting for it refuses unknown fields."""
        self.undecided = False
        """There is a class with settings of its own that does not say what it thinks of extra fields."""
        self.lenient = False
        """There is a class that allows extra fields by its own word."""
        self._enums: set[str] = set()

    def object_schema(self, schema: Any, mode: Literal["validation", "serialization"]) -> dict[str, Any]:
        """The schema of a type; a top that only refers to a definition is replaced by that definition."""
        result = self.generate(schema, mode=mode)
        for definition in result.get("$defs", {}).values():
            if "properties" not in definition and definition.get("title") in self._enums:
                del definition["title"]
        while (reference := result.pop("$ref", None)) is not None:
            result = {**resolve(reference, result), **result}
        return _ordered(result)

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:
        """Keep the order in which it was written."""
        del parent_key
        return value

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Say no: a field has a title only if its author gave it one."""
        del schema
        return False

    def emit_warning(self, kind: Any, detail: str) -> None:
        """Refuse a part of a union that has no schema; a default that has none is just not shown."""
        if kind == "skipped-choice":
            raise PydanticInvalidForJsonSchema(detail)

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """A Pydantic model."""
        return self._of_class(super().model_schema(schema), schema["cls"], schema["cls"].model_config)

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        """A dataclass, standard or Pydantic's."""
        config = getattr(schema["cls"], "__pydantic_config__", None)
        return self._of_class(super().dataclass_schema(schema), schema["cls"], config)

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        """A TypedDict."""
        result = super().typed_dict_schema(schema)
        cls = schema.get("cls")
        return (
            result if cls is None else self._of_class(result, cls, getattr(cls, "__pydantic_config__", None))
        )

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        """An enumeration, by value. Its name comes back as a title later on, and is taken out at the end."""
        self._enums.add(schema["cls"].__name__)
        return super().enum_schema(schema)

    def is_subclass_schema(self, schema: core_schema.IsSubclassSchema) -> JsonSchemaValue:
        """Refuse `type[X]`, for which Pydantic would allow any value and then take none."""
        raise PydanticInvalidForJsonSchema(
            f"the class {schema['cls'].__name__}, or a subclass, is no JSON value"
        )

    def generator_schema(self, schema: core_schema.GeneratorSchema) -> JsonSchemaValue:
        """Refuse iterators, whose items Pydantic checks only when they are read."""
        del schema
        raise PydanticInvalidForJsonSchema("an iterator cannot be checked before the call; use list[...]")

    def _of_class(self, result: JsonSchemaValue, cls: type[Any], config: Any) -> JsonSchemaValue:
        """Adapt the schema of a class with fields. `config` is None for a class without settings of its own."""
        settings = config or {}
        if "title" not in settings and "model_title_generator" not in settings:
            _drop_title(result, cls)
        if "properties" in result:
            extra = settings.get("extra")
            self.lenient |= extra in ("allow", "ignore")
            self.undecided |= config is not None and extra is None
            if self.closed and extra is None:
                result.setdefault("additionalProperties", False)
            _describe(result["properties"], cls)
        return _ordered(result)


def _drop_title(result: JsonSchemaValue, cls: type[Any]) -> JsonSchemaValue:
    if result.get("title") == cls.__name__:
        del result["title"]
    return result


def _describe(properties: dict[str, Any], cls: type[Any]) -> None:
    """Use the text of `Annotated[T, "text"]` as the description of a field that has none."""
    if issubclass(cls, BaseModel):
        metadata = {name: tuple(field.metadata) for name, field in cls.model_fields.items()}
    else:
        try:
            hints = typing.get_type_hints(cls, include_extras=True)
        except (NameError, TypeError, AttributeError):
            return  # a name that only Pydantic could resolve: there is a schema, just no text
        metadata = {name: metadata_of(hint) for name, hint in hints.items()}
    for name, items in metadata.items():
        if name in properties and (text := find_description(items)) is not None:
            properties[name].setdefault("description", text)


def _ordered(result: dict[str, Any]) -> dict[str, Any]:
    """The keys that a reader looks for, before the others; definitions last."""
    first = {key: result[key] for key in _FIRST if key in result}
    last = {key: result[key] for key in ("$defs",) if key in result}
    return (
        first | {key: value for key, value in result.items() if key not in first and key not in last} | last
    )
