"""Converts any Python value to JSON without losing anything: `text` for the model, `plain` for structured content.

Most values are encoded by orjson, with `unfold` for the classes that it does not know. Values that it cannot encode
or would change silently (NaN, integers over 64 bits, keys that are not strings, lone surrogates) are converted in
Python, and so is every value that fails, to find the place: `BadResult` names the type and the place.

How values are written:
- Enum: its value. date, time: ISO 8601. timedelta, Decimal, UUID, paths, addresses: a string, as Pydantic does.
- dataclass, attrs, msgspec, NamedTuple: an object of all fields, private ones too. Pydantic: by its own rules,
  with aliases. numpy and others that have `tolist()`: that list or number.
- set: an array, sorted where its items can be. bytes inside data: base64.
- NaN and the infinities: the strings "NaN", "Infinity", "-Infinity"; null would be another value.
- keys that are not strings: their JSON text; two keys that are the same then are refused.

It must not know MCP, except that content objects are blocks of their own and never part of JSON.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, MappingView, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields
from enum import Enum
from functools import lru_cache
from math import isfinite, isnan
from operator import attrgetter, methodcaller
from types import (
    AsyncGeneratorType,
    BuiltinFunctionType,
    CoroutineType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any, Final, TypeVar

import orjson

from toolwire.tools.results.content import Audio, Image, Resource, ResourceLink, Text

__all__ = [
    "CONTENT",
    "BadResult",
    "Table",
    "clean",
    "first_fit",
    "plain",
    "sendable",
    "spell_non_finite",
    "text",
    "type_name",
]

T = TypeVar("T")
# Rows that are tried in order: base classes or an attribute name, and the entry for classes that have it.
Table = tuple[tuple[type | tuple[type, ...] | str, T], ...]

CONTENT = (Text, Image, Audio, Resource, ResourceLink)


class BadResult(TypeError):  # noqa: N818 - it names the value
    """A value that cannot be the result of a tool. `type_name` is the type of it, or of the invalid part."""

    def __init__(self, message: str, kind: type | str) -> None:
        self.type_name = kind if isinstance(kind, str) else type_name(kind)
        super().__init__(message)


def type_name(kind: type) -> str:
    """Return the name of a class for messages, with its module unless it is a builtin."""
    module = kind.__module__
    return kind.__qualname__ if module in ("builtins", "__main__") else f"{module}.{kind.__qualname__}"


def text(value: Any) -> str:
    """Encode a value as compact JSON, without escapes for non-ASCII characters."""
    raw = _encode_fast(value)
    return _encode(_walk(value, (), {})) if raw is None else raw.decode()


def plain(value: Any) -> tuple[Any, str]:
    """Convert a value to dicts, lists and scalars that any JSON encoder takes. Returns its JSON text too."""
    raw = _encode_fast(value)
    if raw is not None:
        return orjson.loads(raw), raw.decode()  # orjson writes no integers over 64 bits
    walked = _walk(value, (), {})
    return walked, _encode(walked)


def clean(string: str) -> str:
    """Make a string valid for UTF-8: lone surrogates, as in undecodable file names, become escapes."""
    if string.isascii():
        return string
    try:
        string.encode()
    except UnicodeEncodeError:
        return string.encode(errors="backslashreplace").decode()
    return string


def sendable(value: Any) -> Any:
    """Convert any value to plain JSON data; one that cannot be converted becomes its `repr`."""
    if type(value) is str:
        return clean(value)
    try:
        return plain(value)[0]
    except BadResult:
        pass
    try:
        return clean(repr(value))
    except Exception:  # noqa: BLE001 - the value's own code
        return f"<{type_name(type(value))}>"


def _encode_fast(value: Any) -> bytes | None:
    """Encode with orjson; None if it cannot, or would write null for a NaN."""
    try:
        raw = orjson.dumps(value, default=unfold, option=orjson.OPT_PASSTHROUGH_DATACLASS)
    except TypeError:
        return None
    return None if b"null" in raw and _has_nan(value) else raw


def _has_nan(value: Any) -> bool:
    try:
        _STRICT.encode(value)
    except (TypeError, ValueError, RecursionError):
        return True
    return False


def _encode(walked: Any) -> str:
    try:
        return clean(_COMPACT.encode(walked))
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits, or too deep
        raise BadResult(f"cannot be written as JSON: {error}", type(walked)) from error


# --- one step: convert a value to a simpler one, whose parts may need another step ---


def unfold(value: Any) -> Any:
    """Turn a value into a more basic one, one step towards JSON. `BadResult` if it cannot be."""
    kind: Any = type(value)
    return _find_step(kind)(value)


@lru_cache(maxsize=1024)
def _find_step(kind: type) -> Callable[[Any], Any]:
    return first_fit(kind, _SHAPES) or _dump_by_pydantic


def first_fit(kind: type, table: "Table[T]") -> T | None:
    """Return the entry of the first row that fits a class."""
    for test, entry in table:
        if hasattr(kind, test) if isinstance(test, str) else issubclass(kind, test):
            return entry
    return None


def _make_refusal(hint: str) -> Callable[[Any], Any]:
    def step(value: Any) -> Any:
        raise BadResult(f"{type_name(type(value))}: {hint}", type(value))

    return step


def _base64(value: Any) -> str:
    return b64encode(value).decode()


def _array(items: Any) -> list[Any]:
    try:
        return sorted(items)
    except TypeError:
        return list(items)


def _dataclass(value: Any) -> dict[str, Any]:
    return {each.name: getattr(value, each.name) for each in fields(value)}


def _attrs(value: Any) -> dict[str, Any]:
    return {each.name: getattr(value, each.name) for each in value.__attrs_attrs__}


def _struct(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}


def _dump_by_pydantic(value: Any) -> Any:
    from pydantic_core import to_jsonable_python  # noqa: PLC0415 - heavy, and seldom needed

    try:
        return to_jsonable_python(value, bytes_mode="base64")
    except ValueError as error:
        kind = type(value)
        raise BadResult(f"{type_name(kind)} cannot be written as JSON: {error}", kind) from error


_SHAPES: Final[Table[Callable[[Any], Any]]] = (
    (Enum, attrgetter("value")),
    (CONTENT, _make_refusal("content cannot be part of data: return a list of the content and the data")),
    ((CoroutineType, AsyncGeneratorType), _make_refusal("an async function or generator was not awaited")),
    ("__await__", _make_refusal("it was not awaited")),
    (GeneratorType, _make_refusal("return the value, not a generator: list(...) gathers its items")),
    (
        (FunctionType, BuiltinFunctionType, MethodType),
        _make_refusal("return the value, not the function: call it"),
    ),
    (ModuleType, _make_refusal("a module is not a value")),
    (type, _make_refusal("return an instance, not the class")),
    (BaseException, _make_refusal("an exception is raised, not returned")),
    (Iterator, _make_refusal("an iterator can be read only once: return list(...)")),
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    ((bytes, bytearray, memoryview), _base64),
    ("__pydantic_serializer__", _dump_by_pydantic),
    ("__dataclass_fields__", _dataclass),
    ("__attrs_attrs__", _attrs),
    ("__struct_fields__", _struct),
    (SimpleNamespace, vars),
    ("_asdict", methodcaller("_asdict")),
    (Mapping, dict),
    (AbstractSet, _array),
    ("tolist", methodcaller("tolist")),
    ((Sequence, MappingView), list),
    ("isoformat", methodcaller("isoformat")),
    ("__fspath__", methodcaller("__fspath__")),
)


_STRICT: Final = json.JSONEncoder(default=unfold, allow_nan=False)
_COMPACT: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


# --- the whole conversion, in Python ---


def _walk(value: Any, path: tuple[str | int, ...], above: dict[int, Any]) -> Any:
    """Convert a value to plain JSON data. `above` holds its containers, to detect a value that contains itself."""
    kind = type(value)
    if kind is str:
        return clean(value)
    if value is None or kind is bool or kind is int:
        return value
    if kind is float:
        return value if isfinite(value) else spell_non_finite(value)
    if id(value) in above:
        raise BadResult(f"{type_name(kind)}{_describe_place(path)} contains itself", kind)
    above[id(value)] = value
    try:
        if isinstance(value, dict):
            return _walk_dict(value, path, above)
        if kind is list or kind is tuple:
            return [_walk(item, (*path, index), above) for index, item in enumerate(value)]
        return _walk(_step(value, path), path, above)
    except RecursionError:
        raise BadResult(f"{type_name(kind)} is nested too deeply", kind) from None
    finally:
        del above[id(value)]


def _walk_dict(value: dict[Any, Any], path: tuple[str | int, ...], above: dict[int, Any]) -> dict[str, Any]:
    walked: dict[str, Any] = {}
    for key, item in value.items():
        name = _walk(key, path, above)
        name = name if isinstance(name, str) else _encode(name)
        if name in walked:
            raise BadResult(f"two keys{_describe_place(path)} are both {name!r} in JSON", type(value))
        walked[name] = _walk(item, (*path, name), above)
    return walked


def _step(value: Any, path: tuple[str | int, ...]) -> Any:
    try:
        return unfold(value)
    except BadResult as error:
        raise BadResult(f"{error}{_describe_place(path)}", error.type_name) from error
    except Exception as error:  # the value's own code ran: a property, an iterator, a serializer
        kind = type(value)
        where = f"{type_name(kind)}{_describe_place(path)}"
        what = f"{where} raised an error while it was converted: {type(error).__name__}: {error}"
        raise BadResult(what, kind) from error


def spell_non_finite(value: float) -> str:
    """Spell NaN or an infinity, which JSON does not have, as JavaScript does."""
    return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _describe_place(path: tuple[str | int, ...]) -> str:
    spelled = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return f" (at {spelled.removeprefix('.')})" if spelled else ""
