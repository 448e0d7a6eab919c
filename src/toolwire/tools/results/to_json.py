"""Any Python value as JSON, with nothing lost on the way: `text` for the model, `plain` for structured content.

Most values go through orjson, with `unfold` for the classes that it does not know. What it cannot write or would
change in silence (NaN, integers over 64 bits, keys that are no strings, lone surrogates) is walked in Python, and
so is every value that fails, to say where: `BadResult` names the type and the place.

How values are written:
- Enum: its value. date, time: ISO 8601. timedelta, Decimal, UUID, paths, addresses: a string, as Pydantic does.
- dataclass, attrs, msgspec, NamedTuple: an object of all fields, private ones too. Pydantic: by its own rules,
  with aliases. numpy and others that have `tolist()`: that list or number.
- set: an array, sorted where its items can be. bytes inside data: base64.
- NaN and the infinities: the strings "NaN", "Infinity", "-Infinity"; null would be another value.
- keys that are no strings: their JSON spelling; two keys that then are the same are refused.

It knows nothing of MCP, beyond that content objects are blocks of their own and never part of JSON.
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
    "spell_float",
    "text",
    "type_name",
]

T = TypeVar("T")
# Rows tried in order: classes that a class may be of, or a name that it may have; and what holds for it then.
Table = tuple[tuple[type | tuple[type, ...] | str, T], ...]

CONTENT = (Text, Image, Audio, Resource, ResourceLink)


class BadResult(TypeError):  # noqa: N818 - it names the value at fault
    """A value that cannot be the result of a tool. `type_name` names the type of it, or of the part at fault."""

    def __init__(self, message: str, kind: type | str) -> None:
        self.type_name = kind if isinstance(kind, str) else type_name(kind)
        super().__init__(message)


def type_name(kind: type) -> str:
    """The name to show for a class, with its module unless that is plain Python's."""
    module = kind.__module__
    return kind.__qualname__ if module in ("builtins", "__main__") else f"{module}.{kind.__qualname__}"


def text(value: Any) -> str:
    """Compact JSON, with letters of all languages as they are."""
    raw = _fast(value)
    return _spell(_walk(value, (), {})) if raw is None else raw.decode()


def plain(value: Any) -> tuple[Any, str]:
    """The value as dicts, lists and scalars that any JSON encoder takes, and its text."""
    raw = _fast(value)
    if raw is not None:
        return orjson.loads(raw), raw.decode()  # what orjson wrote has no integers over 64 bits
    walked = _walk(value, (), {})
    return walked, _spell(walked)


def clean(string: str) -> str:
    """A string that UTF-8 can carry: halves of a cut character, as in odd file names, become their escapes."""
    if string.isascii():
        return string
    try:
        string.encode()
    except UnicodeEncodeError:
        return string.encode(errors="backslashreplace").decode()
    return string


def sendable(value: Any) -> Any:
    """The value as plain JSON data, whatever it is: what has no such form is shown as Python shows it."""
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


def _fast(value: Any) -> bytes | None:
    """Encode with orjson; None if it cannot, or would write null for a NaN."""
    try:
        raw = orjson.dumps(value, default=unfold, option=orjson.OPT_PASSTHROUGH_DATACLASS)
    except TypeError:
        return None
    return None if b"null" in raw and _hides_nan(value) else raw


def _hides_nan(value: Any) -> bool:
    try:
        _STRICT.encode(value)
    except (TypeError, ValueError, RecursionError):
        return True
    return False


def _spell(walked: Any) -> str:
    try:
        return clean(_COMPACT.encode(walked))
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits, or too deep
        raise BadResult(f"cannot be written as JSON: {error}", type(walked)) from error


# --- one step: a value -> a simpler one, whose parts may need a step themselves ---


def unfold(value: Any) -> Any:
    """Turn a value into a more basic one, one step towards JSON. `BadResult` if it cannot be."""
    kind: Any = type(value)
    return _step_for(kind)(value)


@lru_cache(maxsize=1024)
def _step_for(kind: type) -> Callable[[Any], Any]:
    return first_fit(kind, _SHAPES) or _by_pydantic


def first_fit(kind: type, table: "Table[T]") -> T | None:
    """The entry of the first row that fits a class."""
    for test, entry in table:
        if hasattr(kind, test) if isinstance(test, str) else issubclass(kind, test):
            return entry
    return None


def _refuse(hint: str) -> Callable[[Any], Any]:
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


def _by_pydantic(value: Any) -> Any:
    from pydantic_core import to_jsonable_python  # noqa: PLC0415 - heavy, and seldom needed

    try:
        return to_jsonable_python(value, bytes_mode="base64")
    except ValueError as error:
        kind = type(value)
        raise BadResult(f"{type_name(kind)} cannot be written as JSON: {error}", kind) from error


_SHAPES: Final[Table[Callable[[Any], Any]]] = (
    (Enum, attrgetter("value")),
    (CONTENT, _refuse("content cannot stand inside data: return a list, the content beside the data")),
    ((CoroutineType, AsyncGeneratorType), _refuse("an async function or generator was not awaited")),
    ("__await__", _refuse("it was not awaited")),
    (GeneratorType, _refuse("return the value, not a generator: list(...) gathers its items")),
    ((FunctionType, BuiltinFunctionType, MethodType), _refuse("return the value, not the function: call it")),
    (ModuleType, _refuse("a module is no value")),
    (type, _refuse("return an instance, not the class")),
    (BaseException, _refuse("an exception is raised, not returned")),
    (Iterator, _refuse("an iterator gives its items only once: return list(...)")),
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    ((bytes, bytearray, memoryview), _base64),
    ("__pydantic_serializer__", _by_pydantic),
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


# --- the whole way, in Python ---


def _walk(value: Any, path: tuple[str | int, ...], above: dict[int, Any]) -> Any:
    """The value as plain JSON data. `above` holds what encloses it, to see a value that contains itself."""
    kind = type(value)
    if kind is str:
        return clean(value)
    if value is None or kind is bool or kind is int:
        return value
    if kind is float:
        return value if isfinite(value) else spell_float(value)
    if id(value) in above:
        raise BadResult(f"{type_name(kind)}{_at(path)} contains itself", kind)
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
        name = name if isinstance(name, str) else _spell(name)
        if name in walked:
            raise BadResult(f"two keys{_at(path)} are both {name!r} in JSON", type(value))
        walked[name] = _walk(item, (*path, name), above)
    return walked


def _step(value: Any, path: tuple[str | int, ...]) -> Any:
    try:
        return unfold(value)
    except BadResult as error:
        raise BadResult(f"{error}{_at(path)}", error.type_name) from error
    except Exception as error:  # the value's own code ran: a property, an iterator, a serializer
        kind = type(value)
        what = f"{type_name(kind)}{_at(path)} failed while it was read: {type(error).__name__}: {error}"
        raise BadResult(what, kind) from error


def spell_float(value: float) -> str:
    """JSON's spelling; the three values that have none get JavaScript's."""
    if isfinite(value):
        return float.__repr__(value)
    return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _at(path: tuple[str | int, ...]) -> str:
    spelled = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return f" (at {spelled.removeprefix('.')})" if spelled else ""
