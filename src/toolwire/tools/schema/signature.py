"""Inspects a typed function: finds its parameters, its description, and how to call it.

Owns the inspection of a callable in all its forms (functions, bound methods, partials, objects with `__call__`,
decorated ones), of its annotations wherever they were written, of its defaults, of the parameter that takes the
context, and of its docstring. `pydantic_types` makes the schemas. Calls no function, and must not know servers.
"""

import collections.abc
import functools
import inspect
import re
import sys
import types
import typing
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from pydantic import Field
from pydantic.fields import FieldInfo

from toolwire._protocol.json_codec import dumps, loads
from toolwire._support.record import Record, record
from toolwire.tools.schema.arguments import DefinitionError, Parameters
from toolwire.tools.schema.pydantic_types import (
    BUILD_ERRORS,
    HINT,
    UNIONS,
    TypedParameters,
    adapter_of,
    build,
    gist,
    has_default,
    nullable,
    output_schema,
    readable,
    with_metadata,
)

if TYPE_CHECKING:
    from docstring_parser import Docstring

__all__ = ["DefinitionError", "Signature", "signature_of"]

_EMPTY: Final = inspect.Parameter.empty
_REFUSED: Final[dict[Any, str]] = {
    inspect.Parameter.VAR_POSITIONAL: "use one parameter of type list[...] instead",
    inspect.Parameter.VAR_KEYWORD: "use one parameter of type dict[str, ...] instead "
    "(or functools.wraps, if this is a decorator's wrapper)",
}
_PLAIN: Final = (str, int, bool, type(None))
_AWAITABLES: Final = (collections.abc.Awaitable, collections.abc.Coroutine)


