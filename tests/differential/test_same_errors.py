"""Errors compared with the official ones: bases, texts, attributes, `args`, and what a pickle keeps."""

import pickle

import claude_agent_sdk
import claude_agent_sdk._errors
import pytest

import toolwire

FAILED = {
    "subtype": "error_during_execution",
    "errors": ["a", "b"],
    "session_id": "s",
    "terminal_reason": "x",
}
MADE = {
    "ClaudeSDKError": [((), {}), (("text",), {}), (("text", 2), {})],
    "CLIConnectionError": [(("text",), {})],
    "CLINotFoundError": [
        ((), {}),
        (("text",), {}),
        (("text", "/bin/claude"), {}),
        ((), {"cli_path": "/bin/x"}),
    ],
    "ProcessError": [
        (("text",), {}),
        (("text", 3), {}),
        (("text", 3, "why"), {}),
        (("text",), {"exit_code": 0, "stderr": ""}),
    ],
    "ResultError": [
        (("text",), {}),
        (("text", FAILED), {}),
        (("text",), {"data": FAILED, "exit_code": 1}),
        (("text", {"errors": "one", "result": 3}), {}),
    ],
    "CLIJSONDecodeError": [(("{" * 200, ValueError("bad")), {}), (("", ValueError()), {})],
    "MessageParseError": [(("text",), {}), (("text", {"type": "x"}), {})],
}


def kind_of(package, name):
    return getattr(package, name, None) or getattr(claude_agent_sdk._errors, name)


def describe(error):
    """Return everything that a program can see of an error."""
    attributes = {name: value for name, value in vars(error).items() if not name.startswith("_")}
    return str(error), error.args, {name: repr(value) for name, value in attributes.items()}


def survive(error):
    """Return the description of the unpickled error, or the class of what pickling raises."""
    try:
        return describe(pickle.loads(pickle.dumps(error)))  # noqa: S301 - our own
    except Exception as broken:  # noqa: BLE001 - it is compared
        return type(broken)


@pytest.mark.parametrize("name", MADE)
def test_bases(name):
    """The official bases are among ours, in their order."""
    official = [kind.__name__ for kind in kind_of(claude_agent_sdk, name).__mro__]
    ours = [kind.__name__ for kind in kind_of(toolwire, name).__mro__]
    assert [base for base in ours if base in official] == official
    assert kind_of(toolwire, name).__name__ == name


@pytest.mark.parametrize("name", MADE)
def test_texts_and_attributes(name):
    """The same arguments give the same text, `args` and attributes; ours may have more of these."""
    for args, more in MADE[name]:
        official, ours = (kind_of(package, name)(*args, **more) for package in (claude_agent_sdk, toolwire))
        (text, given, known), (our_text, our_given, ours_known) = describe(official), describe(ours)
        assert (our_text, our_given) == (text, given)
        assert {key: ours_known[key] for key in known} == known


@pytest.mark.parametrize("name", MADE)
def test_pickles(name):
    """An error that can be pickled with the official package can be pickled with ours, and then loses nothing."""
    for args, more in MADE[name]:
        official, ours = (kind_of(package, name)(*args, **more) for package in (claude_agent_sdk, toolwire))
        survived = survive(ours)
        if not isinstance(survive(official), type):
            assert not isinstance(survived, type)
            assert survived == describe(ours)
