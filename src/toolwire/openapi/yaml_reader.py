"""Reads YAML as the JSON that it represents, with limits.

Owns how YAML is interpreted: by the rules of YAML's JSON schema, as OpenAPI prescribes. So a date, `no` and `12:30`
stay strings, a key is always a string, and a tag for any other type is an error. Events are turned into values
without recursion, and an alias counts as many values as its target has: neither a deep document nor one that
doubles its size with each line can exceed the limits. Needs PyYAML, and uses its C parser if available.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from toolwire.errors import UsageError

_INT: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,4000})")
_FLOAT: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?")
_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_STANDARD: Final = "tag:yaml.org,2002:"
_TEXT_TAGS: Final = frozenset(f"{_STANDARD}{name}" for name in ("str", "timestamp"))
_PLAIN_TAGS: Final = frozenset(f"{_STANDARD}{name}" for name in ("int", "float", "bool", "null"))
_NESTED_TAGS: Final = frozenset(f"{_STANDARD}{name}" for name in ("map", "seq"))
_MERGE: Final = "<<"


def read_yaml(text: str, *, most_nodes: int, most_depth: int) -> Any:
    """Parse a text with exactly one YAML document. ValueError says what is wrong and in which line."""
    try:
        import yaml  # type: ignore[import-untyped]  # noqa: PLC0415 - an optional dependency
    except ImportError:
        raise UsageError(
            "a YAML document needs PyYAML: run pip install 'toolwire[openapi]', or convert the document to JSON"
        ) from None
    loader: Any = getattr(yaml, "CLoader", yaml.SafeLoader)
    builder = _Builder(most_nodes, most_depth)
    handlers: dict[type, Callable[[Any], None]] = {
        yaml.ScalarEvent: builder.scalar,
        yaml.MappingStartEvent: lambda event: builder.begin({}, event),
        yaml.SequenceStartEvent: lambda event: builder.begin([], event),
        yaml.MappingEndEvent: builder.end,
        yaml.SequenceEndEvent: builder.end,
        yaml.AliasEvent: builder.alias,
        yaml.DocumentStartEvent: builder.start_document,
    }
    try:
        for event in yaml.parse(text, Loader=loader):
            handle = handlers.get(type(event))
            if handle is not None:
                handle(event)
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f"line {where.line + 1}: " if where is not None else ""
        raise ValueError(f"{line}{getattr(error, 'problem', None) or 'it is not YAML'}") from error
    return builder.document


@dataclass(slots=True)
class _Open:
    """A list or mapping that is being read."""

    value: Any
    anchor: str | None
    key: str | None = None
    """In a mapping: the key whose value comes next."""
    merges: list[Any] = field(default_factory=list)
    size: int = 1


class _Builder:
    """Builds values from parser events."""

    def __init__(self, most_nodes: int, most_depth: int) -> None:
        self.document: Any = None
        self._documents = 0
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._most_nodes = most_nodes
        self._most_depth = most_depth
        self._nodes = 0

    def start_document(self, event: Any) -> None:
        self._documents += 1
        if self._documents > 1:
            raise _error(event, "there is a second document; a file must have one")

    def scalar(self, event: Any) -> None:
        value: Any = event.value
        plain = event.implicit[0]
        if event.tag is None:
            value = _resolve_plain(value) if plain else value
        elif event.tag in _PLAIN_TAGS:
            value = _resolve_plain(value)
        elif event.tag not in _TEXT_TAGS and event.tag != "!":
            raise _error(event, f"the tag {event.tag!r} has no meaning in JSON")
        if self._expects_key():
            self._count(event, 1)
            self._open[-1].key = event.value  # a key is always a string
        else:
            self._put(event, value, 1, event.anchor)

    def begin(self, value: Any, event: Any) -> None:
        if event.tag is not None and event.tag not in _NESTED_TAGS:
            raise _error(event, f"the tag {event.tag!r} has no meaning in JSON")
        if len(self._open) >= self._most_depth:
            raise _error(event, f"it is nested more than {self._most_depth} levels deep")
        if self._expects_key():
            raise _error(event, "a key must be a string")
        self._count(event, 1)
        self._open.append(_Open(value, event.anchor))

    def end(self, event: Any) -> None:
        done = self._open.pop()
        for table in done.merges:
            self._merge(event, done, table)
        self._put(event, done.value, done.size, done.anchor, counted=True)

    def alias(self, event: Any) -> None:
        if event.anchor not in self._anchors:
            raise _error(
                event, f"the alias *{event.anchor} is not defined, or refers to a value that contains it"
            )
        value, size = self._anchors[event.anchor]
        self._put(event, value, size, None)

    def _expects_key(self) -> bool:
        return bool(self._open) and self._open[-1].key is None and isinstance(self._open[-1].value, dict)

    def _put(self, event: Any, value: Any, size: int, anchor: str | None, *, counted: bool = False) -> None:
        if not counted:
            self._count(event, size)
        if anchor is not None:
            self._anchors[anchor] = (value, size)
        if not self._open:
            self.document = value
            return
        parent = self._open[-1]
        parent.size += size
        if isinstance(parent.value, list):
            parent.value.append(value)
        elif parent.key is None:
            raise _error(event, "a key must be a string")
        elif parent.key == _MERGE and isinstance(value, dict | list):
            parent.merges += value if isinstance(value, list) else [value]
            parent.key = None
        else:
            parent.value[parent.key] = value
            parent.key = None

    def _merge(self, event: Any, into: _Open, table: Any) -> None:
        """Add the entries of another mapping that this one does not have (`<<: *base`)."""
        if not isinstance(table, dict):
            raise _error(event, "<< takes a mapping or a list of mappings")
        self._count(event, len(table))
        for key, value in table.items():
            into.value.setdefault(key, value)

    def _count(self, event: Any, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > self._most_nodes:
            raise _error(
                event, f"it has more than {self._most_nodes:,} values, counting what aliases refer to"
            )


def _resolve_plain(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if text[0] in "-0123456789":
        if _INT.fullmatch(text):
            return int(text)
        if _FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
            return number
    return text


def _error(event: Any, what: str) -> ValueError:
    mark = getattr(event, "start_mark", None)
    return ValueError(f"line {mark.line + 1}: {what}" if mark is not None else what)
