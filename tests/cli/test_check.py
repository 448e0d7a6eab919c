"""`toolwire check`, and the rules that it applies."""

import json

import pytest
from typer.testing import CliRunner

from toolwire.cli.main import app
from toolwire.tools.lint import find_problems

GOOD = {
    "name": "add",
    "description": "Add two numbers.",
    "inputSchema": {"type": "object", "properties": {"a": {"type": "number", "description": "One."}}},
}


def changed(**changes):
    """Return a good tool with these changes."""
    return {**GOOD, **changes}


def schema(**changes):
    """Return a good tool with these changes in its input schema."""
    return changed(inputSchema={**GOOD["inputSchema"], **changes})


def test_a_good_tool_has_no_findings():
    """`find_problems` returns an empty list."""
    assert find_problems([GOOD], "calc") == []


@pytest.mark.parametrize(
    ("tool", "level", "words"),
    [
        (changed(name=""), "error", "the name of a tool is ''"),
        (changed(name="äöü"), "error", "the name has no character that Claude can see: mcp__calc_____"),
        (changed(name="größe"), "warning", "the name is not ASCII, so Claude sees mcp__calc__gr__e"),
        (changed(name="a.b"), "hint", "Claude sees the name as mcp__calc__a_b"),
        (changed(name="x" * 54), "error", "has 65 characters, and the API accepts at most 64"),
        (changed(description=""), "warning", "it has no description"),
        (changed(description=None), "warning", "it has no description"),
        (changed(description="Adds."), "hint", "the description is very short: 'Adds.'"),
        (changed(description="x" * 4097), "warning", "has 4,097 characters, and the CLI cuts it at 4,096"),
        (changed(inputSchema=None), "error", "the input schema is missing: the CLI then drops all tools"),
        (changed(inputSchema={"anyOf": []}), "error", "the input schema is not of type object"),
        (schema(oneOf=[{}]), "error", "the input schema has oneOf at the top, which the API rejects"),
        (schema(anyOf=[{}], allOf=[{}]), "error", "the input schema has anyOf and allOf at the top"),
        (schema(required="a"), "error", "the JSON schema is not valid"),
        (schema(properties={"a": {"$ref": "http://x.y/z"}}), "error", "refers to 'http://x.y/z'"),
        (schema(properties={"a": {}, "b": {}}), "hint", "no description for parameters a, b"),
        (changed(outputSchema={"type": "array"}), "error", "the output schema is not of type object"),
        (changed(outputSchema={"type": "object", "required": 1}), "error", "output schema: the JSON schema"),
        (
            changed(annotations={"readOnlyHint": True, "destructiveHint": True}),
            "warning",
            "it is marked as read-only and as destructive",
        ),
        (
            changed(_meta={"anthropic/maxResultSizeChars": 600_000}),
            "warning",
            "the CLI accepts at most 500,000",
        ),
        (changed(_meta={"anthropic/maxResultSizeChars": "x"}), "error", "maxResultSizeChars is 'x'"),
    ],
)
def test_each_rule_finds_what_it_looks_for(tool, level, words):
    """There is exactly one finding, with a level, a text and a fix."""
    (found,) = find_problems([tool], "calc")
    assert (found.level, words in found.what) == (level, True), found
    assert found.fix


def test_the_limits_themselves_are_fine():
    """These are 64 characters for a name as Claude sees it, 4,096 for a description, and 500,000 for a result."""
    meta = {"anthropic/maxResultSizeChars": 500_000}
    assert find_problems([changed(name="x" * 53, description="x" * 4096, _meta=meta)], "calc") == []


def test_tools_that_the_cli_spells_the_same_are_found():
    """So are tools with equal names."""
    found = find_problems([GOOD, changed(name="a.b"), changed(name="a_b"), GOOD], "calc")
    errors = [each.what for each in found if each.level == "error"]
    assert errors == [
        "there are 2 tools with this name",
        "'a.b' and 'a_b' both have the name mcp__calc__a_b for Claude",
    ]


def test_a_list_that_is_empty_or_long_is_reported():
    """The finding for a long list gives the number of tools."""
    assert find_problems([], "calc")[0].what == "the server has no tools"
    (found,) = find_problems([changed(name=f"tool_{number}") for number in range(298)], "calc")
    assert (found.level, found.tool) == ("hint", None)
    assert "298 tools" in found.what


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Return a function that runs `toolwire check` on a file with this text."""
    monkeypatch.chdir(tmp_path)

    def run(text, *options):
        # Each file has a name of its own, because imported modules stay loaded.
        name = f"checked_{abs(hash(text))}.py"
        (tmp_path / name).write_text(text)
        return CliRunner().invoke(app, ["check", name, *options])

    return run


FINE = '''
def add(a: float) -> float:
    """Add one to a number.

    Args:
        a: The number.
    """
'''


def test_a_file_without_findings_is_ok(check):
    """The output is one line."""
    done = check(FINE)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "OK: 1 tool, nothing to fix\n", "")


def test_hints_and_warnings_do_not_fail_unless_strict(check):
    """Each finding has its fix."""
    text = "def add(a: float) -> float: ...\n"
    done = check(text)
    assert done.exit_code == 0
    assert "warning add: it has no description" in done.stdout
    assert "fix: describe what it does" in done.stdout
    assert done.stdout.endswith("OK: 1 tool, 1 warning, 1 hint\n")
    assert check(text, "--strict").exit_code == 1


def test_errors_fail(check):
    """The exit code is 1, with text and with JSON."""
    text = FINE.replace("add", "x" * 60)
    assert check(text).exit_code == 1
    done = check(text, "--json")
    report = json.loads(done.stdout)
    assert (done.exit_code, report["ok"], report["tools"]) == (1, False, 1)
    assert report["findings"][0]["level"] == "error"
    assert set(report["findings"][0]) == {"level", "tool", "what", "fix"}


def test_texts_of_tools_are_made_safe_for_the_terminal(check):
    """Neither control characters nor markup take effect."""
    text = 'from toolwire import tool\n@tool(description="[b]\\x1b[2J")\ndef f(): ...\n'
    done = check(text)
    assert "\x1b" not in done.stdout
    assert "[b]" in done.stdout
