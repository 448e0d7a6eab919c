"""Items of a batch from a file of JSON lines or CSV, with keys that stay the same between runs."""

import pytest

from toolwire.batch import Batch
from toolwire.cli.batch_items import check_items, read_items
from toolwire.errors import UsageError


def write(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_json_lines(tmp_path):
    """The key is in `key` or `id`, the item may be under `item`, and empty lines are skipped."""
    path = write(
        tmp_path, "t.jsonl", '\ufeff{"key": "a", "n": 1}\n\n{"id": 7, "n": 2}\n{"key": "c", "item": [3]}\n'
    )
    assert list(read_items(path, None)) == [("a", {"key": "a", "n": 1}), ("7", {"id": 7, "n": 2}), ("c", [3])]


def test_an_item_without_a_key_gets_a_hash_of_itself(tmp_path):
    """So the same line is the same run, wherever it is in the file."""
    first = dict(read_items(write(tmp_path, "a.jsonl", '"x"\n{"b": 1, "a": 2}\n'), None))
    second = dict(read_items(write(tmp_path, "b.jsonl", '{"a": 2, "b": 1}\n"y"\n"x"\n'), None))
    assert len(first) == 2
    assert first.keys() < second.keys()


def test_csv(tmp_path):
    """The first line has the fields' names, fields may be quoted, and an option names the field of the key."""
    path = write(tmp_path, "t.csv", 'name,stars\n"a, b",1\nc,2\n')
    assert list(read_items(path, "name")) == [
        ("a, b", {"name": "a, b", "stars": "1"}),
        ("c", {"name": "c", "stars": "2"}),
    ]


@pytest.mark.parametrize(
    ("name", "text", "key", "says"),
    [
        ("t.jsonl", '{"a": 1}\n{"a"\n', None, "line 2 is not JSON"),
        ("t.jsonl", '{"a": 1}\n', "b", "line 1 has no field 'b'"),
        ("t.jsonl", '"x"\n', "b", "has no field 'b'"),
        ("t.jsonl", '{"key": null}\n', None, "a key must be a string or a whole number, not empty, got None"),
        ("t.jsonl", '{"key": ""}\n', None, "a key must be"),
        ("t.jsonl", b'{"key": "\xff"}\n', None, "is not UTF-8"),
        ("t.jsonl", "[" * 100_000 + "\n", None, "line 1 is not JSON"),
        ("t.jsonl", "1\n" + "[" * 300 + "]" * 300 + "\n", None, "line 2: the value is nested too deeply"),
        ("t.csv", "n\né\n".encode("latin-1"), None, "is not UTF-8 text .*: save it as UTF-8"),
        ("t.jsonl", '{"key": "a", "score": NaN}\n', None, "line 1 is not JSON"),
        ("t.jsonl", '{"key": "a", "score": 1e999}\n', None, "line 1 is not JSON: a number is too large"),
        (
            "t.jsonl",
            '{"key": "a", "n": 1}\n\n{"key": "a", "n": 2}\n',
            None,
            "line 3 has the key 'a' of line 1",
        ),
        ("t.csv", "key,n\na,1\na,2\n", None, "line 3 has the key 'a' of line 2, and another item"),
        ("t.csv", "key,n,n\na,1,2\n", None, "the first line has the field 'n' twice"),
        ("t.csv", "key;n\na;1\n", None, "separated by commas, and the first line has ';'"),
        ("t.csv", "a,b\n1\n", None, "line 2 does not have as many fields"),
        ("t.csv", "a,b\n1,2,3\n", None, "line 2 does not have as many fields"),
        ("t.csv", 'a,b\n1,"2\n', None, "line 2 is not CSV"),
        ("t.txt", "x", None, "ends in .jsonl or .csv"),
    ],
)
def test_errors_name_the_file_and_the_line(tmp_path, name, text, key, says):
    """Invalid JSON and CSV, invalid keys, and a key that is used for two different items are all refused."""
    with pytest.raises(UsageError, match=says):
        list(read_items(write(tmp_path, name, text), key))


def test_a_missing_file_is_reported_at_once(tmp_path):
    """The error comes when the items are first read."""
    with pytest.raises(UsageError, match="does not exist"):
        list(read_items(tmp_path / "none.jsonl", None))


def test_a_file_that_cannot_be_looked_for(tmp_path):
    """Here its name is too long, which newer versions of Python treat like a missing file."""
    with pytest.raises(UsageError, match="cannot be read: File name too long|does not exist"):
        list(read_items(tmp_path / f"{'x' * 300}.jsonl", None))


def test_a_line_that_is_repeated_is_one_item(tmp_path):
    """Equal items with one key are the same run."""
    path = write(tmp_path, "t.jsonl", '{"key": "a", "n": 1}\n{"n": 1, "key": "a"}\n')
    assert list(read_items(path, None)) == [("a", {"key": "a", "n": 1})]


def test_a_long_prompt_in_csv(tmp_path):
    """Python's csv module would refuse a field above 128 KB."""
    path = write(tmp_path, "t.csv", f"key,prompt\na,{'z' * 200_000}\n")
    ((_, item),) = read_items(path, None)
    assert len(item["prompt"]) == 200_000


@pytest.mark.parametrize(
    ("last", "says"),
    [
        ('{"key": "b"', "line 601 is not JSON"),
        ('{"key": "b", "item": 5}', "line 601: the item of 'b' is not a prompt"),
        ('{"key": "' + "k" * 999 + '", "item": "x"}', "line 601: the key of a run must be"),
    ],
)
def test_a_whole_file_is_checked_before_anything_is_added(tmp_path, last, says):
    """A mistake in the last line would otherwise be found while the runs of earlier lines are being paid for."""
    lines = [f'{{"key": "k{number}", "item": "x"}}' for number in range(600)]
    path = write(tmp_path, "t.jsonl", "\n".join([*lines, last]))
    with pytest.raises(UsageError, match=says):
        check_items(path, None, Batch("b").encode)
