"""`import toolwire` is light, and its three lists of names agree."""

import ast
import subprocess
import sys
from pathlib import Path

import claude_agent_sdk
import claude_agent_sdk.types
import pytest

import toolwire
import toolwire.types

HEAVY = [
    "mcp",
    "pydantic",
    "httpx",
    "httpx2",
    "starlette",
    "typer",
    "rich",
    "trio",
    "claude_agent_sdk",
    "jsonschema",
    "opentelemetry",
]

# History comes later (R44).
NOT_YET = {
    *("list_sessions", "get_session_info", "get_session_messages", "list_subagents", "get_subagent_messages"),
    *("SDKSessionInfo", "SessionMessage", "SessionStore", "SessionStoreEntry", "SessionStoreListEntry"),
    *("SessionSummaryEntry", "SessionListSubkeysKey", "InMemorySessionStore", "fold_session_summary"),
    *(
        "project_key_for_directory",
        "import_session_to_store",
        "list_sessions_from_store",
        "ForkSessionResult",
    ),
    *("get_session_info_from_store", "get_session_messages_from_store", "list_subagents_from_store"),
    *("get_subagent_messages_from_store", "rename_session", "tag_session", "delete_session", "fork_session"),
    *(
        "rename_session_via_store",
        "tag_session_via_store",
        "delete_session_via_store",
        "fork_session_via_store",
    ),
}


def loaded_after(code):
    """The modules that a fresh interpreter has loaded after running `code`."""
    show = "import sys; print(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{show}"], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize(
    "code",
    [
        "import toolwire",
        "import toolwire; dir(toolwire); toolwire.__all__",
        "from toolwire import ClaudeAgentOptions, ClaudeSDKClient, query, run, startup",
        "import toolwire.types",
        "from toolwire.testing import ScriptedModel",
    ],
)
def test_nothing_heavy_is_loaded(code):
    """No MCP, HTTP, validation or terminal library before it is used."""
    assert loaded_after(code) & set(HEAVY) == set()


def test_the_bare_import_loads_no_event_loop():
    """`import toolwire` alone loads hardly anything."""
    assert loaded_after("import toolwire") & {"asyncio", "anyio", "orjson", "dataclasses"} == set()


def test_every_name_resolves_and_shows():
    """`__all__`, `dir()` and attributes agree."""
    assert len(set(toolwire.__all__)) == len(toolwire.__all__)
    for name in toolwire.__all__:
        assert getattr(toolwire, name) is not None
        assert name in dir(toolwire)


def test_an_unknown_name_is_an_attribute_error():
    """A misspelt import fails as for any module."""
    with pytest.raises(AttributeError, match="no attribute 'qeury'"):
        _ = toolwire.qeury


def test_the_stub_for_type_checkers_has_the_same_names():
    """What a type checker sees is what there is."""
    stub = ast.parse(Path(toolwire.__file__).with_suffix(".pyi").read_text())
    seen = {
        alias.asname: node.module
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == {name: f"toolwire.{module}" for name, module in toolwire._WHERE.items()}


def test_every_official_name_is_here():
    """One changed import: each public name of the official SDK is ours too, but for those that come later."""
    missing = set(claude_agent_sdk.__all__) - set(toolwire.__all__)
    assert missing == NOT_YET


def test_every_official_type_is_here():
    """The same for `claude_agent_sdk.types`."""
    official = {
        name
        for name, value in vars(claude_agent_sdk.types).items()
        if name[0].isupper()
        and name != "TYPE_CHECKING"
        and getattr(value, "__module__", "claude_agent_sdk.types").startswith("claude_agent_sdk")
    }
    session = {name for name in NOT_YET if name[0].isupper()}
    assert official - set(toolwire.types.__all__) - session == set()


def test_the_test_kit_has_a_stub_of_the_same_names():
    """`toolwire.testing` loads lazily too, and a type checker sees all of it."""
    from toolwire import testing  # noqa: PLC0415 - only here

    stub = ast.parse(Path(testing.__file__).with_suffix(".pyi").read_text())
    seen = {alias.asname: node.module for node in stub.body for alias in node.names}
    assert seen == {name: f"toolwire.{module}" for name, module in testing._WHERE.items()}
    assert all(getattr(testing, name) is not None for name in testing.__all__)
