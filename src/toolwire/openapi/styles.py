"""Serialises the values of parameters: every style of the standard, for every type.

Owns the serialisation of OpenAPI 3 (`style`, `explode`, `allowReserved`) and Swagger 2 (`collectionFormat`), after
RFC 6570. Pure. Values are JSON that has already been validated, so all text can be encoded. Null and empty lists
are left out, as RFC 6570 leaves out undefined values. Values nested deeper than the standard describes are written
as JSON, except for `deepObject`, which continues with brackets: `a[b][0]=x`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import quote

from toolwire.catalog.http.requests import write_json

Kind = Literal["simple", "label", "matrix", "form", "deepObject", "json"]
Encode = Callable[[str], str]
Pairs = list[tuple[str, str]]

# Reserved characters without a meaning inside a query value. The others (&, +, #, [ and ]) are encoded even with
# `allowReserved`, as OpenAPI 3.1.1 requires: they would end the value or the query.
_RESERVED: Final = ":/?@!$'()*,;="
_SINGLE_PERCENT: Final = re.compile(r"%(?![0-9a-fA-F]{2})")
_EXACT: Final = 1 << 53


@dataclass(frozen=True, slots=True)
class Style:
    """How a parameter is written. `separator` (already encoded) joins the values if they are not exploded."""

    kind: Kind = "form"
    explode: bool = True
    separator: str = ","
    allow_reserved: bool = False


def to_text(value: Any) -> str:
    """Write a value as text: strings unchanged, anything else as JSON, whole numbers without a decimal point."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return str(int(value))
    return to_json_text(value)


def to_json_text(value: Any) -> str:
    """Write a value as JSON."""
    return write_json(value).decode()


def encode(text: str) -> str:
    """Percent-encode everything but letters, digits, `-`, `.`, `_` and `~`."""
    return quote(text, safe="")


def encode_reserved(text: str) -> str:
    """Percent-encode, but keep reserved characters that are harmless in a query, and triples such as %20."""
    return _SINGLE_PERCENT.sub("%25", quote(text, safe=_RESERVED + "%"))


def write_path(name: str, value: Any, style: Style) -> str:
    """Write a path parameter. Empty if there is no value."""
    if style.kind == "json":
        return encode(to_json_text(value))
    start = {"label": ".", "matrix": ";"}.get(style.kind, "")
    named = style.kind == "matrix"
    if isinstance(value, Mapping):
        pairs = [(encode(key), encode(to_text(each))) for key, each in _present(value).items()]
        items = [f"{key}{'=' if style.explode else style.separator}{each}" for key, each in pairs]
        named = named and not style.explode  # exploded: each entry has its own name
    else:
        several = value if isinstance(value, list) else [value]
        items = [encode(to_text(each)) for each in several if each is not None]
    if not items:
        return ""
    if style.explode:
        return start + (start or ",").join(_matrix(name, each) if named else each for each in items)
    joined = style.separator.join(items)
    return start + (_matrix(name, joined) if named else joined)


def write_query(name: str, value: Any, style: Style, encoder: Encode = encode) -> Pairs:
    """Write a query parameter, or a field of a form, as encoded names and values."""
    if value is None:
        return []
    if style.kind == "json":
        return [(encoder(name), encoder(to_json_text(value)))]
    write = encode_reserved if style.allow_reserved else encoder
    if style.kind == "deepObject" and isinstance(value, Mapping | list):
        return [(encoder(key), write(to_text(each))) for key, each in _brackets(name, value)]
    if isinstance(value, Mapping):
        pairs = [(encoder(key), write(to_text(each))) for key, each in _present(value).items()]
        texts = [f"{key}{style.separator}{each}" for key, each in pairs]
    else:
        several = value if isinstance(value, list) else [value]
        texts = [write(to_text(each)) for each in several if each is not None]
        pairs = [(encoder(name), each) for each in texts]
    if style.explode or not texts:
        return pairs
    return [(encoder(name), style.separator.join(texts))]


def write_header(value: Any, style: Style) -> str:
    """Write a header parameter (`simple`). It is not encoded: the caller must check its characters."""
    if style.kind == "json":
        return to_json_text(value)
    separator = {"%20": " ", "%09": "\t", "%7C": "|"}.get(style.separator, style.separator)
    if isinstance(value, Mapping):
        between = "=" if style.explode else separator
        return separator.join(f"{key}{between}{to_text(each)}" for key, each in _present(value).items())
    if isinstance(value, list):
        return separator.join(to_text(each) for each in value if each is not None)
    return to_text(value)


def _matrix(name: str, text: str) -> str:
    return f"{encode(name)}={text}" if text else encode(name)


def _brackets(name: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, list):
        inner = {str(at): each for at, each in enumerate(value)}.items()
    else:
        return [] if value is None else [(name, value)]
    return [pair for key, each in inner for pair in _brackets(f"{name}[{key}]", each)]


def _present(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: each for key, each in value.items() if each is not None}
