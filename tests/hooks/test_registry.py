"""Hooks: how they are announced to the CLI, and how their outputs go back to it."""

import re
import typing
from pathlib import Path

import pytest

from toolwire import hooks
from toolwire.hooks import HookEvent, HookMatcher
from toolwire.hooks.calling import check_output
from toolwire.hooks.events import SPECIFIC_OUTPUTS
from toolwire.hooks.registry import RegisteredHook, blocks_on_failure, output_to_wire, register


async def first(data, tool_use_id, context):
    return {}


async def second(data, tool_use_id, context):
    return {}


def test_ids_count_up_over_all_events():
    """Each callback has its own id, in the order in which the hooks were given."""
    config, registered = register(
        {
            "PreToolUse": [
                HookMatcher("Bash", [first, second], timeout=5.0),
                HookMatcher(None, [first], on_failure="block"),
            ],
            "SessionEnd": [HookMatcher(hooks=[second])],
        }
    )
    assert config == {
        "PreToolUse": [
            {"matcher": "Bash", "hookCallbackIds": ["hook_0", "hook_1"], "timeout": 5.0},
            {"matcher": None, "hookCallbackIds": ["hook_2"], "onFailure": "block"},
        ],
        "SessionEnd": [{"matcher": None, "hookCallbackIds": ["hook_3"]}],
    }
    assert registered == {
        "hook_0": RegisteredHook("PreToolUse", first, "Bash", 5.0, None),
        "hook_1": RegisteredHook("PreToolUse", second, "Bash", 5.0, None),
        "hook_2": RegisteredHook("PreToolUse", first, None, None, "block"),
        "hook_3": RegisteredHook("SessionEnd", second, None, None, None),
    }


def test_no_hooks_are_null():
    """The CLI is sent null, not an empty object; an event without matchers is left out."""
    assert register({}) == (None, {})
    assert register({"Stop": []}) == (None, {})


def test_a_matcher_without_callbacks_is_still_told():
    """It is announced as in the official SDK; a timeout of zero is sent too."""
    assert register({"Stop": [HookMatcher(timeout=0)]})[0] == {
        "Stop": [{"matcher": None, "hookCallbackIds": [], "timeout": 0}]
    }


@pytest.mark.parametrize(
    ("on_failure", "blocks"), [(None, False), ("continue", False), ("block", True), ("odd", True)]
)
def test_whether_a_failure_blocks(on_failure, blocks):
    """Any value but None and `continue` does, as for the CLI."""
    config, _ = register({"Stop": [HookMatcher(), HookMatcher(on_failure=on_failure)]})
    assert blocks_on_failure(config) is blocks
    assert blocks_on_failure(None) is False


def test_output_in_the_spelling_of_the_cli():
    """Only the two names that are keywords in Python are changed, and only at the top."""
    given = {"continue_": False, "async_": True, "decision": "block", "hookSpecificOutput": {"continue_": 1}}
    assert output_to_wire(given) == {
        "continue": False,
        "async": True,
        "decision": "block",
        "hookSpecificOutput": {"continue_": 1},
    }
    assert "continue_" in given
    assert output_to_wire({"continue": True}) == {"continue": True}


@pytest.mark.parametrize(
    ("returned", "name"),
    [(None, r"builtins\.NoneType \(return \{\} for no opinion\)"), ("no", r"builtins\.str$")],
)
def test_an_output_that_is_no_dict_is_named(returned, name):
    """The error names the type that the hook returned."""
    with pytest.raises(TypeError, match=f"a hook must return a dict, not {name}"):
        output_to_wire(returned)


@pytest.mark.parametrize("event", typing.get_args(HookEvent))
def test_every_event_has_a_typed_input(event):
    """The input of each event names it, and is a part of HookInput."""
    kind = getattr(hooks, f"{event}HookInput")
    assert typing.get_type_hints(kind)["hook_event_name"] == typing.Literal[event]
    assert kind in typing.get_args(hooks.HookInput)
    assert kind.__required_keys__ >= {"session_id", "transcript_path", "cwd", "hook_event_name"}


def test_every_specific_output_names_its_event():
    """The name in the dict is one of the CLI's events."""
    for kind in typing.get_args(hooks.HookSpecificOutput):
        [event] = typing.get_args(typing.get_type_hints(kind)["hookEventName"])
        assert event in typing.get_args(HookEvent)
        assert kind.__name__ == f"{event}HookSpecificOutput"
        assert getattr(hooks, kind.__name__) is kind, "not in _NAMES"


@pytest.mark.parametrize("event", SPECIFIC_OUTPUTS)
def test_every_key_of_a_specific_output_can_be_checked(event):
    """A value of a wrong type is a problem, not an exception, whatever type the key has."""
    for key, kind in typing.get_type_hints(SPECIFIC_OUTPUTS[event]).items():
        _, problems = check_output(event, {"hookSpecificOutput": {"hookEventName": event, key: object()}})
        assert problems or kind is typing.Any, key


def test_the_page_on_hooks_lists_every_event():
    """Its table has a row for each event, in order, marked where the event takes context."""
    page = (Path(__file__).parents[2] / "docs" / "hooks.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+) \| (C?) ?\| ", page.partition("## Events")[2], re.MULTILINE)
    taking = [
        event for event, kind in SPECIFIC_OUTPUTS.items() if "additionalContext" in kind.__annotations__
    ]
    assert [(event, bool(context)) for event, context in rows if event != "event"] == [
        (event, event in taking) for event in typing.get_args(HookEvent)
    ]
