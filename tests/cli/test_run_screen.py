"""The parts of `toolwire run` without a terminal: shown messages, the user's answers, and the scripted model."""

import io
import json

import pytest
from rich.cells import cell_len
from rich.console import Console

from toolwire import (
    ApiRetryMessage,
    AssistantMessage,
    McpLogMessage,
    McpProgressMessage,
    ResultMessage,
    StreamEvent,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from toolwire._protocol.parse import parse, typed
from toolwire.cli.run_screen import JsonLines, Screen, describe_failure, plain, summarize
from toolwire.cli.run_scripted import LiteralModel, last_prompt, parse_line, write_example
from toolwire.cli.shared.agent_options import permission_rules
from toolwire.cli.shared.printing import tool_name
from toolwire.cli.shared.terminal_dialogs import Asker
from toolwire.errors import UsageError
from toolwire.permissions import PermissionResultAllow, PermissionResultDeny, ToolPermissionContext
from toolwire.testing import Request, call, say, turn
from toolwire.tools.elicitation import ElicitationRequest

RESULT = ResultMessage(
    "success",
    1234,
    1000,
    False,
    2,
    "s",
    total_cost_usd=0.01234,
    usage={"input_tokens": 20, "output_tokens": 7},
)


def delta(**what):
    return StreamEvent("u", "s", {"type": "content_block_delta", "index": 0, "delta": what})


def said(*blocks, **more):
    return AssistantMessage(list(blocks), "model", **more)


def came(tool_use_id, content, is_error=None):
    return UserMessage([ToolResultBlock(tool_use_id, content, is_error)])


def shown(*messages, width=60, **options):
    """Return what a screen writes into a pipe, with one second between messages."""
    file = io.StringIO()
    screen = Screen(Console(file=file, width=width, highlight=False), **options)
    for now, message in enumerate(messages):
        screen.show(message, float(now))
    screen.settle()
    return file.getvalue()


# --- text of others ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x\x1b]8;;http://a\x1b\\y", "xy"),
        ("a\x08\x00b\x9b", "a\ufffd\ufffdb\ufffd"),
        ("\u202eright to left", "\ufffdright to left"),
        ("a\r\nb\tc", "a\nb    c"),
        ("half \ud83d", "half \ufffd"),
        ("👩\u200d🚀 ünï", "👩\u200d🚀 ünï"),
    ],
)
def test_plain_text_is_safe_for_a_terminal(text, clean):
    """Escape sequences are removed, other control characters replaced by a mark, letters of all scripts kept."""
    assert plain(text) == clean


@pytest.mark.parametrize(
    ("name", "people"),
    [
        ("mcp__calc__add", "calc.add"),
        ("mcp__a_b__c__d", "a_b.c__d"),
        ("Bash", "Bash"),
        ("mcp__odd", "mcp__odd"),
    ],
)
def test_names_of_tools(name, people):
    """Users see the short form, `SERVER.TOOL`."""
    assert tool_name(name) == people


# --- the screen -------------------------------------------------------------------------------------------


def test_streamed_text_is_written_once():
    """A complete block adds nothing to its streamed parts; if it differs from them, it is written as a whole."""
    assert shown(
        delta(type="text_delta", text="Hel"), delta(type="text_delta", text="lo"), said(TextBlock("Hello"))
    ) == ("Hello\n")
    assert shown(delta(type="text_delta", text="Hel"), said(TextBlock("Hello"))) == "Hello\n"
    assert shown(delta(type="text_delta", text="Oops"), said(TextBlock("Hello"))) == "Oops\nHello\n"
    assert shown(said(TextBlock("Hello")), said(TextBlock("again"))) == "Hello\nagain\n"


def test_markup_is_text():
    """Brackets are shown as brackets, whether Claude, a tool or a server wrote them."""
    text = shown(
        said(TextBlock("[red]a[/red] [/]")),
        said(ToolUseBlock("t", "mcp__x__[b]", {"[i]": "[/]"})),
        came("t", "[bold]r[/bold]"),
        McpLogMessage("x", data="[dim]l"),
    )
    for part in ("[red]a[/red] [/]", 'x.[b]([i]="[/]")', "[bold]r[/bold]", "x: [dim]l"):
        assert part in text


