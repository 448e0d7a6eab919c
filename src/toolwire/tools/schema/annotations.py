"""Annotations, made ready for Pydantic.

Owns three rewritings: text in `Annotated` becomes a description, types that are read lazily become lists (arguments
are checked before a handler runs), and a default of None makes a type nullable. It builds no schema.
"""

import collections.abc
import typing
from typing import Annotated, Any, Final, Literal, Union

import typing_extensions
from pydantic import Field
from pydantic.fields import FieldInfo

_QUALIFIERS: Final = (typing.Required, typing.NotRequired, typing_extensions.ReadOnly)
_LAZY: Final = (collections.abc.Iterable, collections.abc.Collection)
_OPAQUE: Final = (Literal, collections.abc.Callable)
UNIONS: Final = (Union, type(int | None))
_NULLABLE: Final = (Any, object, None, type(None))


def readable(annotation: Any) -> Any:
    """The annotation with texts as descriptions and lazy types as lists, at any depth outside of classes."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _annotated(readable(arguments[0]), annotation.__metadata__)
    inner = tuple(arguments if origin in _OPAQUE else map(readable, arguments))
    if annotation in _LAZY or origin in _LAZY:
        return _made(list, inner or (Any,))
    if inner == arguments:
        return annotation
    return _made(Union if origin in UNIONS else origin, inner)


def described(metadata: tuple[Any, ...]) -> str | None:
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
    """What the `Annotated` around a type says, be it inside or outside of `Required` and its like."""
    found: tuple[Any, ...] = ()
    while (origin := typing.get_origin(annotation)) is Annotated or origin in _QUALIFIERS:
        found = (*getattr(annotation, "__metadata__", ()), *found)
        annotation = typing.get_args(annotation)[0]
    return found


def has_default(annotation: Any) -> bool:
    """Whether a `Field(...)` around the type has a default."""
    return any(isinstance(item, FieldInfo) and not item.is_required() for item in metadata_of(annotation))


def _made(origin: Any, arguments: tuple[Any, ...]) -> Any:
    """A generic type with arguments that are known at run time only."""
    return origin[arguments if len(arguments) > 1 else arguments[0]]


def _annotated(annotation: Any, metadata: tuple[Any, ...]) -> Any:
    text = described(metadata)
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
