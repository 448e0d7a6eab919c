"""Helpers for the texts of messages. Must not know who shows them."""

from collections.abc import Iterable
from typing import Final

_LONGEST: Final = (
    200  # characters of a name that are compared: comparing is slow, and a name can come from outside
)


def closest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name that is most like `name`, for a "did you mean"; None if none is alike.

    `cutoff` is the likeness that is asked for, from 0 (any) to 1 (the same).
    """
    import difflib  # noqa: PLC0415 - only a mistake needs it

    near = difflib.get_close_matches(name[:_LONGEST], list(known), n=1, cutoff=cutoff)
    return near[0] if near else None