def test_a_call_its_time_and_its_result():
    """A call is cut to the width, and a long result to its first lines; a short result is beside the time."""
    use = ToolUseBlock("t", "mcp__calc__add", {"a": "x" * 100, "b": 1})
    lines = shown(said(use), came("t", [{"type": "text", "text": "42"}])).splitlines()
    assert lines[0].startswith('→ calc.add(a="xxx')
    assert lines[0].endswith("…)")
    assert len(lines[0]) == 60
    assert lines[1] == "  ✓ 1.00 s  42"
    lines = shown(said(use), came("t", "1\n2\n3\n4\n5\n6", is_error=True)).splitlines()
    assert lines[1:] == ["  ✗ 1.00 s", "    1", "    2", "    3", "    4", "    … 2 more lines"]


def test_wide_characters_take_two_columns():
    """A call in Japanese fits into the width, too."""
    line = shown(said(ToolUseBlock("t", "mcp__c__a", {"x": "日本語" * 40}))).splitlines()[0]
    assert cell_len(line) in (59, 60)


def test_results_of_several_calls_have_the_name_of_the_tool():
    """The name is left out only if the latest call is the only open one."""
    uses = said(ToolUseBlock("1", "mcp__c__a", {}), ToolUseBlock("2", "mcp__c__b", {}))
    lines = shown(uses, came("2", "two"), came("1", [{"type": "image"}])).splitlines()
    assert lines[2:] == ["  ✓ c.b 1.00 s  two", "  ✓ c.a 2.00 s  <image>"]


def test_the_time_of_a_question_does_not_count():
    """A call's time begins when it was allowed, not when the user was asked."""
    file = io.StringIO()
    screen = Screen(Console(file=file, width=60))
    screen.show(said(ToolUseBlock("t", "mcp__c__a", {})), 0.0)
    screen.resume("t", 9.0)
    screen.show(came("t", "ok"), 9.5)
    assert "✓ 0.50 s" in file.getvalue()


