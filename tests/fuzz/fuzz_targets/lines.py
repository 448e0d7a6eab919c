"""The line decoder: any bytes, cut anywhere, give the frames that Python's `json` finds in the lines."""

import random
import zlib
from itertools import pairwise
from typing import Any, Final

from fuzz.fuzz_targets.json_mutation import load, mutate_json
from toolwire._protocol.lines import DEFAULT_LIMIT, Lines, decode, encode

_SHORT: Final = 400
_DEEP: Final = 200
"""Levels up to which both readers must agree. Further down each may refuse."""


def check(data: bytes) -> None:
    """Chunks make no difference, nothing is lost or invented, and frames that were read can be written."""
    rng = random.Random(zlib.crc32(data))
    limit = rng.choice([DEFAULT_LIMIT, DEFAULT_LIMIT, 16, 64, max(1, len(data) // 2)])
    whole = _read([data], limit)
    cuts = sorted(rng.randint(0, len(data)) for _ in range(rng.randint(1, 6)))
    assert _read([data[a:b] for a, b in pairwise([0, *cuts, len(data)])], limit) == whole
    if len(data) <= _SHORT:
        assert _read([data[at : at + 1] for at in range(len(data))], limit) == whole
    _compare(data, limit)


def run(data: bytes) -> None:
    """Decode in one chunk, and in small ones."""
    _read([data], DEFAULT_LIMIT)
    _read([data[at : at + 64] for at in range(0, len(data), 64)], DEFAULT_LIMIT)


def grow(data: bytes, size: int) -> bytes:
    """Repeat the bytes as they are: on one line if they have no newline."""
    return data * (size // max(1, len(data)))


def mutate(data: bytes, rng: random.Random) -> bytes | None:
    """Change one of the lines."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    changed = mutate_json(lines[at], rng, ["type", "tools/call", "method", "params", "user", "a"])
    if changed is None:
        return None
    lines[at : at + rng.randint(0, 1)] = [changed]
    return b"\n".join(lines)


def _read(chunks: list[bytes], limit: int) -> tuple[str, int]:
    lines = Lines(limit)
    frames = [frame for chunk in chunks for frame in lines.feed(chunk)]
    frames += lines.finish()
    assert lines.finish() == []
    return repr(frames), lines.skipped


def _compare(data: bytes, limit: int) -> None:
    """Compare line by line with Python's reader."""
    for line in data.split(b"\n"):
        lines = Lines(limit)
        frames = lines.feed(line + b"\n")
        if len(line) > limit:
            assert frames == [
                {"type": "system", "subtype": "line_dropped", "bytes": len(line), "limit": limit}
            ]
        elif not line.strip():
            assert (frames, lines.skipped) == ([], 0)
        else:
            assert len(frames) + lines.skipped == 1
            _compare_value(line, frames)


def _compare_value(line: bytes, frames: list[Any]) -> None:
    if max(line.count(b"["), line.count(b"{")) > _DEEP:
        return
    try:
        expected = load(line)
    except ValueError:
        assert frames == [], "what is no JSON was taken for a frame"
        return
    assert bool(frames) == isinstance(expected, dict), "a JSON object was skipped"
    if frames:
        assert _same(expected, frames[0]), f"{expected!r} was read as {frames[0]!r}"
        again = decode(encode(frames[0]))
        assert _same(frames[0], again), f"{frames[0]!r} came back as {again!r}"


def _same(expected: Any, found: Any) -> bool:
    if isinstance(expected, dict):
        return (
            isinstance(found, dict)
            and list(expected) == list(found)
            and all(_same(value, found[key]) for key, value in expected.items())
        )
    if isinstance(expected, list):
        return isinstance(found, list) and len(expected) == len(found) and all(map(_same, expected, found))
    if type(expected) is int and type(found) is float:  # documented: faster, and over 64 bits only
        return abs(expected) >= 2**63 and float(expected) == found
    return type(expected) is type(found) and expected == found
