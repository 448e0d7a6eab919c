"""Bytes become frames, however they are cut, and no garbage is fatal."""

import json
import logging
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire._protocol.lines import Lines, decode, encode

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
frames = st.dictionaries(st.text(), json_values, max_size=5)


def feed_in_pieces(lines: Lines, data: bytes, cuts: list[int]) -> list[dict]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    got = []
    for start, end in pairwise(edges):
        got += lines.feed(data[start:end])
    return got + lines.finish()


@given(st.lists(frames, max_size=6), st.lists(st.integers(0, 10_000), max_size=12))
def test_any_chunking_gives_the_same_frames(wanted, cuts):
    """However the bytes are cut, the frames come out whole and in order."""
    assert feed_in_pieces(Lines(), b"".join(encode(frame) for frame in wanted), cuts) == wanted


def test_byte_by_byte():
    """One byte at a time works, multi-byte characters included."""
    frame = {"text": "grüße 🙂\u2028"}
    lines = Lines()
    got = [out for byte in encode(frame) for out in lines.feed(bytes([byte]))]
    assert got == [frame]


def test_crlf_and_blank_lines_are_fine():
    """CRLF endings and empty lines carry nothing and cost nothing."""
    lines = Lines()
    assert lines.feed(b'\r\n\n  \n{"a":1}\r\n\r\n{"b":2}\n') == [{"a": 1}, {"b": 2}]
    assert lines.skipped == 0


def test_last_line_without_newline_counts():
    """A peer that omits the last newline is still heard."""
    lines = Lines()
    assert lines.feed(b'{"a":1}\n{"b":') == [{"a": 1}]
    assert lines.feed(b"2}") == []
    assert lines.finish() == [{"b": 2}]
    assert lines.finish() == []


@pytest.mark.parametrize(
    "garbage",
    [
        b"[SandboxDebug] hello",
        b'{"cut":',
        b"\xff\xfe\x00",
        b'{"a":"\xff"}',
        b"42",
        b'["list"]',
        b"null",
        b"NaN",
        b"[" * 200_000,
    ],
)
def test_garbage_is_skipped_counted_and_logged(garbage, caplog):
    """A line that is no JSON object in UTF-8 is passed over; its neighbours arrive."""
    lines = Lines()
    with caplog.at_level(logging.WARNING, logger="toolwire.wire"):
        assert lines.feed(b'{"a":1}\n' + garbage + b'\n{"b":2}\n') == [{"a": 1}, {"b": 2}]
    assert lines.skipped == 1
    assert "skipped a line" in caplog.text


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_no_bytes_are_fatal(noise, cuts):
    """Arbitrary bytes never raise, and a frame behind them still arrives."""
    got = feed_in_pieces(Lines(), noise + b'\n{"after":true}\n', cuts)
    assert got[-1] == {"after": True}


def test_lone_surrogate_survives_both_ways():
    """Half an emoji, as JavaScript writes it, is read; and written back in a form that the CLI can read."""
    frame = Lines().feed(b'{"text":"cut \\ud83d here"}\n')[0]
    assert frame == {"text": "cut \ud83d here"}
    assert json.loads(encode(frame)) == frame


def test_what_orjson_refuses_and_json_allows_is_written():
    """Integers over 64 bits and numeric keys go out as the standard library writes them."""
    assert json.loads(encode({"n": 2**70, "k": {1: "x"}})) == {"n": 2**70, "k": {"1": "x"}}


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes"])
def test_what_json_cannot_carry_is_a_type_error(value):
    """encode() raises TypeError for a value that is not JSON."""
    with pytest.raises(TypeError, match="cannot be written as JSON"):
        encode({"value": value})


def test_nan_never_reaches_the_cli():
    """NaN is no JSON, and the CLI ends itself on a line that is not: it becomes null or an error, never NaN."""
    assert decode(encode({"x": float("nan")})) == {"x": None}
    with pytest.raises(TypeError):
        encode({"x": float("nan"), "n": 2**70})


def test_an_integer_over_64_bits_reaches_a_tool_as_it_is():
    """A number that no float holds is refused instead of becoming infinity."""
    wei = 2**256 - 1
    call = {"method": "tools/call", "params": {"arguments": {"wei": wei, "text": "half \ud83d"}}}
    assert Lines().feed(encode(call)) == [call]
    with pytest.raises(ValueError, match="too large"):
        decode(b'{"method": "tools/call", "params": {"arguments": {"wei": 1e400}}}')


@pytest.mark.slow
def test_a_line_of_100_mb_arrives_whole():
    """A huge line in pipe-sized chunks arrives whole."""
    frame = {"type": "user", "text": "x" * 100_000_000}
    data = memoryview(encode(frame))
    lines = Lines()
    got = []
    for start in range(0, len(data), 65_536):
        got += lines.feed(bytes(data[start : start + 65_536]))
    assert got == [frame]


@pytest.mark.parametrize("chunk", [1, 7, 1_000])
def test_a_line_over_the_limit_is_dropped_with_a_message(chunk, caplog):
    """A line over the limit is replaced by a frame that says so, and the next line is read."""
    lines = Lines(limit=50)
    data = encode({"long": "x" * 200}) + encode({"ok": 1})
    got = []
    with caplog.at_level(logging.ERROR, logger="toolwire.wire"):
        for start in range(0, len(data), chunk):
            got += lines.feed(data[start : start + chunk])
    assert got == [{"type": "system", "subtype": "line_dropped", "bytes": 211, "limit": 50}, {"ok": 1}]
    assert "the limit (max_buffer_size) is" in caplog.text


def test_a_line_of_exactly_the_limit_passes():
    """The limit itself is allowed."""
    line = encode({"k": "v"})
    assert Lines(limit=len(line) - 1).feed(line) == [{"k": "v"}]


def test_a_line_over_the_limit_takes_no_memory():
    """A line that never ends is not collected: 64 MB of it leave next to nothing."""
    lines = Lines(limit=1_000_000)
    tracemalloc.start()
    try:
        for _ in range(64):
            assert lines.feed(bytes(1_000_000)) == []
        assert tracemalloc.get_traced_memory()[0] < 8_000_000
    finally:
        tracemalloc.stop()
    assert lines.feed(b"\n")[0]["bytes"] == 64_000_000
