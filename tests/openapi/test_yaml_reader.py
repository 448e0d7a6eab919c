"""YAML as the JSON that it stands for, with limits."""

import pytest

from toolwire.openapi.yaml_reader import read_yaml


def read(text, nodes=100_000, depth=100):
    return read_yaml(text, most_nodes=nodes, most_depth=depth)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2020-01-01", "2020-01-01"),
        ("2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z"),
        ("no", "no"),
        ("on", "on"),
        ("12:30", "12:30"),
        ("0123", "0123"),
        ("0x1F", "0x1F"),
        ("1_000", "1_000"),
        (".inf", ".inf"),
        ("1e999", "1e999"),
        ("true", True),
        ("~", None),
        ("", None),
        ("5", 5),
        ("-1.5e3", -1500.0),
        ("'5'", "5"),
        ('"\\u00e9\\x07"', "é\x07"),
        ("!!str 5", "5"),
        ("!!int 5", 5),
        ("{a: [1, {b: c}]}", {"a": [1, {"b": "c"}]}),
        ("200: x\nyes: y\n~: z\n", {"200": "x", "yes": "y", "~": "z"}),
        ("a: &x {k: 1}\nb: *x\n", {"a": {"k": 1}, "b": {"k": 1}}),
        ("a: &x {k: 1, l: 2}\nb:\n  <<: *x\n  l: 3\n", {"a": {"k": 1, "l": 2}, "b": {"l": 3, "k": 1}}),
    ],
)
def test_values_are_those_of_json(text, value):
    """Dates, unusual numbers and words such as `no` stay strings, and keys are always strings."""
    assert read(text) == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "line"),
        ("a: !!python/object:os.system x", "no meaning"),
        ("!mine {a: 1}", "no meaning"),
        ("? [a]\n: b", "key must be a string"),
        ("a: &x [*x]", "is not defined"),
        ("--- a\n--- b\n", "second document"),
        ("[" * 200 + "]" * 200, "deep"),
        ("<<: 5\n<<: [5]\n", "takes a mapping"),
    ],
)
def test_yaml_that_is_not_json_is_an_error_with_its_line(text, said):
    """Tags of other languages, keys that are not strings, cycles, several documents and great depth are refused."""
    with pytest.raises(ValueError, match=said):
        read(text)


def bomb(merge):
    lines = ["a0: &a0 {k: v}"]
    for level in range(1, 40):
        value = (
            f"{{<<: [{', '.join(['*a' + str(level - 1)] * 9)}]}}"
            if merge
            else f"[{', '.join(['*a' + str(level - 1)] * 9)}]"
        )
        lines.append(f"a{level}: &a{level} {value}")
    return "\n".join(lines)


@pytest.mark.parametrize("merge", [False, True])
def test_aliases_count_as_many_values_as_their_targets(merge):
    """Lines that each multiply the number of values reach the limit."""
    with pytest.raises(ValueError, match="more than 100,000 values"):
        read(bomb(merge))


def test_a_hundred_thousand_brackets_do_not_crash():
    """The depth is checked before the parser descends."""
    with pytest.raises(ValueError, match="deep"):
        read("[" * 100_000)
