"""The JSON codec: every number is read and written exactly, or is refused with a clear error."""

import json
import math

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire._protocol.json_codec import dumps, loads

UINT256 = 2**256 - 1
JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(-(2**300), 2**300),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(exclude_categories=["Cs"])),
    ),
    lambda inner: st.one_of(
        st.lists(inner), st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=20,
)


def same(one, other):
    """Return whether two values are equal in value and in type: 1 is not 1.0."""
    return json.dumps(one) == json.dumps(other)


@given(JSON)
def test_values_come_back_as_they_were(value):
    """Written and read again, with integers of any size; and the standard library reads and writes the same."""
    assert same(loads(dumps(value)), value)
    assert same(json.loads(dumps(value)), value)
    assert same(loads(json.dumps(value).encode()), value)


@pytest.mark.parametrize(
    "number",
    [
        *(UINT256, -UINT256, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**18, 10**19, -(10**18), 10**400),
        int("9" * 4_300),
    ],
    ids=lambda number: f"{len(str(number))} digits",
)
def test_an_integer_is_exact(number):
    """Below, at and above 64 bits, and beyond what a float can hold."""
    for value in (number, [number], {"a": {"b": [None, number, 0.5]}}):
        read = loads(dumps(value))
        assert same(read, value)
    assert type(loads(str(number).encode())) is int


@pytest.mark.parametrize(
    "text",
    [
        *("1e400", "-1e400", "1E+400", "[1e400, 11111111111111111111]", "123456789012345678901e400"),
        *(f"[{'9' * 250}e60, 1]", f"{'9' * 400}.5", "[11111111111111111111, 1E0000000400]"),
    ],
)
def test_a_number_that_no_float_holds_is_refused(text):
    """It would become infinity, which is another number."""
    with pytest.raises(ValueError, match=r"too large.*1\.8e308"):
        loads(text.encode())


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_json_number_is_refused(text):
    """This holds beside long integers too, which are read another way."""
    for document in (text, f"[{text}, {UINT256}]"):
        with pytest.raises(ValueError):  # noqa: PT011 - orjson's words, or ours
            loads(document.encode())


@pytest.mark.parametrize("digits", ["1" * 4_301, "-" + "1" * 100_000, "[" + "1" * 5_000 + "]"], ids=len)
def test_an_integer_of_too_many_digits_is_refused(digits):
    """Python would need time that grows with the square of the digits."""
    with pytest.raises(ValueError, match=r"more than 4,300 digits"):
        loads(digits.encode())
    with pytest.raises(ValueError, match=r"more than 4,300 digits"):
        dumps({"a": 10**4_300})


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("beside", [None, UINT256, "text"], ids=["null", "uint256", "text"])
def test_a_number_that_json_does_not_have_is_never_written(number, beside):
    """It is written neither as null nor as a word."""
    for value in (number, [number], {"a": [{"b": number}, beside]}, (beside, number)):
        with pytest.raises(ValueError, match="no NaN and no infinity"):
            dumps(value)


def test_null_is_null():
    """A null that is meant is not mistaken for a NaN, in a tuple either."""
    assert dumps({"a": None, "b": [None, 1.5], "c": (None,)}) == b'{"a":null,"b":[null,1.5],"c":[null]}'


@pytest.mark.parametrize("value", [{"b": 1, "a": 2}, {"b": UINT256, "a": {"ü": 1, "d": 2}}])
def test_keys_are_sorted_when_asked_for(value):
    """The same value then gives the same bytes."""
    assert dumps(value, sort_keys=True) == dumps(dict(reversed(value.items())), sort_keys=True)
    assert dumps(value, sort_keys=True).startswith(b'{"a":')


@pytest.mark.parametrize("value", [object(), {1, 2}, [UINT256, b"bytes"], {1: 2}, {"a": {1: UINT256}}])
def test_what_is_no_json_value_is_a_type_error(value):
    """dumps() raises TypeError for a value that JSON does not have."""
    with pytest.raises(TypeError):
        dumps(value)


def test_what_cannot_be_written_is_a_value_error():
    """dumps() refuses half a surrogate pair, too many levels, and a value that contains itself."""
    endless = []
    endless.append(endless)
    deep = 1
    for _ in range(100_000):
        deep = [deep]
    for value in ("\ud800", [UINT256, "\ud800"], endless, deep):
        with pytest.raises(ValueError):  # noqa: PT011 - several reasons
            dumps(value)


def test_half_of_a_surrogate_pair_is_read_only_when_allowed():
    """JavaScript writes it, but UTF-8 cannot encode it."""
    for text in (b'{"a":"\\ud83d"}', b'{"a":"\\uD83D","n":%d}' % UINT256):
        with pytest.raises(ValueError):  # noqa: PT011 - orjson's words, or ours
            loads(text)
        assert loads(text, lone_surrogates=True)["a"] == "\ud83d"
    assert loads(b'["\\ud83d\\ude00",%d]' % UINT256) == ["😀", UINT256]
    with pytest.raises(ValueError, match="too large"):
        loads(b'["\\ud83d", 1e400]', lone_surrogates=True)


@pytest.mark.parametrize(
    "text", [b"{", b"[1,]", b"\xff", b'"\x01"', b"01", b"[" * 100_000, b"{'a':1}"], ids=ascii
)
def test_what_is_no_json_is_a_value_error(text):
    """This holds with and without a long integer behind it, which is read another way."""
    for document in (text, text + b" 11111111111111111111"):
        with pytest.raises(ValueError):  # noqa: PT011 - several reasons
            loads(document)


@given(st.binary(max_size=60) | st.text('0123456789.eE-+[]{}",:ntrue \\ud8', max_size=60).map(str.encode))
def test_any_bytes_are_read_as_orjson_reads_them_or_refused(data):
    """loads() raises only ValueError, and differs from orjson only in numbers that orjson would change."""
    try:
        value = loads(data)
    except ValueError:
        return
    if not any(
        len(part) > 18 for part in data.translate(bytes.maketrans(b"123456789", b"0" * 9)).split(b".")
    ):
        assert same(value, orjson.loads(data))
