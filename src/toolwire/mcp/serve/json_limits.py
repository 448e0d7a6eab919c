"""Refuses JSON that is too deep or has too many values, before anybody decodes it. Pure: it reads bytes.

A decoder makes an object of every value: 60 MB of `[[],[],...]` became 8.8 GB. Here only the characters that make
up the structure are counted. Most messages pass by a count of their brackets; only the others have their strings
taken out first. Each step is one short call into C, so that other threads get their turn in between.
"""

import re
from itertools import accumulate
from typing import Any, Final

from toolwire.mcp.serve.limits import JsonLimits

_STRUCTURE: Final = b'"[]{},'
_ELSE: Final = bytes(each for each in range(256) if each not in _STRUCTURE)
_STEP: Final = [0] * 256
_STEP[ord("[")] = _STEP[ord("{")] = 1
_STEP[ord("]")] = _STEP[ord("}")] = -1
_PART: Final = 1 << 15  # bytes looked at in one go
_ID: Final = rb'"id"\s*:\s*(\d{1,15}|"[^"\\\x00-\x1f\x80-\xff]{1,100}")(?=\s*[,}])'
_ID_FIRST: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID)
_ID_LAST: Final = re.compile(_ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')
_EDGE: Final = 300  # bytes at the end of a message in which an id is looked for


def exceeded(body: bytes, limits: JsonLimits) -> str | None:
    """Which limit a JSON text exceeds, in words. None for one that is within the limits, or is no JSON."""
    if surely_within(body, limits):
        return None
    # In a valid text backslashes occur inside strings only, and those in pairs stand for themselves.
    marks = body.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _ELSE)
    values = level = in_string = 0
    for start in range(0, len(marks), _PART):
        pieces = marks[start : start + _PART].split(b'"')
        structure = b"".join(pieces[in_string::2])
        in_string = (in_string + len(pieces) - 1) % 2
        values += _values(structure)
        if values > limits.max_values:
            return f"it has more than {limits.max_values} values"
        levels = list(accumulate(map(_STEP.__getitem__, structure), initial=level))
        if max(levels) > limits.max_depth:
            return f"its lists and objects are nested more than {limits.max_depth} deep"
        level = levels[-1]
    return None


def surely_within(body: bytes, limits: JsonLimits) -> bool:
    """Whether a look at the bytes is enough: even with those in strings, there are few brackets and commas."""
    opened = body.count(b"[") + body.count(b"{")
    return opened <= limits.max_depth and opened + body.count(b",") < limits.max_values


def _values(structure: bytes) -> int:
    """How many values there are: one more in each list and object than it has commas, so this may be a few over."""
    return structure.count(b",") + structure.count(b"[") + structure.count(b"{")


def find_id(body: bytes) -> Any:
    """The id of a request that is not decoded, if it is the first or the last part of it. None if it is not."""
    found = _ID_FIRST.match(body[:_EDGE]) or _ID_LAST.search(body[-_EDGE:])
    if found is None:
        return None
    text = found[1].decode("ascii")
    return text[1:-1] if text.startswith('"') else int(text)
