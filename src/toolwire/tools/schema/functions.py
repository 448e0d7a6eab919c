"""What Python knows of a callable: its parameters, its docstring, and the names that its annotations mean.

Owns the many forms that a callable has (functions, bound methods, partials, objects with `__call__`, wrapped ones)
and the search for the namespace in which it was written. It makes no schema and loads nothing heavy.
"""

import functools
import inspect
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from toolwire.tools.schema.parameters import DefinitionError


@dataclass
class Source:
    """A callable, looked at."""

    function: Any
    """The function in which its code was written, behind partials, methods and decorators."""
    parameters: list[inspect.Parameter]
    """What a caller can give it. What a partial has fixed by name is left out: it may be a secret."""
    returns: Any
    docstring: str | None

    @cached_property
    def namespace(self) -> dict[str, Any]:
        """Names that are not of the module: type parameters, closure, and locals of the functions around."""
        names = {each.__name__: each for each in getattr(self.function, "__type_params__", ())}
        code = getattr(self.function, "__code__", None)
        if code is not None and "<locals>" in self.function.__qualname__:
            names |= {**_locals_around(code), **_closure(self.function)}
        return names

    def resolve(self, annotation: Any, extra: Mapping[str, Any] | None = None) -> Any:
        """The type that an annotation means, strings in it evaluated. `extra` has names for what is not found."""
        if annotation is inspect.Parameter.empty:
            return Any

        def bearer() -> None: ...

        bearer.__annotations__ = {"it": annotation}
        try:
            hints = typing.get_type_hints(bearer, self._globals, self.namespace, include_extras=True)
        except NameError as error:
            if not extra or error.name not in extra:
                raise
            names = {**extra, **self.namespace}
            hints = typing.get_type_hints(bearer, self._globals, names, include_extras=True)
        return hints["it"]

    @cached_property
    def _globals(self) -> dict[str, Any]:
        module = sys.modules.get(getattr(self.function, "__module__", None) or "")
        found: dict[str, Any] = getattr(self.function, "__globals__", None) or getattr(module, "__dict__", {})
        return found


def source_of(given: Any) -> Source:
    """Look at a callable. `DefinitionError` if it is none, or does not tell its parameters."""
    if isinstance(given, classmethod):
        raise DefinitionError("a classmethod needs its class: give Class.method, after the class is defined")
    if isinstance(given, staticmethod):
        given = given.__func__
    if not callable(given):
        raise DefinitionError(f"{given!r} is no function")
    inner, fixed = given, set[str]()
    while isinstance(inner, functools.partial):
        fixed |= inner.keywords.keys()
        inner = inner.func
    try:
        signature = _signature(given)
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"its parameters are not known ({error}): wrap it in a function") from error
    parameters = [each for each in signature.parameters.values() if each.name not in fixed]
    function = _written(inner)
    if parameters and inner is given and _is_unbound(function, parameters[0]):
        raise DefinitionError(
            f"{function.__qualname__} is a method without its object: give the bound method, as in instance.method"
        )
    return Source(function, parameters, signature.return_annotation, _docstring(inner, function))


def _signature(given: Any) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        # Annotations are evaluated late there: a name that is missing shall not hide the other parameters.
        from annotationlib import Format  # noqa: PLC0415 - only there is it

        return inspect.signature(given, annotation_format=Format.FORWARDREF)
    return inspect.signature(given)


def _written(inner: Any) -> Any:
    """The function that has the code; a class is left as it is."""
    inner = inspect.unwrap(inner)
    if not isinstance(inner, type) and not hasattr(inner, "__code__"):
        inner = inspect.unwrap(type(inner).__call__)
    return getattr(inner, "__func__", inner)


def _docstring(inner: Any, function: Any) -> str | None:
    if inspect.ismethod(inner):
        return inspect.getdoc(inner)  # an override without a text has that of what it overrides
    # Of an object with __call__, that method's text before the one of its class.
    speaker = inner if hasattr(inner, "__code__") or not hasattr(function, "__code__") else function
    text: str | None = speaker.__doc__ or inner.__doc__
    return text


def _is_unbound(function: Any, first: inspect.Parameter) -> bool:
    where = getattr(function, "__qualname__", "").rpartition(".")[0]
    in_class = where != "" and not where.endswith("<locals>")
    return in_class and first.name in ("self", "cls") and first.annotation is first.empty


def _closure(function: Any) -> dict[str, Any]:
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not yet bound
            continue
    return found


def _locals_around(code: types.CodeType) -> dict[str, Any]:
    """The locals of the running functions in whose source this code stands; the innermost counts first."""
    found: dict[str, Any] = {}
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_locals is not frame.f_globals and code in _codes(frame.f_code):
            found = {**frame.f_locals, **found}
        frame = frame.f_back
    return found


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of everything defined inside, at any depth."""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _codes(constant)
