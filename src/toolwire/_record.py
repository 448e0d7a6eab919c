"""What blocks and messages have in common: equality and repr, written once.

`@dataclass` compiles both anew for every class, which is half of what importing some sixty of them costs.
Classes here say `@dataclass(repr=False, eq=False)` and inherit the two. They behave as the compiled ones
do: fields with `compare=False` or `repr=False` stay out, objects of different classes are never equal,
and nothing is hashable.
"""

from collections.abc import Iterator
from dataclasses import Field
from reprlib import recursive_repr
from typing import Any, ClassVar


class Record:
    """Base of every block and message; a dataclass that gets `__eq__` and `__repr__` from here."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    __hash__: ClassVar[None]  # type: ignore[assignment]  # mutable, so unhashable, like any dataclass with ==

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        names = [name for name, field in self.__dataclass_fields__.items() if field.compare]
        return [getattr(self, name) for name in names] == [getattr(other, name) for name in names]

    @recursive_repr()
    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._shown())
        return f"{self.__class__.__qualname__}({shown})"

    def _shown(self) -> Iterator[tuple[str, Any]]:
        for name, field in self.__dataclass_fields__.items():
            if field.repr:
                yield name, getattr(self, name)
