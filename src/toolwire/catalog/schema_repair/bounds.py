"""Limits the size of a schema, which is measured before anything recurses into it.

Owns the limits on bytes, depth and nodes, and on the work for checking one value: if schemas refer to each other
twice per level, the work doubles with each level although the document is small.
"""

import math
from collections.abc import Iterator
from typing import Any, Final

from toolwire._protocol.json_codec import dumps
from toolwire._support.schema_structure import IN_PLACE, REFERENCES, iter_subschemas, resolve

MOST_BYTES: Final = 256 * 1024
MOST_DEPTH: Final = 64
MOST_NODES: Final = 20_000
MOST_WORK: Final = 10_000
_LONGEST_CHAIN: Final = 100


class Unrepairable(Exception):  # noqa: N818 - describes the schema, and is always caught in toolwire
    """A schema cannot be used. The text is the reason."""


def measure(value: Any) -> None:
    """Reject a schema that is too large, too deep or not JSON. Does not recurse, and stops at the limits."""
    stack: list[tuple[Any, int]] = [(value, 1)]
    nodes = size = 0
    while stack:
        each, depth = stack.pop()
        nodes += 1
        if nodes > MOST_NODES:
            raise Unrepairable(f"the schema has more than {MOST_NODES:,} parts")
        if isinstance(each, (dict, list)):
            if depth > MOST_DEPTH:
                raise Unrepairable(f"the schema is nested more than {MOST_DEPTH} deep")
            if len(each) + nodes > MOST_NODES:
                raise Unrepairable(f"the schema has more than {MOST_NODES:,} parts")
            if isinstance(each, dict):
                size += sum(_length(key) for key in each)
            stack.extend((inner, depth + 1) for inner in (each.values() if isinstance(each, dict) else each))
        else:
            size += _length(each)
        if size > MOST_BYTES:
            break
    if size > MOST_BYTES or len(_json(value)) > MOST_BYTES:
        raise Unrepairable(f"the schema is larger than {MOST_BYTES // 1024} KiB")


def _length(value: Any) -> int:
    """Return the approximate number of bytes of a leaf; reject one that is not JSON."""
    if isinstance(value, str):
        return len(value)
    if value is None or isinstance(value, (bool, int)):
        return 1
    if isinstance(value, float) and math.isfinite(value):
        return 1
    raise Unrepairable(f"the schema contains a value that is not JSON: {type(value).__name__}")


def _json(value: Any) -> bytes:
    try:
        return dumps(value)
    except (TypeError, ValueError) as error:  # a key that is not text, half a surrogate pair
        raise Unrepairable(f"the schema contains a value that is not JSON: {error}") from error


def check_work(schema: dict[str, Any]) -> None:
    """Reject a schema for which one value is checked against too many schemas."""
    counted: dict[int, tuple[int, int]] = {}

    def of(node: Any, depth: int) -> tuple[int, int]:
        """Return the number of schemas that apply to a value because of this one, and the longest chain of them."""
        if not isinstance(node, dict):
            return 1, 1
        if id(node) in counted:
            return counted[id(node)]
        counted[id(node)] = 1, 1  # preliminary, for cycles: the validator stops at a reference to itself
        inner = [] if depth > _LONGEST_CHAIN else [of(each, depth + 1) for each in _in_place(node, schema)]
        work = 1 + sum(each for each, _ in inner)
        chain = 1 + max((each for _, each in inner), default=0)
        if depth + chain > _LONGEST_CHAIN:
            raise Unrepairable(f"the schema has a chain of more than {_LONGEST_CHAIN} references")
        if work > MOST_WORK:
            raise Unrepairable(
                f"the references of the schema multiply to more than {MOST_WORK:,} checks of one value"
            )
        counted[id(node)] = work, chain
        return work, chain

    stack: list[Any] = [schema]
    while stack:
        each = stack.pop()
        if isinstance(each, dict):
            of(each, 0)
            stack.extend(each.values())
        elif isinstance(each, list):
            stack.extend(each)


def _in_place(node: dict[str, Any], root: dict[str, Any]) -> Iterator[Any]:
    """Yield the schemas that are applied to the same value as this one."""
    yield from (each for keyword, each in iter_subschemas(node) if keyword in IN_PLACE)
    for keyword in REFERENCES:
        if isinstance(target := node.get(keyword), str):
            yield resolve(target, root)
