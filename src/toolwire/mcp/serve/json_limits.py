"""Refuses JSON that is too deep, or has too many values or digits, before anybody decodes it. Pure: it reads bytes.

A decoder makes an object of every value: 60 MB of `[[],[],...]` became 8.8 GB. To write an integer takes time with
the square of its digits: 4 MB of those with 4,000 digits took half a second. And integers over 64 bits can be
chosen so that a set takes minutes to tell them apart.

Here characters are counted. Most messages pass by a count of their brackets and a look for long rows of digits;
only the others have their strings taken out first. Each step is one short call into C, so that other threads get
their turn in between.
"""

import re
from itertools import accumulate
from typing import Any, Final

from toolwire._protocol.json_codec import SHAPES
from toolwire.mcp.serve.limits import JsonLimits

_NO_BRACKETS: Final = bytes(each for each in range(256) if each not in b"[]{}")
_LONG: Final = b":" + b"0" * 21  # an integer over 64 bits, in JSON that is translated by SHAPES
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
    text = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    values = level = in_string = long = 0
    end = b":"  # of what came before
    for start in range(0, len(text), _PART):
        pieces = text[start : start + _PART].split(b'"')
        structure = b"".join(pieces[in_string::2])
        in_string = (in_string + len(pieces) - 1) % 2
        values += _values(structure)
        if values > limits.max_values:
            return f"it has more than {limits.max_values} values"
        brackets = structure.translate(None, _NO_BRACKETS)
        levels = list(accumulate(map(_STEP.__getitem__, brackets), initial=level))
        if max(levels) > limits.max_depth:
            return f"its lists and objects are nested more than {limits.max_depth} deep"
        level = levels[-1]
        shapes = end + structure.translate(SHAPES)
        if b"0" * (limits.max_digits + 1) in shapes:
            return f"it has a number of more than {limits.max_digits} digits"
        long += shapes.count(_LONG) - end.count(_LONG)
        if long > limits.max_long:
            return f"it has more than {limits.max_long} integers of more than 20 digits"
        end = shapes[-limits.max_digits :]
    return None


def surely_within(body: bytes, limits: JsonLimits) -> bool:
    """Whether a look at the bytes is enough: with those in strings, there are few brackets, commas and digits."""
    opened = body.count(b"[") + body.count(b"{")
    if opened > limits.max_depth or opened + body.count(b",") >= limits.max_values:
        return False
    if len(body) <= min(limits.max_digits, limits.max_long):
        return True
    shapes = body.translate(SHAPES)
    return b"0" * (limits.max_digits + 1) not in shapes and shapes.count(_LONG) < limits.max_long


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
