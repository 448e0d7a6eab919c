"""The base of blocks, messages and other public records: equality and repr, written once.

`@dataclass` compiles both anew for every class, which is half of the time to import some sixty of them.
These classes are declared with `@dataclass(repr=False, eq=False)` and inherit the two. They behave as the compiled
ones do: fields with `compare=False` or `repr=False` stay out, objects of different classes are never equal,
and nothing is hashable.
"""

from dataclasses import Field
from reprlib import recursive_repr
from typing import Any, ClassVar

from toolwire._support.secrets import hide


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
        """The value of a field, as the repr shows it."""
        return getattr(self, name)


class ParsedRecord(Record):
    """A record that the parser fills by field name, from JSON objects of the `type` that the class is made with.

    A field that the CLI spells otherwise names its key: `field(default=0, metadata={"key": "isReplay"})`.
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
