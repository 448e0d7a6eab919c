"""Scripts that state what the model expects, and rules that match prompts."""

from dataclasses import dataclass

import anyio
import pytest

from toolwire import ClaudeAgentOptions, ResultError, ToolServer, run
from toolwire._transport.find_cli import bundled_cli
from toolwire.testing import ClaudeEnvironment, ScriptedCLI, ScriptedModel, answer, call, expect, say, when

pytestmark = pytest.mark.anyio


@dataclass
class Point:
    x: int
    y: int


def calculator():
    calc = ToolServer("calc")

    @calc.tool
    def add(a: float, b: float) -> float:
        """Add two numbers."""
        return a + b

    return {"mcp_servers": {"calc": calc}, "allowed_tools": ["mcp__calc"]}


SCRIPT = (call("mcp__calc__add", a=15, b=27), expect("42.0", then=say("It is 42.")))
WRONG = (call("mcp__calc__add", a=15, b=27), expect("43.0", then=say("It is 43.")))


async def test_an_expectation_that_is_met():
    """The script continues."""
    cli = ScriptedCLI(SCRIPT)
    with anyio.fail_after(10):
        reply = await run("go", options=ClaudeAgentOptions(spawn_claude_code_process=cli, **calculator()))
    assert reply.text == "It is 42."
    cli.assert_finished()


async def test_an_expectation_that_is_not_met_shows_both_sides():
    """The error has the actual and the expected value."""
    cli = ScriptedCLI([*WRONG])
    with anyio.fail_after(10), pytest.raises(ResultError):
        await run("go", options=ClaudeAgentOptions(spawn_claude_code_process=cli, **calculator()))
    with pytest.raises(AssertionError) as caught:
        cli.assert_finished()
    assert "43.0" in str(caught.value)
    assert "42.0" in str(caught.value)


async def test_a_failed_expectation_is_readable_in_the_error():
    """Each value is on a line of its own, without escapes."""
    cli = ScriptedCLI([*WRONG])
    with anyio.fail_after(10), pytest.raises(ResultError) as caught:
        await run("go", options=ClaudeAgentOptions(spawn_claude_code_process=cli, **calculator()))
    assert "\n  expected: ('43.0',)\n  actual:   ('42.0',)" in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "value"), [(list[int], [1, 2]), (int, 3), (Point, Point(1, 2)), (dict[str, int], {"a": 1})]
)
async def test_an_answer_is_any_value_of_the_output_type(kind, value):
    """It may be a list, a number or a dataclass, and needs no wrapper object."""
    options = ClaudeAgentOptions(spawn_claude_code_process=ScriptedCLI([answer(value)]))
    with anyio.fail_after(10):
        assert (await run("go", options=options, output_type=kind)).output == value


@pytest.mark.real
async def test_the_same_on_the_real_cli():
    """Expectations that are met and that are not met work with the scripted model too."""
    for script, met in ((SCRIPT, True), (WRONG, False)):
        async with ScriptedModel(script) as model, ClaudeEnvironment(model) as env:
            options = ClaudeAgentOptions(**env.options_kwargs(), cli_path=bundled_cli(), **calculator())
            with anyio.fail_after(60):
                if met:
                    assert (await run("go", options=options)).text == "It is 42."
                    model.assert_finished()
                else:
                    with pytest.raises(ResultError):
                        await run("go", options=options)
                    with pytest.raises(AssertionError, match=r"43\.0"):
                        model.assert_finished()


@pytest.mark.real
async def test_rules_by_prompt():
    """A rule answers each prompt that it matches, any number of times."""
    rules = [when("(?i)weather", say("Sunny.")), when(".", say("No idea."))]
    async with ScriptedModel(rules=rules) as model, ClaudeEnvironment(model) as env:
        options = ClaudeAgentOptions(**env.options_kwargs(), cli_path=bundled_cli())
        with anyio.fail_after(60):
            assert (await run("How is the weather?", options=options)).text == "Sunny."
            assert (await run("And the stocks?", options=options)).text == "No idea."
        model.assert_finished()


def test_an_expectation_of_the_prompt():
    """A prompt that does not match is an error too."""
    from toolwire.testing import Request  # noqa: PLC0415 - only here

    step = expect(prompt="hello", then=say("hi"))
    body = {"messages": [{"role": "user", "content": "goodbye"}]}
    with pytest.raises(AssertionError, match="goodbye"):
        step(Request("POST", "/v1/messages", {}, body))
