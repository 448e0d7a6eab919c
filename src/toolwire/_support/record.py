"""Blocks, messages and other public records: dataclasses that cost next to nothing until they are used.

`@dataclass` compiles three methods for every class, which takes five sixths of the time to import some sixty of
them. Here equality and repr are written once, in `Record`, and `@record` compiles `__init__` when it is first
looked up: most programs use only ten of the classes. They behave like the compiled ones: fields with
`compare=False` or `repr=False` are left out, objects of different classes are never equal, and nothing is hashable.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from reprlib import recursive_repr
from typing import Any, ClassVar, TypeVar, cast, dataclass_transform

from toolwire._support.secrets import hide

T = TypeVar("T")


@dataclass_transform(field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Make a dataclass of a `Record`. Its fields may have defaults and factories; there is no `__post_init__`."""
    made = dataclass(init=False, repr=False, eq=False)(cls)
    cast("Any", made).__init__ = _LateInit(made)
    return made


class _LateInit:
    """Takes the place of a class's `__init__` until that is first looked up."""

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        init = cast("Any", self._cls).__init__ = _compile_init(self._cls)
        return init.__get__(instance, owner)


@cache
def _factory_default() -> Any:
    """Return the default that `@dataclass` gives the parameter of a field with a factory: programs compare it."""

    @dataclass(repr=False, eq=False)
    class Made:
        value: list[Any] = field(default_factory=list)

    return cast("Any", Made.__init__).__defaults__[0]


def _compile_init(cls: Any) -> Callable[..., None]:
    """Return the `__init__` that `@dataclass` would compile, except that its source does not spell out types."""
    names: dict[str, Any] = {}
    parameters, body = ["self"], []
    types: dict[str, Any] = {}
    for each in fields(cls):
        name = value = each.name
        types[name] = each.type
        if each.default is not MISSING:
            names[f"_default_{name}"] = each.default
            parameters.append(f"{name}=_default_{name}")
        elif each.default_factory is not MISSING:
            names |= {f"_make_{name}": each.default_factory, "_factory": _factory_default()}
            parameters.append(f"{name}=_factory")
            value = f"_make_{name}() if {name} is _factory else {name}"
        else:
            parameters.append(name)
        body.append(f" self.{name} = {value}")
    text = "\n".join([f"def __init__({', '.join(parameters)}):", *(body or [" pass"])])
    exec(text, names)  # noqa: S102 - made of field names only, as in `@dataclass`
    init: Any = names["__init__"]
    init.__annotations__ = {**types, "return": None}
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__module__ = cls.__module__
    return cast("Callable[..., None]", init)


class Record:
    """Base of dataclasses that get `__eq__` and `__repr__` from here."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    __hash__: ClassVar[None]  # type: ignore[assignment]  # mutable, so unhashable, like any dataclass with ==

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        names = [name for name, field in self.__dataclass_fields__.items() if field.compare]
        return [getattr(self, name) for name in names] == [getattr(other, name) for name in names]

    @recursive_repr()
    def __repr__(self) -> str:
        names = [name for name, field in self.__dataclass_fields__.items() if field.repr]
        shown = ", ".join([f"{name}={self._shown(name)!r}" for name in names])
        return f"{self.__class__.__qualname__}({shown})"

    def _shown(self, name: str) -> Any:
        """Return the value of a field as the repr shows it."""
        return getattr(self, name)


class ParsedRecord(Record):
    """A record that the parser fills by field name, from JSON objects whose `type` is given in the class statement.

    A field with another key in the JSON names it: `field(default=0, metadata={"key": "isReplay"})`.
    """

    parsed_type: ClassVar[str]

    def __init_subclass__(cls, type: str | None = None) -> None:
        super().__init_subclass__()
        if type is not None:
            cls.parsed_type = type


class RecordWithSecrets(Record):
    """A record whose repr shows the names in headers, environments and URLs, and hides their values."""

    def _shown(self, name: str) -> Any:
        return hide({name: getattr(self, name)})[name]
