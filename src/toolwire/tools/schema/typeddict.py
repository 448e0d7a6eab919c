"""The standard library's TypedDict for Pydantic on Python before 3.12.

There Pydantic takes only the TypedDict of `typing_extensions`. `teach` looks for standard ones wherever they can be
in a type (unions, containers, fields of dataclasses, of named tuples and of each other) and gives each the hook by
which Pydantic lets a class describe itself; the hook answers with an equal TypedDict of the other kind. The hook is
the only trace that is left on the user's class, and only Pydantic reads it. It knows nothing of tools.
"""

import dataclasses
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import typing_extensions

_HOOK: Final = "__get_pydantic_core_schema__"
_QUALIFIERS: Final = (typing.Required, typing.NotRequired, typing_extensions.ReadOnly)


def teach(annotation: Any, namespace: Mapping[str, Any] | None = None) -> None:
    """Make every standard TypedDict that can be reached from the annotation one that Pydantic takes.

    `namespace` has names that annotations may use beside those of their module, such as the locals of the function
    in which the classes are defined.
    """
    if sys.version_info < (3, 12):
        _teach(annotation, dict(namespace or {}), {})


def _teach(annotation: Any, namespace: dict[str, Any], seen: dict[int, Any]) -> None:
    if id(annotation) in seen:
        return
    seen[id(annotation)] = annotation  # held, so that its id stays its own
    hints: dict[str, Any] = {}
    if isinstance(annotation, type) and _has_fields(annotation):
        try:
            hints = typing.get_type_hints(annotation, localns=namespace, include_extras=True)
        except (NameError, TypeError, SyntaxError):
            return  # Pydantic names what is missing, or knows more than we do
        if _is_standard(annotation) and _HOOK not in vars(annotation):
            setattr(annotation, _HOOK, _hook(annotation, hints))
    for part in (*hints.values(), *_parts(annotation)):
        _teach(part, namespace, seen)


def _has_fields(given: type) -> bool:
    return typing.is_typeddict(given) or dataclasses.is_dataclass(given) or hasattr(given, "_fields")


def _is_standard(given: type) -> bool:
    return typing.is_typeddict(given) and type(given).__module__ == "typing"


def _parts(annotation: Any) -> Iterator[Any]:
    """The types that an annotation is made of."""
    for argument in typing.get_args(annotation):
        # The arguments of a Callable are a list; the rest of an Annotated is no type and has no parts.
        yield from argument if isinstance(argument, list) else (argument,)
    for attribute in (
        "__origin__",
        "__supertype__",
        "__value__",
    ):  # a generic class, a NewType, a named alias
        if (inner := getattr(annotation, attribute, None)) is not None:
            yield inner


def _hook(given: Any, hints: dict[str, Any]) -> Callable[[Any, Any], Any]:
    """What Pydantic asks for: the schema of an equal TypedDict that it takes."""
    made: dict[tuple[Any, ...], Any] = {}

    def answer(source: Any, handler: Any) -> Any:
        # One twin for each parametrisation, so that a TypedDict which holds itself is seen to be the same.
        arguments = typing.get_args(source)
        if arguments not in made:
            made[arguments] = _twin(given, hints, arguments)
        return handler.generate_schema(made[arguments])

    return answer


def _twin(given: Any, hints: dict[str, Any], arguments: tuple[Any, ...]) -> Any:
    bound = dict(zip(getattr(given, "__parameters__", ()), arguments, strict=False))
    fields = {name: _field(given, name, _substituted(hint, bound)) for name, hint in hints.items()}
    make: Any = typing_extensions.TypedDict  # by a name and fields that no type checker can know
    twin = make(given.__name__, fields)
    for attribute in ("__module__", "__qualname__", "__doc__", "__pydantic_config__"):
        if attribute in vars(given):
            setattr(twin, attribute, vars(given)[attribute])
    return twin


def _field(given: Any, name: str, hint: Any) -> Any:
    """The hint, marked as required or not."""
    inner, qualifiers = hint, set()
    while (origin := typing.get_origin(inner)) in (*_QUALIFIERS, typing.Annotated):
        qualifiers.add(origin)
        inner = typing.get_args(inner)[0]
    if qualifiers & {typing.Required, typing.NotRequired}:
        # Read from the hint and not from __required_keys__, which is wrong where annotations are strings.
        return hint
    return typing.Required[hint] if name in given.__required_keys__ else typing.NotRequired[hint]


def _substituted(hint: Any, bound: dict[Any, Any]) -> Any:
    """The hint with its type variables filled in."""
    if isinstance(hint, typing.TypeVar):
        return bound.get(hint, hint)
    variables = getattr(hint, "__parameters__", ())
    return hint[tuple(bound.get(each, each) for each in variables)] if bound and variables else hint