def test_notices_thinking_and_the_rest():
    """Logs, retries, thinking on request; no bar in a pipe; API errors are left to the last line."""
    frame = {"type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 3, "error": "overloaded"}
    retry = typed(parse(frame))
    assert isinstance(retry, ApiRetryMessage)
    log = McpLogMessage("calc", "warning", {"n": 1})
    thought = said(ThinkingBlock("hm", "sig"))
    error = said(TextBlock("API Error"), error="server_error")
    output = shown(retry, log, McpProgressMessage("calc", "t", 1, 2), thought, error)
    assert output == '  API error (overloaded), retry 1 of 3 follows\n  calc: warning: {"n": 1}\n'
    assert shown(thought, thinking=True) == "hm\n"
    assert shown(log, thought, said(TextBlock("x")), RESULT, thinking=True, quiet=True) == "x\n"


def test_invalid_progress_does_no_harm():
    """Servers may send anything; only open calls have a bar."""
    file = io.StringIO()
    screen = Screen(Console(file=file, width=60, force_terminal=True))
    screen.show(McpProgressMessage("c", "t", 1, 2), 0.0)
    assert file.getvalue() == ""
    screen.show(said(ToolUseBlock("t", "mcp__c__a", {})), 0.0)
    screen.show(McpProgressMessage("c", "t", "much", {}, 5), 0.0)
    screen.show(McpProgressMessage("c", None, 1, None, "x\x1b[2J"), 0.0)
    screen.show(came("t", "ok"), 1.0)
    assert "\x1b[2J" not in file.getvalue()
    assert "✓ 1.00 s" in file.getvalue()


def test_the_last_line():
    """It has turns, time, tokens and cost; an error is one line."""
    assert summarize(RESULT) == "2 turns, 1.2 s, 20 tokens in, 7 out, $0.0123 as computed by the CLI"
    assert describe_failure(RESULT) is None
    bad = ResultMessage("error_max_turns", 1, 1, True, 1, "s", errors=["Reached\nmaximum \x1b[1mturns"])
    assert describe_failure(bad) == "Reached maximum turns"


def test_a_terminal_without_unicode_gets_ascii_signs():
    """Arrows and check marks are replaced by ASCII."""
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace")
    screen = Screen(Console(file=file, width=60))
    screen.show(said(ToolUseBlock("t", "mcp__c__a", {})), 0.0)
    screen.show(came("t", "ok"), 1.0)
    file.flush()
    assert file.buffer.getvalue() == b"-> c.a()\n  ok 1.00 s  ok\n"


def test_json_lines():
    """Frames are written as received; toolwire's own messages have a type of their own."""
    file = io.StringIO()
    view = JsonLines(file)
    frame = {"type": "system", "subtype": "new_kind", "x": 1}
    view.show(parse(frame), 0.0)
    view.show(parse({"type": "never_seen"}), 0.0)
    view.show(McpLogMessage("calc", data="l"), 0.0)
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert lines[0] == frame
    assert lines[1] == {"type": "never_seen"}
    assert (lines[2]["type"], lines[2]["server"], lines[2]["data"]) == ("mcp_log", "calc", "l")


# --- questions --------------------------------------------------------------------------------------------


def asker(*answers):
    """Return an asker whose user types these lines and then leaves, and the console it writes to."""
    lines = iter(answers)

    def read(prompt, *, remember=False):
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    file = io.StringIO()
    console = Console(file=file, width=80)
    return Asker(console, console, read), file


def test_answers_to_a_permission_question():
    """Yes and always allow the call; no, with a reason in either place, and the end of input deny it."""
    context = ToolPermissionContext(decision_reason="a rule")
    asks, file = asker("y")
    assert isinstance(asks.permission("mcp__c__a", {"x": "\x1b[2J"}, context), PermissionResultAllow)
    assert "\x1b" not in file.getvalue()
    assert "a rule" in file.getvalue()
    asks, _ = asker("ALWAYS")
    assert all(isinstance(asks.permission("t", {}, context), PermissionResultAllow) for _ in range(3))
    for answers in (["n because"], ["n", "because"]):
        verdict = asker(*answers)[0].permission("t", {}, context)
        assert isinstance(verdict, PermissionResultDeny)
        assert verdict.message.endswith("They say: because")
    assert asker()[0].permission("t", {}, context).message == "The user does not allow this call."


def test_very_long_arguments_say_how_much_is_not_shown():
    """The user has to know that there is more to allow than what is shown."""
    asks, file = asker("n no")
    asks.permission("t", {"x": "y" * 10_000}, ToolPermissionContext())
    assert "more characters" in file.getvalue()


def test_a_form_with_references_and_optional_parts():
    """The form is as Pydantic writes it: an enum in `$defs`, and an optional value that may be null."""
    schema = {
        "type": "object",
        "$defs": {"Size": {"type": "string", "enum": ["small", "large"]}},
        "properties": {
            "size": {"$ref": "#/$defs/Size", "description": "How big"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        },
        "required": ["size"],
    }
    asks, file = asker("large", "")
    answer = asks.elicitation(ElicitationRequest("shop", "Which?", schema=schema))
    assert (answer.action, answer.content) == ("accept", {"size": "large"})
    assert "How big" in file.getvalue()
    assert asker("")[0].elicitation(ElicitationRequest("shop", "Sure?")).action == "accept"
    assert asker()[0].elicitation(ElicitationRequest("shop", "Sure?")).action == "decline"


def test_rules():
    """--allow takes every spelling of a server or tool; --yes allows all servers."""
    given = ["calc", "calc.add", "mcp__calc", "mcp__calc__add"]
    expected = ["mcp__calc", "mcp__calc__add", "mcp__calc", "mcp__calc__add"]
    assert permission_rules(given, ["calc", "shop"], yes=False, builtin=False) == expected
    assert permission_rules([], ["calc", "shop"], yes=True, builtin=False) == ["mcp__calc", "mcp__shop"]
    assert permission_rules(["Bash(git *)"], ["calc"], yes=False, builtin=True) == ["Bash(git *)"]
    for wrong in ("Bash", "mcp__shop"):
        with pytest.raises(UsageError, match="calc.TOOL"):
            permission_rules([wrong], ["calc"], yes=False, builtin=False)


# --- the scripted model -----------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "name": {"type": "string"}, "tags": {"type": "array"}},
    "required": ["a", "name"],
}
TOOLS = {"mcp__calc__add": SCHEMA, "mcp__shop__price": {"type": "object"}}


def asked(*messages, schemas=TOOLS):
    """Return the response of the scripted model to these messages."""
    body = {"messages": list(messages), "tools": [{"name": name} for name in ("Bash", *schemas)]}
    return LiteralModel(schemas)(Request("POST", "/v1/messages", {}, body))


def prompt(text):
    return {"role": "user", "content": text}


@pytest.mark.parametrize(
    ("written", "given"),
    [
        ("a=15 name=Ada", {"a": 15, "name": "Ada"}),
        ('{"a": 15, "name": "Ada"}', {"a": 15, "name": "Ada"}),
        ("name=Ada Lovelace a=1", {"name": "Ada Lovelace", "a": 1}),
        ("name=42", {"name": "42"}),
        ("name='it is' tags=[1, \"b c\"]", {"name": "it is", "tags": [1, "b c"]}),
        ('name="quoted text" a=-1.5e3', {"name": "quoted text", "a": -1500.0}),
        ("a=NaN", {"a": "NaN"}),
        ("name=", {"name": ""}),
        ("name=15 apples", {"name": "15 apples"}),
        ("", {}),
    ],
)
def test_arguments_as_they_are_written(written, given):
    """Arguments are written as name=value, with JSON values, or as one JSON object."""
    assert parse_line(written, SCHEMA) == given


def test_a_line_that_names_a_tool_calls_it():
    """Any of the tool's names works; several lines are several calls, and other lines are ignored."""
    assert asked(prompt("add a=1 name=x")) == turn(call("mcp__calc__add", a=1, name="x"))
    both = asked(prompt("please:\ncalc.add a=1\n  mcp__shop__price\n"))
    assert both == turn(call("mcp__calc__add", a=1), call("mcp__shop__price"))


def test_other_prompts_get_an_introduction():
    """It lists the tools and a line that would work."""
    text = asked(prompt("hello")).text
    assert "a scripted model" in text
    assert "Tools: add, price" in text
    assert text.endswith("  add a=1 name=text")
    assert asked(prompt("hello"), schemas={}).text.endswith("There are no tools.")
    assert "calc.x, shop.x" in asked(prompt("hi"), schemas={"mcp__calc__x": {}, "mcp__shop__x": {}}).text


def test_arguments_that_cannot_be_parsed_are_reported():
    """The answer has an example."""
    for line in ("add 15", 'add {"a": }'):
        answer = asked(prompt(line)).text
        assert answer.startswith("I could not read the arguments of add: ")
        assert answer.endswith("Write for example: add a=1 name=text")


def test_the_scripted_model_repeats_the_results():
    """It repeats all results and errors, with the names of the tools."""
    uses = [{"type": "tool_use", "id": str(n), "name": "mcp__calc__add", "input": {}} for n in (1, 2)]
    results = [
        {"type": "tool_result", "tool_use_id": "1", "content": "42"},
        {"type": "tool_result", "tool_use_id": "2", "content": "no", "is_error": True},
        {"type": "text", "text": "<system-reminder>be nice</system-reminder>"},
    ]
    heard = asked(prompt("add"), {"role": "assistant", "content": uses}, {"role": "user", "content": results})
    assert heard == say("add returned: 42\nadd failed: no")


def test_a_prompt_after_an_interrupted_call_is_a_prompt():
    """The CLI puts the result of the interrupted call and the new prompt into one message."""
    content = [
        {"type": "tool_result", "tool_use_id": "1", "content": "rejected", "is_error": True},
        {"type": "text", "text": "[Request interrupted by user for tool use]"},
        {"type": "text", "text": "price"},
    ]
    assert asked({"role": "user", "content": content}) == turn(call("mcp__shop__price"))
    assert last_prompt(Request("POST", "/", {}, {})) == ""


@pytest.mark.parametrize(
    ("schema", "line"),
    [
        ({}, "t"),
        ({"properties": {"x": {"enum": ["red hot"]}}, "required": ["x"]}, 't x="red hot"'),
        ({"properties": {"x": {"type": "integer", "minimum": 5}}, "required": ["x"]}, "t x=5"),
        ({"properties": {"x": {"anyOf": [{"type": "boolean"}, {"type": "null"}]}}, "required": ["x"]}, "t x=true"),
        ({"properties": {"x": {"$ref": "#/$defs/P"}}, "required": ["x"], "$defs": {"P": SCHEMA}},
         't x={"a":1,"name":"text"}'),
        ({"properties": {"odd name": {"type": "string"}}, "required": ["odd name"]}, 't {"odd name": "text"}'),
    ],
)  # fmt: skip
def test_examples_can_be_used_as_prompts(schema, line):
    """Each example that is shown is accepted as a prompt."""
    assert write_example("mcp__s__t", schema) == line
    parse_line(line.removeprefix("t").strip(), schema)
