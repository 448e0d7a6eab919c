"""Dialogs without I/O; and both terminals return the same values for the same typed lines."""

import io

import pytest
from rich.console import Console

from toolwire import ElicitationRequest
from toolwire._support.dialogs import Field, ask_permission, elicit
from toolwire.cli.shared.terminal_dialogs import Asker
from toolwire.permissions.terminal import terminal_elicitation

FORM = {
    "type": "object",
    "$defs": {
        "Sure": {"type": "boolean", "description": "Really?"},
        "Size": {"enum": ["s", "m"]},
        "Deep": {"$ref": "#/$defs/Sure"},
    },
    "properties": {
        "age": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}], "default": None},
        "sure": {"$ref": "#/$defs/Sure"},
        "deep": {"$ref": "#/$defs/Deep"},
        "count": {"type": ["integer", "null"]},
        "sizes": {"type": "array", "items": {"$ref": "#/$defs/Size"}},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "several": {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}, {"const": "b"}]}},
    },
    "required": ["sure"],
}
TYPED = ["36", "yes", "n", "7", "s, m", "5", "a,b"]
CONTENT = {
    "age": 36,
    "sure": True,
    "deep": False,
    "count": 7,
    "sizes": ["s", "m"],
    "either": 5,
    "several": ["a", "b"],
}


async def on_the_programs_terminal(request, lines):
    """Return the answer through `terminal_elicitation`, the callback for users' programs."""
    typed = iter(lines)

    async def read(prompt):
        return next(typed, None)

    return await terminal_elicitation(read)(request)


async def on_the_commands_terminal(request, lines):
    """Return the answer through the terminal of `toolwire run` and `toolwire call`."""
    typed = iter(lines)

    def read(prompt, *, remember=False):
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    console = Console(file=io.StringIO())
    result = Asker(console, console, read).elicitation(request)
    return {"action": result.action} | ({} if result.content is None else {"content": result.content})


@pytest.mark.anyio
@pytest.mark.parametrize("ask", [on_the_programs_terminal, on_the_commands_terminal])
async def test_both_terminals_return_values_of_the_schemas_types(ask):
    """An optional integer is a number, and a boolean behind a `$ref` is a boolean, as Pydantic writes them."""
    request = ElicitationRequest("shop", "Which?", schema=FORM)
    assert await ask(request, TYPED) == {"action": "accept", "content": CONTENT}
    assert await ask(request, ["-1", "", *TYPED[1:]]) == {
        "action": "accept",
        "content": {name: value for name, value in CONTENT.items() if name != "age"},
    }
    assert await ask(request, TYPED[:3]) == {"action": "decline"}


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        ({"type": "string"}, "42", "42"),
        ({"type": "integer", "minimum": 1}, "42", 42),
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "false", False),
        ({"enum": [1, "two"]}, "1", 1),
        ({"type": "string", "oneOf": [{"const": "a", "title": "A"}]}, "a", "a"),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}, "a, b", ["a", "b"]),
        ({"type": "array", "items": {"type": "integer"}}, "[1, 2]", [1, 2]),
        ({"type": "string", "default": "d"}, "", "d"),
    ],
)
def test_what_is_typed_becomes_a_value(schema, typed, value):
    """A typed line is converted by the schema of the property."""
    assert Field("f", schema, {"required": ["f"]}).read(typed) == value


@pytest.mark.parametrize(
    ("schema", "typed"),
    [
        ({"type": "integer"}, "x"),
        ({"type": "integer", "minimum": 1}, "0"),
        ({"type": "boolean"}, "perhaps"),
        ({"type": "string", "enum": ["a"]}, "b"),
        ({"type": "string"}, ""),
    ],
)
def test_what_does_not_fit_is_refused(schema, typed):
    """It raises ValueError, upon which a dialog asks again."""
    with pytest.raises(ValueError, match="."):
        Field("f", schema, {"required": ["f"]}).read(typed)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"$ref": "https://example.com/schema"},
        {"$ref": "#/$defs/Missing"},
        {"$ref": "#/properties/f"},
        {"pattern": "("},
        True,
        None,
    ],
)
def test_a_schema_that_cannot_be_used_takes_any_text(schema):
    """The server then checks the value."""
    whole = {"properties": {"f": schema}, "required": ["f"]}
    assert Field("f", schema, whole).read("x") == "x"


@pytest.mark.parametrize("typed", ["NaN", "Infinity", "[" * 100_000, "1e999"])
def test_text_that_is_not_json_stays_text(typed):
    """Values that JSON cannot carry never reach the server."""
    assert Field("f", {}, {}).read(typed) == typed


def test_a_prompt_shows_type_choices_and_default():
    """Brackets hold what an empty line means."""
    whole = {"required": ["n"]}
    assert Field("n", {"type": "integer"}, whole).prompt == "n (integer): "
    assert Field("o", {"type": "boolean", "default": True}, whole).prompt == "o (yes/no) [yes]: "
    assert (
        Field("l", {"type": "array", "items": {"enum": [1, 2]}}, whole).prompt
        == "l (1 | 2, with commas) []: "
    )


def run(dialog, *lines):
    """Return what a dialog returns when these lines are typed, and the texts of its prompts."""
    prompts = [next(dialog)]
    for line in lines:
        try:
            prompts.append(dialog.send(line))
        except StopIteration as stop:
            return stop.value, [prompt.text for prompt in prompts]
    raise AssertionError("the dialog is not over")


def test_permission():
    """A denial may have a reason, which is asked for only where that is wanted."""
    permission, prompts = run(ask_permission("t", "a=1", None), "a", "n")
    assert (permission.allowed, len(prompts)) == (False, 2)
    permission, _ = run(ask_permission("t", "a=1", None, ask_reason=True), "n", "too late")
    assert permission.denial == "The user does not allow this call. They say: too late"
    permission, _ = run(ask_permission("t", "a=1", None, always="today"), "ALWAYS")
    assert (permission.allowed, permission.always) == (True, True)


def test_a_value_that_does_not_fit_is_asked_for_again_with_the_reason():
    """The reason is shown above the next prompt."""
    dialog = elicit(ElicitationRequest("s", "?", schema={"properties": {"n": {"type": "integer"}}}))
    assert dialog.send(None).lines[0] == ("s asks: ?", "request")
    assert dialog.send("x").lines == (('  "x" is not of type "integer"', "error"),)
