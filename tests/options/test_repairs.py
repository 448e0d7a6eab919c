"""Options in other forms than the documented ones, which the official SDK and the CLI take too."""

import copy
import dataclasses
import io
import pickle
import warnings
from typing import Any

import pytest

from shared.odd_options import SILENT, WARNED, agents, callback
from toolwire import ToolServer, ToolwireWarning, create_sdk_mcp_server
from toolwire.options.agent_options import ClaudeAgentOptions, prepare


@pytest.mark.parametrize(("option", "value", "meant"), SILENT)
def test_another_form_of_the_same_value_is_accepted(option: str, value: Any, meant: Any):
    """A value with an obvious meaning is converted to its documented form without a warning."""
    options = ClaudeAgentOptions(**{option: value})
    assert getattr(options, option) is value
    assert getattr(prepare(options), option) == meant


@pytest.mark.parametrize(("option", "value", "meant", "text"), WARNED)
def test_a_warning_says_how_a_value_is_interpreted(option: str, value: Any, meant: Any, text: str):
    """If the author may have meant something else, a warning says what the value counts as."""
    with pytest.warns(ToolwireWarning, match=text) as caught:
        options = ClaudeAgentOptions(**{option: value})
    assert [warning.filename for warning in caught] == [__file__]
    assert str(caught[0].message).startswith(f"ClaudeAgentOptions.{option}")
    assert len(str(caught[0].message)) < 400
    assert getattr(options, option) is value
    assert getattr(prepare(options), option) == meant


def test_documented_values_are_used_unchanged():
    """Nothing is copied unless something has to change."""
    options = ClaudeAgentOptions(allowed_tools=["Read"], permission_mode="plan", env={"A": "x"})
    assert prepare(options) is options


def test_fields_that_are_changed_later_are_converted_at_the_start():
    """Fields may be set after the options were built."""
    options = ClaudeAgentOptions()
    options.allowed_tools = "Read"  # type: ignore[assignment]
    options.env = None  # type: ignore[assignment]
    prepared = prepare(options)
    assert (prepared.allowed_tools, prepared.env) == (["Read"], {})
    assert (options.allowed_tools, options.env) == ("Read", None)


def test_an_iterator_is_read_once():
    """It is kept as a list, so that it is still there at the start."""
    options = ClaudeAgentOptions(allowed_tools=iter(["Read"]))
    assert options.allowed_tools == ["Read"]
    assert prepare(options).allowed_tools == ["Read"]


def test_a_file_gets_the_lines_of_stderr():
    """A file instead of the callback gets the same lines."""
    file = io.StringIO()
    with pytest.warns(ToolwireWarning, match="is a file; each line is written to it"):
        options = ClaudeAgentOptions(stderr=file)
    prepare(options).stderr("a line")
    assert file.getvalue() == "a line\n"


def test_resume_wins_over_continue():
    """As in the CLI, so both may be set; the warning says which takes effect."""
    with pytest.warns(ToolwireWarning, match="resume takes precedence; leave out continue_conversation"):
        ClaudeAgentOptions(continue_conversation=True, resume="x")


def test_options_that_were_prepared_for_the_callback_are_accepted():
    """`stdio` is the tool that the callback is for the CLI; the official SDK sets it by `replace` itself."""
    options = ClaudeAgentOptions(can_use_tool=callback)
    assert prepare(dataclasses.replace(options, permission_prompt_tool_name="stdio")).can_use_tool is callback


def test_our_servers_with_the_same_tool_prefix_are_accepted():
    """Two servers whose tools have the same names run; the CLI takes the first of each name."""
    servers = {"a b": ToolServer("one"), "a.b": create_sdk_mcp_server("two")}
    with pytest.warns(ToolwireWarning, match="rename one"):
        options = ClaudeAgentOptions(mcp_servers=servers)
    assert prepare(options).mcp_servers == servers


def test_secrets_do_not_get_into_warnings():
    """Where credentials are common, a warning has the type of the value, never the value itself."""
    for given in (
        {"mcp_servers": {"a": {"type": "http", "url": "http://x", "headers": ["hunter2"]}}},
        {"mcp_servers": {"a": {"command": "x", "env": {"TOKEN": 22222}}}},
        {"agents": agents(mcpServers={"x": {"env": {"TOKEN": "hunter2"}}})},
        {"extra_args": {"token": "hunter2", "verbose": True}},
    ):
        with pytest.warns(ToolwireWarning) as caught:
            ClaudeAgentOptions(**given)
        assert not [each for each in caught if "hunter2" in str(each.message) or "22222" in str(each.message)]


@dataclasses.dataclass
class Own(ClaudeAgentOptions):
    """A user's own options: another default, and a field that toolwire does not have."""

    permission_mode: str = "acceptEdits"  # type: ignore[assignment]
    retries: int = 3


def test_a_subclass_may_change_defaults_and_add_fields():
    """Its own fields are ignored; fields with another default still reach the CLI."""
    options = Own(retries="many", model="m")  # type: ignore[arg-type]
    argv = build(options)
    assert argv[argv.index("--permission-mode") + 1] == "acceptEdits"
    assert argv[argv.index("--model") + 1] == "m"
    assert prepare(Own(max_turns="3", retries=5)).retries == 5  # type: ignore[arg-type]


def test_a_warning_names_the_line_that_made_the_options():
    """The warning names the user's line, whether a subclass, `replace` or a function of ours made the options."""
    for make in (
        lambda: Own(allowed_tools="Read"),  # type: ignore[arg-type]
        lambda: dataclasses.replace(ClaudeAgentOptions(), allowed_tools="Read"),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            make()
        assert [each.filename for each in caught] == [__file__]


def build(options: ClaudeAgentOptions) -> list[str]:
    from toolwire.options.command_line import build_command  # noqa: PLC0415 - beside its only use

    return build_command(prepare(options), "claude", lambda name, text: name)


def test_options_are_plain_data():
    """They can be made of a dict and of their own, copied, pickled and compared, as a dataclass can."""
    options = ClaudeAgentOptions(model="m", allowed_tools=["Read"], debug_stderr=None)
    assert ClaudeAgentOptions(**vars(options)) == options
    assert ClaudeAgentOptions(**dataclasses.asdict(options)) == options
    pickled = pickle.loads(pickle.dumps(options))  # noqa: S301 - our own bytes
    assert copy.copy(options) == copy.deepcopy(options) == pickled == options


def test_an_unknown_option_is_a_mistake():
    """It raises TypeError as the dataclass does, with the name that was probably meant."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'max_turn'. Did you mean 'max_turns'?"):
        ClaudeAgentOptions(max_turn=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'zzzzzz'$"):
        ClaudeAgentOptions(zzzzzz=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("given", [{"model": "m"}, "m", ClaudeAgentOptions, 5])
def test_objects_that_are_not_options_are_refused_by_name(given: Any):
    """The error names the type that was passed instead of options."""
    with pytest.raises(TypeError, match="options must be ClaudeAgentOptions, got"):
        prepare(given)
