"""With each tracing library, a program makes the same spans on toolwire as on the official package.

One program (`traced_program.py`) runs as a process with the real CLI and a scripted model: on the official package,
in alias mode, and with the changed import where the library has a function that takes the class to trace.
"""

import difflib
import functools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from toolwire._transport.find_cli import bundled_cli
from toolwire.testing import ClaudeEnvironment, ScriptedModel, call, fail, say
from tracing.libraries import BY_IMPORT_CHANGE, LIBRARIES
from tracing.spans import describe

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

PROGRAM = Path(__file__).with_name("traced_program.py")
COMMANDS = {
    "official": ([], "claude_agent_sdk"),
    "alias": (["-m", "toolwire.official"], "claude_agent_sdk"),
    "import": ([], "toolwire"),
}
ADDING = call("mcp__calc__add", a=15, b=27)
SCRIPTS = {"plain": [ADDING, say("42"), say("hello")], "failing": [ADDING, say("42"), fail(400)]}
MCP_SPANS = "mcp-python-sdk"
"""The scope of the spans that `mcp` makes for its servers. Tools of toolwire do not run through those."""
OWN_FIELDS = {"braintrust": {"raw", "citations"}}
"""Fields that toolwire's content blocks have beside the official ones, under a library that lists all fields."""


@functools.cache
def run(library, mode, scenario):
    """Run the program once and return what it wrote."""
    with ScriptedModel(SCRIPTS[scenario]) as model, ClaudeEnvironment(model) as environment:
        out = environment.cwd / "seen.json"
        options = {"cli_path": bundled_cli(), "cwd": str(environment.cwd), "env": environment.env}
        before, module = COMMANDS[mode]
        done = subprocess.run(
            [sys.executable, *before, str(PROGRAM), library, module, scenario, str(out), json.dumps(options)],
            env=environment.env,
            cwd=environment.cwd,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr, done.stderr  # libraries log their own failures, and go on
        model.assert_finished()
        # The folder has another name in each run; the CLI also writes that name with hyphens only.
        folder = environment.cwd.parent
        text = out.read_text(encoding="utf-8").replace(str(folder), "/folder")
        text = text.replace(re.sub(r"\W|_", "-", folder.name), "folder")
    # An event with an exception names the module of its class, which is ours for the official class names.
    return json.loads(text.replace("toolwire.errors.", "claude_agent_sdk._errors."))


def spans_of(library, mode, scenario):
    spans = [span for span in run(library, mode, scenario)["spans"] if span.get("scope") != MCP_SPANS]
    own = OWN_FIELDS.get(library, set()) if mode != "official" else set()
    return describe(without(spans, own))


def without(value, names):
    """Return a value of JSON without the fields of these names."""
    if isinstance(value, dict):
        return {name: without(each, names) for name, each in value.items() if name not in names}
    return [without(each, names) for each in value] if isinstance(value, list) else value


def assert_same(library, mode, scenario="plain"):
    official, ours = run(library, "official", scenario), run(library, mode, scenario)
    assert official["sdk"] == "claude_agent_sdk"
    assert ours["sdk"] == "toolwire"
    assert ours["messages"] == official["messages"]
    expected, got = spans_of(library, "official", scenario), spans_of(library, mode, scenario)
    assert len(expected) > 10, "the library saw next to nothing on the official package"
    lines = list(difflib.unified_diff(expected, got, "official", f"toolwire ({mode})", n=2, lineterm=""))
    assert not lines, f"{library} sees other spans:\n" + "\n".join(lines)


@pytest.mark.parametrize("library", LIBRARIES)
def test_library_sees_the_same_in_alias_mode(library):
    """Names, kinds, parents, attributes, token counts and events are the same."""
    assert_same(library, "alias")


@pytest.mark.parametrize("library", [each for each in LIBRARIES if each != "braintrust"])
def test_library_sees_the_same_failures_in_alias_mode(library):
    """The spans are also the same when the tool and the model fail, and the user has hooks.

    Braintrust traces hooks inside the official client, where toolwire has nothing to patch.
    """
    assert_same(library, "alias", "failing")


@pytest.mark.parametrize("library", BY_IMPORT_CHANGE)
def test_library_sees_the_same_with_a_changed_import(library):
    """A library that is given the class to trace records the same for toolwire's as for the official one."""
    assert_same(library, "import")


@pytest.mark.parametrize("mode", ["official", "alias"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_only_loopback_is_reached(library, mode):
    """No library tries to send anything to its vendor from these tests."""
    assert run(library, mode, "plain")["refused"] == []


@pytest.mark.parametrize("library", LIBRARIES)
def test_tokens_are_counted_once(library):
    """toolwire adds no spans of its own to those of the library, so that sums over spans stay right."""
    scopes = {span.get("scope") for span in run(library, "alias", "plain")["spans"]}
    assert "toolwire" not in scopes
