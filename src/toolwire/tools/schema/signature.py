"""A typed function as a tool: what it takes, what it says of itself, and how to call it with what came.

Owns the reading of signatures: annotations resolved wherever they were written, defaults, the parameter that wants
the context, and the return type. Schemas are made by `_typed`, descriptions by `docstrings`. It runs nothing, and
knows neither servers nor the wire.
"""

import collections.abc
import inspect
import typing
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final

from pydantic import Field
from pydantic.fields import FieldInfo

from toolwire._protocol.json_codec import dumps, loads
from toolwire.tools.schema import docstrings
from toolwire.tools.schema.annotations import UNIONS, has_default, nullable, readable, with_metadata
from toolwire.tools.schema.functions import Source, source_of
from toolwire.tools.schema.parameters import DefinitionError, Parameters
from toolwire.tools.schema.pydantic_types import (
    BUILD_ERRORS,
    HINT,
    TypedParameters,
    adapter_of,
    build,
    gist,
    output_schema,
)
from toolwire.tools.schema.typeddict import teach

__all__ = ["DefinitionError", "Signature", "signature_of"]

_EMPTY: Final = inspect.Parameter.empty
_REFUSED: Final[dict[Any, str]] = {
    inspect.Parameter.VAR_POSITIONAL: "use one parameter of type list[...] instead",
    inspect.Parameter.VAR_KEYWORD: "use one parameter of type dict[str, ...] instead "
    "(or functools.wraps, if this is a decorator's wrapper)",
}
_PLAIN: Final = (str, int, bool, type(None))
_AWAITABLES: Final = (collections.abc.Awaitable, collections.abc.Coroutine)


@dataclass
class Signature:
    """A typed function, read."""

    parameters: Parameters
    description: str
    """Summary and long description of the docstring."""
    context_parameter: str | None
    """The parameter that wants the context; it is not in the schema."""
    returns: Any = _EMPTY
    """The return annotation, resolved; empty if there is none or it has no meaning here."""
    positional: tuple[tuple[str, Any], ...] = ()
    """The parameters that can be passed by position only, in order, with their defaults."""

    def arguments_for(self, values: dict[str, Any], context: Any) -> tuple[list[Any], dict[str, Any]]:
        """What to call the function with. What is not in `values` is left to the function's own defaults."""
        if self.context_parameter is not None:
            values = {**values, self.context_parameter: context}
        if not self.positional:
            return [], values
        args = [values.get(name, default) for name, default in self.positional]
        names = {name for name, _ in self.positional}
        return args, {name: value for name, value in values.items() if name not in names}

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """The schema of the result, if the return annotation is a type of object that says what is in it."""
        return None if self._output is None else self._output[1]

    @property
    def output_adapter(self) -> Any | None:
        """The Pydantic adapter that belongs to `output_schema`."""
        return None if self._output is None else self._output[0]

    @cached_property
    def _output(self) -> tuple[Any, dict[str, Any]] | None:
        if self.returns in (_EMPTY, None, Any):
            return None
        try:
            adapter, schema = output_schema(self.returns)
        except DefinitionError:
            return None
        return (adapter, schema) if _says_something(schema) else None


def signature_of(function: Any, *, context_type: type, name: str | None = None) -> Signature:
    """Read a typed function. `DefinitionError` says what in it cannot be a tool, and what to do about it."""
    tool = name or getattr(function, "__name__", None) or type(function).__name__
    try:
        return _read(source_of(function), context_type, tool)
    except DefinitionError as error:
        raise DefinitionError(f"tool {tool!r}: {error}") from error.__cause__


def _read(source: Source, context_type: type, tool: str) -> Signature:
    context: str | None = None
    taken: dict[str, Any] = {}
    for parameter in source.parameters:
        if (instead := _REFUSED.get(parameter.kind)) is not None:
            raise DefinitionError(f"parameter {str(parameter).partition(':')[0]!r}: {instead}")
        annotation = _annotation(parameter, source, context_type)
        if not _wants_context(annotation, context_type):
            taken[parameter.name] = annotation
        elif context is not None:
            raise DefinitionError(
                f"parameters {context!r} and {parameter.name!r} both want the context: keep one"
            )
        else:
            context = parameter.name
    documentation = docstrings.read(source.docstring, taken)
    parameters = [each for each in source.parameters if each.name in taken]
    return Signature(
        parameters=_build(tool, parameters, taken, documentation.parameters),
        description=documentation.description,
        context_parameter=context,
        returns=_returns(source),
        positional=tuple(
            (each.name, _default(each)) for each in source.parameters if each.kind is each.POSITIONAL_ONLY
        ),
    )


