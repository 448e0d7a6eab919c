"""JSON that is too deep, or has too many values or digits, is refused before it is decoded."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.mcp.serve.limits import JsonLimits, describe_excess, find_id

TRICKY = st.text(alphabet='\\"[]{},:a\n\u00e9\U0001f600', max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TRICKY,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(TRICKY, inner, max_size=6),
    max_leaves=40,
)


def depth_of(value):
    """Return how deep lists and objects are nested."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


def values_of(value):
    """Return how many values there are in lists and objects, including those themselves."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return 1 + sum(map(values_of, inner))


def containers_of(value):
    """Return how many lists and objects there are."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + sum(map(containers_of, inner))


@given(VALUES, st.booleans())
def test_the_depth_is_that_of_the_decoded_value(value, ascii_only):
    """Whatever brackets, quotes and backslashes its strings hold."""
    body, depth = json.dumps(value, ensure_ascii=ascii_only).encode(), depth_of(value)
    many = 10**6
    assert describe_excess(body, JsonLimits(depth, many)) is None
    if depth:
        assert "nested more than" in describe_excess(body, JsonLimits(depth - 1, many))


@given(VALUES, st.booleans())
def test_values_are_counted_by_commas_and_brackets(value, ascii_only):
    """The count is never too low; an empty list counts like one with a value in it."""
    body, values = json.dumps(value, ensure_ascii=ascii_only).encode(), values_of(value)
    most = values + containers_of(value)
    assert describe_excess(body, JsonLimits(10**6, most)) is None
    if values > 1:
        assert "more than" in describe_excess(body, JsonLimits(10**6, values - 2))


@given(st.integers(0, 80_000), st.integers(1, 40), st.integers(1, 40), st.booleans())
def test_digits_are_counted_wherever_they_are(before, digits, most, in_string):
    """Also across the border of two chunks of the text. Digits in strings do not count."""
    number = b"7" * digits
    body = b'["' + b"x" * before + b'",' + (b'"%b"' % number if in_string else number) + b"]"
    found = describe_excess(body, JsonLimits(10, 10, most))
    assert (found is not None) is (digits > most and not in_string)


@given(st.lists(st.integers(18, 30), max_size=30), st.integers(0, 40_000), st.integers(1, 20))
def test_long_integers_are_counted_once(lengths, before, most):
    """Also across the border of two chunks of the text."""
    text = json.dumps(["x" * before, *(int("8" * length) for length in lengths)]).encode()
    long = sum(length > 20 for length in lengths)
    assert (describe_excess(text, JsonLimits(100, 100, 100, most)) is not None) is (long > most)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[" * 5_000_000, "nested"),
        (b"[" * 101 + b"]" * 101, "nested"),
        (b"[" * 100 + b"]" * 100, None),
        (b'{"a":' * 101, "nested"),
        (b"[" + b"[]," * 60_000 + b"[]]", "values"),
        (b"[" + b"1," * 200_000 + b"1]", "values"),
        (b"[" + b'"a,",' * 200_000 + b"1]", "values"),
        (b'["' + b"[[,{" * 1_000_000 + b'"]', None),
        (b'["' + b'\\"[,' * 1_000_000 + b'"]', None),
        (b'["' + b"\\\\" * 1_000_001 + b'",' + b"[" * 200, "nested"),
        (b'"' * 4_000_001, None),
        (b"9" * 1_000, None),
        (b"9" * 1_001, "digits"),
        (b"-0." + b"1234567890" * 100 + b"5e5", "digits"),
        (b'["' + b"9" * 1_000_000 + b'"]', None),
        (b'["' + b"9" * 40_000 + b'",' + b"9" * 40_000 + b"]", "digits"),
        (b"[" + b"1" * 1_000 + b"," * 31_700 + b"2" * 1_001 + b"]", "digits"),
        (b"[" + b"7" * 21 + b",\n-" + (b"9" * 21 + b", ") * 998 + b"1]", None),
        (b"[" + (b"9" * 21 + b", ") * 1_001 + b"1]", "integers"),
        (b'{"a":' + b"9" * 21 + b',"b":[' + (b"-" + b"9" * 21 + b",") * 60_000 + b"1]}", "integers"),
        (b'["' + (b"9" * 21 + b", ") * 1_001 + b'"]', None),
        (b"[" + (b"9" * 20 + b",0." + b"9" * 21 + b",") * 40_000 + b"1]", None),
        (b"[" * 101 + b'"' + b"]" * 101 + b'"' + b"1" * 1_001, "nested"),
        (b"", None),
        (b"\xff\xfe[[[", None),
    ],
    ids=lambda each: str(each)[:20],
)
def test_hostile_texts(body, said):
    """The content of strings does not count. Invalid JSON is left to the decoder."""
    found = describe_excess(body, JsonLimits())
    assert found is None if said is None else said in found


@pytest.mark.parametrize(
    ("body", "request_id"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"x","params":[[', 7),
        (b'{ "id" : "a b" , "method"', "a b"),
        (b'{"method":"x","params":{"id":1},"jsonrpc":"2.0","id":9}\n', 9),
        (b'{"method":"x","params":{"id":1},"id":"z","jsonrpc":"2.0"}', "z"),
        (b'{"method":"x","params":{"id":1}}', None),
        (b'{"id":1.5,"method":"x"}', None),
        (b'{"id":null,"method":"x"}', None),
        (b'{"id":"\\u0041","method":"x"}', None),
        (b'{"id":12345678901234567890,"method":"x"}', None),
        (b"", None),
    ],
)
def test_the_id_of_a_request_that_is_not_decoded(body, request_id):
    """It is found in the places where clients put it, so that the error response can carry it."""
    assert find_id(body) == request_id
