"""Turns one JSON document into another; random bytes would hardly ever be JSON."""

import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

_SCALARS: Final = (
    *(None, True, False, 0, -0.0, 1, -1, 7, 0.5, 1e308, 2**53 + 1, 2**63, 2**64, 10**30, -(10**40)),
    *(
        "",
        " ",
        "0",
        "5",
        "true",
        "null",
        "NaN",
        "\x00",
        "\n",
        "\u200b",
        "\u202e",
        "\ud83d",
        "🙂",
        "é",
        "%2e%2e",
    ),
    *("__class__", "a" * 70),
)
_MOST_STEPS: Final = 4

Node = tuple[Callable[[Any], None], Callable[[], None] | None, Any]
"""How to replace a value, how to remove it (None for the whole document), and the value."""


def load(data: bytes) -> Any:
    """Read a document as Python's `json` does, without NaN and infinities. Raises ValueError if it is not JSON."""
    try:
        return json.loads(data.decode(), parse_constant=_refuse, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("too deep") from error


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


def dump(value: Any) -> bytes:
    """Write a document so that any string survives, lone surrogates included."""
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def mutate_json(data: bytes, rng: random.Random, words: Sequence[str]) -> bytes | None:
    """Change a few places of a document. Returns None if it is not JSON, and sometimes to let the fuzzer do it."""
    try:
        document = [load(data)]
        if rng.random() < 0.1:
            return None
        for _ in range(rng.randint(1, _MOST_STEPS)):
            _step(document, rng, words)
        return dump(document[0])
    except (ValueError, RecursionError):
        return None


def _step(document: list[Any], rng: random.Random, words: Sequence[str]) -> None:
    nodes = list(_nodes(document))
    replace, remove, value = rng.choice(nodes)
    kind = rng.randrange(8)
    if kind == 0:
        replace(_scalar(rng, words))
    elif kind == 1:
        replace(_copy(rng.choice(nodes)[2]))
    elif kind == 2 and remove is not None:
        remove()
    elif kind == 3:
        replace(rng.choice([[value], {rng.choice(words): value}, [value, _copy(value)], json.dumps(value)]))
    elif isinstance(value, dict):
        _change_dict(value, nodes, rng, words)
    elif isinstance(value, list):
        value.insert(rng.randint(0, len(value)), _any(nodes, rng, words))
    elif isinstance(value, str) and rng.random() < 0.5:
        at = rng.randint(0, len(value))
        replace(value[:at] + str(_scalar(rng, words)) + value[at:])
    else:
        replace(rng.choice(words))


def _change_dict(value: dict[str, Any], nodes: list[Node], rng: random.Random, words: Sequence[str]) -> None:
    if value and rng.random() < 0.3:
        old = rng.choice(list(value))
        value[rng.choice(words)] = value.pop(old)
    else:
        value[rng.choice(words)] = _any(nodes, rng, words)


def _any(nodes: list[Node], rng: random.Random, words: Sequence[str]) -> Any:
    return rng.choice([_scalar(rng, words), _copy(rng.choice(nodes)[2]), {}, [], {rng.choice(words): {}}])


def _scalar(rng: random.Random, words: Sequence[str]) -> Any:
    return rng.choice(words) if rng.random() < 0.5 else rng.choice(_SCALARS)


def _copy(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _nodes(document: list[Any]) -> Iterator[Node]:
    stack: list[Any] = [document]
    while stack:
        each = stack.pop()
        for key, value in list(each.items() if isinstance(each, dict) else enumerate(each)):
            yield _setter(each, key), None if each is document else _remover(each, key), value
            if isinstance(value, dict | list):
                stack.append(value)


def _setter(owner: Any, key: Any) -> Callable[[Any], None]:
    def replace(value: Any) -> None:
        owner[key] = value

    return replace


def _remover(owner: Any, key: Any) -> Callable[[], None]:
    def remove() -> None:
        del owner[key]

    return remove