def _annotation(parameter: inspect.Parameter, source: Source, context_type: type) -> Any:
    """The annotation of a parameter, resolved and ready for Pydantic."""
    try:
        hint = source.resolve(parameter.annotation, extra={context_type.__name__: context_type})
    except NameError as error:
        raise DefinitionError(
            f"parameter {parameter.name!r}: the annotation {parameter.annotation!r} cannot be resolved ({error}); "
            "import or define the name at module level, outside of TYPE_CHECKING"
        ) from error
    except (TypeError, SyntaxError, AttributeError) as error:
        raise DefinitionError(
            f"parameter {parameter.name!r}: {parameter.annotation!r} is no type: {gist(error)}; {HINT}"
        ) from error
    if _wants_context(hint, context_type):
        return hint
    teach(hint, source.namespace)
    hint = readable(hint)
    if isinstance(parameter.default, FieldInfo):  # written as in FastAPI: x: int = Field(3, ge=1)
        hint = with_metadata(hint, parameter.default)
    elif parameter.default is not _EMPTY and has_default(hint):
        hint = with_metadata(
            hint, Field(default=parameter.default)
        )  # the later one, which is what Python uses
    return nullable(hint) if _default(parameter) is None else hint


def _default(parameter: inspect.Parameter) -> Any:
    """The value that an omitted argument has; the empty mark if there is none."""
    default = parameter.default
    if isinstance(default, FieldInfo):
        return _EMPTY if default.is_required() or default.default_factory is not None else default.default
    return default


def _wants_context(annotation: Any, context_type: type) -> bool:
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _wants_context(typing.get_args(annotation)[0], context_type)
    if isinstance(origin or annotation, type) and issubclass(origin or annotation, context_type):
        return True
    inner = [each for each in typing.get_args(annotation) if each is not type(None)]
    return origin in UNIONS and len(inner) == 1 and _wants_context(inner[0], context_type)


def _build(
    tool: str,
    parameters: list[inspect.Parameter],
    annotations: dict[str, Any],
    said: collections.abc.Mapping[str, str],
) -> TypedParameters:
    optional = {
        each.name
        for each in parameters
        if _default(each) is not _EMPTY or has_default(annotations[each.name])
    }
    built = build(tool, annotations, optional)
    # In the order of the parameters; the keys may be aliases.
    for parameter, shown in zip(parameters, built.json_schema["properties"].values(), strict=True):
        if parameter.name in said:
            shown.setdefault("description", said[parameter.name])
        if "default" not in shown:
            shown.update(_shown_default(parameter, annotations[parameter.name]))
    return built


def _shown_default(parameter: inspect.Parameter, annotation: Any) -> dict[str, Any]:
    """The default for the schema, if it survives the way to JSON and back; else the parameter is just optional."""
    default = _default(parameter)
    if default is _EMPTY:
        return {}
    try:
        if type(default) in _PLAIN:
            return {"default": loads(dumps(default))}
        adapter = adapter_of(annotation)
        written = adapter.dump_json(default, by_alias=True, warnings="error")
        return {"default": loads(written)} if adapter.validate_json(written) == default else {}
    except BUILD_ERRORS:
        return {}


def _returns(source: Source) -> Any:
    try:
        hint = source.resolve(source.returns)
        teach(hint, source.namespace)
    except (NameError, TypeError, SyntaxError, AttributeError):
        return _EMPTY  # nobody needs it unless structured output is wanted
    return typing.get_args(hint)[-1] if typing.get_origin(hint) in _AWAITABLES else hint


def _says_something(schema: dict[str, Any]) -> bool:
    """Whether a schema says more than that it is some object, as that of dict[str, Any] does not."""
    return "properties" in schema or isinstance(schema.get("additionalProperties"), dict)