@record
class Signature(Record):
    """The parameters, description and return type of a typed function."""

    parameters: Parameters
    description: str
    """The summary and long description in the docstring."""
    context_parameter: str | None
    """The parameter that takes the context; it is not in the schema."""
    returns: Any = _EMPTY
    """The return annotation, resolved; empty if there is none or it cannot be resolved."""
    positional: tuple[tuple[str, Any], ...] = ()
    """The positional-only parameters, in order, with their defaults."""

    def arguments_for(self, values: dict[str, Any], context: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments to call the function with. Missing ones get the function's own defaults."""
        if self.context_parameter is not None:
            values = {**values, self.context_parameter: context}
        if not self.positional:
            return [], values
        args = [values.get(name, default) for name, default in self.positional]
        names = {name for name, _ in self.positional}
        return args, {name: value for name, value in values.items() if name not in names}

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """The schema of the result, if the return annotation is an object with known fields."""
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
        return (adapter, schema) if _describes_fields(schema) else None


def signature_of(function: Any, *, context_type: type, name: str | None = None) -> Signature:
    """Inspect a typed function. `DefinitionError` says why it cannot be a tool, and what to do."""
    tool = name or getattr(function, "__name__", None) or type(function).__name__
    try:
        return _inspect_source(source_of(function), context_type, tool)
    except DefinitionError as error:
        raise DefinitionError(f"tool {tool!r}: {error}") from error.__cause__


def _inspect_source(source: "Source", context_type: type, tool: str) -> Signature:
    context: str | None = None
    taken: dict[str, Any] = {}
    for parameter in source.parameters:
        if (instead := _REFUSED.get(parameter.kind)) is not None:
            raise DefinitionError(f"parameter {str(parameter).partition(':')[0]!r}: {instead}")
        annotation = _resolve_annotation(parameter, source, context_type)
        if not _is_context(annotation, context_type) and not _is_named_context(parameter):
            taken[parameter.name] = annotation
        elif context is not None:
            raise DefinitionError(
                f"parameters {context!r} and {parameter.name!r} both take the context: keep one"
            )
        else:
            context = parameter.name
    documentation = read_docstring(source.docstring, taken)
    parameters = [each for each in source.parameters if each.name in taken]
    return Signature(
        parameters=_build(tool, parameters, taken, documentation.parameters, source.namespace),
        description=documentation.description,
        context_parameter=context,
        returns=_return_type(source),
        positional=tuple(
            (each.name, _default_of(each)) for each in source.parameters if each.kind is each.POSITIONAL_ONLY
        ),
    )


def _resolve_annotation(parameter: inspect.Parameter, source: "Source", context_type: type) -> Any:
    """Resolve the annotation of a parameter, and prepare it for Pydantic."""
    try:
        hint = source.resolve(parameter.annotation, extra={context_type.__name__: context_type})
    except NameError as error:
        raise DefinitionError(
            f"parameter {parameter.name!r}: the annotation {parameter.annotation!r} cannot be resolved ({error}); "
            "import or define the name at module level, outside of TYPE_CHECKING"
        ) from error
    except (TypeError, SyntaxError, AttributeError) as error:
        raise DefinitionError(
            f"parameter {parameter.name!r}: {parameter.annotation!r} is not a type: {gist(error)}; {HINT}"
        ) from error
    if _is_context(hint, context_type):
        return hint
    hint = readable(hint, source.namespace)
    if isinstance(parameter.default, FieldInfo):  # written as in FastAPI: x: int = Field(3, ge=1)
        hint = with_metadata(hint, parameter.default)
    elif parameter.default is not _EMPTY and has_default(hint):
        hint = with_metadata(
            hint, Field(default=parameter.default)
        )  # overrides the Field's default, as in the function itself
    return nullable(hint) if _default_of(parameter) is None else hint


def _default_of(parameter: inspect.Parameter) -> Any:
    """Return the value of an omitted argument; `_EMPTY` if it is required."""
    default = parameter.default
    if isinstance(default, FieldInfo):
        return _EMPTY if default.is_required() or default.default_factory is not None else default.default
    return default


def _is_named_context(parameter: inspect.Parameter) -> bool:
    """True for `context` or `ctx` without an annotation and a default: it is not meant for the model."""
    unset = parameter.annotation is _EMPTY and parameter.default is _EMPTY
    return unset and parameter.name in ("context", "ctx")


def _is_context(annotation: Any, context_type: type) -> bool:
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _is_context(typing.get_args(annotation)[0], context_type)
    if isinstance(origin or annotation, type) and issubclass(origin or annotation, context_type):
        return True
    inner = [each for each in typing.get_args(annotation) if each is not type(None)]
    return origin in UNIONS and len(inner) == 1 and _is_context(inner[0], context_type)


def _build(
    tool: str,
    parameters: list[inspect.Parameter],
    annotations: dict[str, Any],
    descriptions: Mapping[str, str],
    namespace: Mapping[str, Any],
) -> TypedParameters:
    optional = {
        each.name
        for each in parameters
        if _default_of(each) is not _EMPTY or has_default(annotations[each.name])
    }
    built = build(tool, annotations, optional, namespace)
    # In the order of the parameters; the keys may be aliases.
    for parameter, shown in zip(parameters, built.json_schema["properties"].values(), strict=True):
        if parameter.name in descriptions:
            shown.setdefault("description", descriptions[parameter.name])
        if "default" not in shown:
            shown.update(_default_schema(parameter, annotations[parameter.name], namespace))
    return built


def _default_schema(
    parameter: inspect.Parameter, annotation: Any, namespace: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the default for the schema, if it is the same after conversion to JSON and back."""
    default = _default_of(parameter)
    if default is _EMPTY:
        return {}
    try:
        if type(default) in _PLAIN:
            return {"default": loads(dumps(default))}
        adapter = adapter_of(annotation, namespace)
        written = adapter.dump_json(default, by_alias=True, warnings="error")
        return {"default": loads(written)} if adapter.validate_json(written) == default else {}
    except BUILD_ERRORS:
        return {}


def _return_type(source: "Source") -> Any:
    try:
        hint = source.resolve(source.returns)
    except (NameError, TypeError, SyntaxError, AttributeError):
        return _EMPTY  # only needed for structured output
    hint = typing.get_args(hint)[-1] if typing.get_origin(hint) in _AWAITABLES else hint
    return readable(hint, source.namespace)


def _describes_fields(schema: dict[str, Any]) -> bool:
    """True if a schema describes the fields of an object; that of dict[str, Any] does not."""
    return "properties" in schema or isinstance(schema.get("additionalProperties"), dict)


# --- the callable, and the names that its annotations use ---


@record
class Source(Record):
    """A callable, and the names that its annotations can use."""

    function: Any
    """The function that has the code, behind partials, methods and decorators."""
    parameters: list[inspect.Parameter]
    """Its parameters, without those that a partial has set by name, which may be secrets."""
    returns: Any
    docstring: str | None

    @cached_property
    def namespace(self) -> dict[str, Any]:
        """Names that are not in the module: type parameters, closure, and locals of enclosing functions."""
        names = {each.__name__: each for each in getattr(self.function, "__type_params__", ())}
        code = getattr(self.function, "__code__", None)
        if code is not None and "<locals>" in self.function.__qualname__:
            names |= {**_find_enclosing_locals(code), **_find_closure(self.function)}
        return names

    def resolve(self, annotation: Any, extra: Mapping[str, Any] | None = None) -> Any:
        """Return the type of an annotation, with strings in it evaluated. `extra` has further names to try."""
        if annotation is inspect.Parameter.empty:
            return Any

        def holder() -> None: ...

        holder.__annotations__ = {"it": annotation}
        try:
            hints = typing.get_type_hints(holder, self._globals, self.namespace, include_extras=True)
        except NameError as error:
            if not extra or error.name not in extra:
                raise
            names = {**extra, **self.namespace}
            hints = typing.get_type_hints(holder, self._globals, names, include_extras=True)
        return hints["it"]

    @cached_property
    def _globals(self) -> dict[str, Any]:
        module = sys.modules.get(getattr(self.function, "__module__", None) or "")
        found: dict[str, Any] = getattr(self.function, "__globals__", None) or getattr(module, "__dict__", {})
        return found


def source_of(given: Any) -> Source:
    """Inspect a callable. `DefinitionError` if it is not one, or its parameters cannot be found."""
    if isinstance(given, classmethod):
        raise DefinitionError("a classmethod needs its class: use Class.method, after the class is defined")
    if isinstance(given, staticmethod):
        given = given.__func__
    if not callable(given):
        raise DefinitionError(f"{given!r} is not a function")
    inner, fixed = given, set[str]()
    while isinstance(inner, functools.partial):
        fixed |= inner.keywords.keys()
        inner = inner.func
    try:
        signature = _signature_of(given)
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"its parameters cannot be found ({error}): wrap it in a function") from error
    parameters = [each for each in signature.parameters.values() if each.name not in fixed]
    function = _find_function(inner)
    if parameters and inner is given and _is_unbound(function, parameters[0]):
        raise DefinitionError(
            f"{function.__qualname__} is an unbound method: use the bound method, as in instance.method"
        )
    return Source(function, parameters, signature.return_annotation, _find_docstring(inner, function))


def _signature_of(given: Any) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        # Annotations are evaluated lazily there, so a missing name must not hide the other parameters.
        from annotationlib import Format  # noqa: PLC0415 - new in 3.14

        return inspect.signature(given, annotation_format=Format.FORWARDREF)
    return inspect.signature(given)


def _find_function(inner: Any) -> Any:
    """Return the function that has the code; a class is returned unchanged."""
    inner = inspect.unwrap(inner)
    if not isinstance(inner, type) and not hasattr(inner, "__code__"):
        inner = inspect.unwrap(type(inner).__call__)
    return getattr(inner, "__func__", inner)


def _find_docstring(inner: Any, function: Any) -> str | None:
    if inspect.ismethod(inner):
        return inspect.getdoc(inner)  # an override without a docstring inherits it
    # For an object with __call__, the docstring of that method comes before that of its class.
    documented = inner if hasattr(inner, "__code__") or not hasattr(function, "__code__") else function
    text: str | None = documented.__doc__ or inner.__doc__
    return text


def _is_unbound(function: Any, first: inspect.Parameter) -> bool:
    where = getattr(function, "__qualname__", "").rpartition(".")[0]
    in_class = where != "" and not where.endswith("<locals>")
    return in_class and first.name in ("self", "cls") and first.annotation is first.empty


def _find_closure(function: Any) -> dict[str, Any]:
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not yet bound
            continue
    return found


def _find_enclosing_locals(code: types.CodeType) -> dict[str, Any]:
    """Return the locals of the running functions that enclose this code; inner ones come first."""
    found: dict[str, Any] = {}
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_locals is not frame.f_globals and code in _iter_codes(frame.f_code):
            found = {**frame.f_locals, **found}
        frame = frame.f_back
    return found


def _iter_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield the code of all functions and classes inside, at any depth."""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _iter_codes(constant)


# --- the docstring, in Google, NumPy or Sphinx style ---

# Every section of every style contains one of these.
_MARKS: Final = (":", "@", "--")
_GOOGLE_SECTION: Final = (
    r"(Args|Arguments|Params|Parameters|Raises|Exceptions?|Except|Attributes|Examples?|Returns|Yields):\s*"
)
# The end of a wrapped line: no blank line, list item or indented line follows.
_WRAP: Final = r"(?<!\n)\n(?![\n\s\-*•\d])"


class Documentation(NamedTuple):
    """A parsed docstring."""

    description: str = ""
    parameters: Mapping[str, str] = MappingProxyType({})


def read_docstring(text: str | None, names: Collection[str]) -> Documentation:
    """Return the description, without the sections on parameters and results, and the text of each parameter."""
    if not text or not text.strip():
        return Documentation()
    text = inspect.cleandoc(text)
    best = _parse_best(text, names) if any(mark in text for mark in _MARKS) else None
    if best is None:
        return Documentation(text)
    from docstring_parser import DocstringStyle  # noqa: PLC0415 - loaded only when there can be sections

    google = best.style is DocstringStyle.GOOGLE
    description = _remove_sections(text) if google else (best.description or "").strip()
    texts = {name: text for name, text in _parameter_texts(best).items() if name in names}
    return Documentation(description, texts)


def _parse_best(text: str, names: Collection[str]) -> "Docstring | None":
    """Parse a docstring in the style that finds the most; None if no style finds any section."""
    from docstring_parser import DocstringStyle, ParseError, parse  # noqa: PLC0415

    best, most = None, (0, 0)
    for style in (DocstringStyle.GOOGLE, DocstringStyle.NUMPYDOC, DocstringStyle.REST, DocstringStyle.EPYDOC):
        try:
            reading = parse(text, style)
        except (ParseError, ValueError, IndexError):  # not this style, or a bug of the parser
            continue
        # A bare DocstringMeta is a section that the parser does not know: often just prose with a colon.
        sections = sum(type(meta).__name__ != "DocstringMeta" for meta in reading.meta)
        score = (len(_parameter_texts(reading).keys() & set(names)), sections)
        if score > most:
            best, most = reading, score
    return best


def _parameter_texts(reading: "Docstring") -> dict[str, str]:
    """Return the text of each parameter; `a, b : int` describes both."""
    return {
        name.strip().lstrip("*"): re.sub(_WRAP, " ", parameter.description.strip())
        for parameter in reading.params
        if parameter.description and parameter.description.strip()
        for name in parameter.arg_name.split(",")
    }


def _remove_sections(text: str) -> str:
    """Return the text outside of Google sections. The parser would drop the text after a section."""
    kept: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.strip() and not line[0].isspace():
            inside = re.fullmatch(_GOOGLE_SECTION, line) is not None
        if not inside:
            kept.append(line.rstrip())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
