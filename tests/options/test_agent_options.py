"""What `ClaudeAgentOptions` accepts, and what it refuses, each with its own error."""

import ast
import dataclasses
import inspect
import sys
from pathlib import Path
from typing import Any

import claude_agent_sdk
import pytest

from toolwire.errors import CLIConnectionError, OptionsError
from toolwire.hooks import HookMatcher
from toolwire.options.agent_options import ClaudeAgentOptions, prepare
from toolwire.options.checks import check_paths, kinds_of
from toolwire.options.mcp_servers import split_servers
from toolwire.options.types import SYSTEM_PROMPT_DYNAMIC_BOUNDARY, AgentDefinition

KINDS = kinds_of(ClaudeAgentOptions)
UUID = "0b7fbc8e-2d2b-4a55-9d0a-0e6c2c8a5f11"


class FakeServer:
    """Has the method by which toolwire's own servers are recognised."""

    def connect(self, channel: Any) -> None: ...


class FakeLowLevel:
    """Has the methods by which a low-level MCP server is recognised."""

    def run(self) -> None: ...
    def create_initialization_options(self) -> None: ...


class FakeHighLevel:
    """Has the attribute by which a high-level MCP server is recognised."""

    _lowlevel_server = FakeLowLevel()


async def callback(*args: Any) -> dict[str, Any]:
    return {}


def test_every_annotation_has_a_kind():
    """An annotation that the checks cannot read would let anything pass."""
    kinds = {**KINDS, **kinds_of(AgentDefinition, ordered=True)}
    assert {name for name, kind in kinds.items() if kind.fits(object())} == {"debug_stderr", "session_store"}


# Any value is true or false; these never reach the CLI, or have a use for every value.
TAKES_ANYTHING = {
    "debug_stderr",
    "session_store",
    "session_store_flush",
    "load_timeout_ms",
    "stderr",
    "output_format",
    "debug",
    *(name for name, kind in KINDS.items() if kind.wanted.startswith("True")),
}


@pytest.mark.parametrize("cls", [ClaudeAgentOptions, AgentDefinition])
def test_every_field_is_explained(cls: type):
    """Each field has a docstring of its own below it, for editors and for docs/options.md."""
    [definition] = ast.parse(inspect.getsource(cls)).body
    lines = dict(zip(definition.body, definition.body[1:], strict=False))
    explained = {
        node.target.id: isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        for node, after in lines.items()
        if isinstance(node, ast.AnnAssign)
    }
    assert explained == {field.name: True for field in dataclasses.fields(cls)}


# One value of a wrong kind for each option; ANYTHING kinds have none.
WRONG: dict[str, Any] = {
    "roots": 5,
    **{name: 7 for name, kind in KINDS.items() if kind.wanted in ("a string or None", "a function or None")},
    **{name: True for name, kind in KINDS.items() if kind.wanted.startswith(("a whole number", "a number"))},
    **{key: [3] for key in ("tools", "allowed_tools", "disallowed_tools", "betas", "supported_dialog_kinds")},
    **dict.fromkeys(("permission_mode", "effort", "permission_prompts", "plugin_delivery"), 5),
    **dict.fromkeys(
        ("session_store_spool", "cwd", "cli_path", "debug_file", "project_config_root", "system_prompt"), 3
    ),
    **{name: ["a"] for name in ("env", "hooks", "agents", "thinking", "sandbox", "tool_config")},
    **{key: ["a"] for key in ("resume", "session_id", "resume_session_at", "resume_drops_turn")},
    "mcp_servers": ["a"],
    "settings": {"a": object()},
    "managed_settings": '{"a": 1}',
    "tool_aliases": {"Bash": 1},
    "extra_args": ["verbose"],
    "add_dirs": [3],
    "user": 1.5,
    "setting_sources": ["project", 5],
    "skills": ("pdf",),
    "plugins": ["./plugin"],
    "task_budget": 1000,
}
WRONG = {name: value for name, value in WRONG.items() if name not in TAKES_ANYTHING}


def test_the_table_of_wrong_values_is_complete():
    """There is a wrong value to try for each option that does not take anything."""
    assert set(KINDS) - set(WRONG) == TAKES_ANYTHING


@pytest.mark.parametrize("option", sorted(WRONG))
def test_a_wrong_kind_is_refused_by_name(option: str):
    """A value of the wrong type is refused with the option's name and what it should have been."""
    with pytest.raises(OptionsError) as caught:
        ClaudeAgentOptions(**{option: WRONG[option]})
    assert caught.value.option == option
    assert str(caught.value).startswith(f"ClaudeAgentOptions.{option} must be {KINDS[option].wanted}, got ")


def test_errors_are_also_the_official_ones():
    """Code that catches ValueError or TypeError, as the official SDK raises, still does."""
    for kind in (ValueError, TypeError):
        with pytest.raises(kind):
            ClaudeAgentOptions(skills="pdf")


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    # options, option at fault, part of the text
    ({"skills": "pdf"}, "skills", "Did you mean ['pdf']?"),
    ({"betas": ["x", 2]}, "betas", "whose item 1 is <class 'int'>"),
    ({"env": {"PORT": 80}}, "env", "whose item 'PORT' is <class 'int'>"),
    ({"env": {1: "x"}}, "env", "whose key 1 is not a string"),
    ({"mcp_servers": FakeServer()}, "mcp_servers", 'Each server needs a name: {"name": ...}'),
    ({"mcp_servers": [FakeServer()]}, "mcp_servers", 'Each server needs a name: {"name": ...}'),
    ({"max_budget_usd": float("nan")}, "max_budget_usd", "must be a number"),
    ({"max_budget_usd": 0}, "max_budget_usd", "more than 0"),
    ({"max_budget_usd": -1}, "max_budget_usd", "more than 0"),
    ({"max_budget_usd": float("inf")}, "max_budget_usd", "finite"),
    ({"max_buffer_size": 0}, "max_buffer_size", "more than 0"),
    ({"initialize_timeout": 0}, "initialize_timeout", "more than 0"),
    ({"control_timeout": -0.1}, "control_timeout", "more than 0"),
    ({"close_timeout": -0.1}, "close_timeout", "at least 0"),
    ({"system_prompt": {"type": "custom"}}, "system_prompt", "needs 'prompt'"),
    ({"system_prompt": {"type": "file"}}, "system_prompt", "needs 'path'"),
    ({"thinking": {"type": "enabled"}}, "thinking", "needs 'budget_tokens'"),
    ({"task_budget": {}}, "task_budget", "needs 'total'"),
    ({"task_budget": {"total": 0}}, "task_budget", "more than 0"),
    ({"output_format": {"type": "json_schema", "schema": "{}"}}, "output_format", '"schema" is a str'),
    ({"hooks": {"PreToolUse": [3]}}, "hooks", "HookMatcher(hooks=[function])"),
    ({"hooks": {"Tomorrow": [HookMatcher(hooks=["x"])]}}, "hooks", "a list of functions"),
    ({"thinking": {"budget_tokens": 5}}, "thinking", "needs 'type'"),
    ({"output_format": {"type": "json_schema", "schema": {"a": {1}}}}, "output_format", "JSON values"),
    ({"plugins": [{"path": "p"}]}, "plugins", "plugins[0] needs 'type'"),
    ({"plugins": [{"type": "git", "path": "p"}]}, "plugins", "must be 'local'"),
    ({"plugins": [{"type": "local"}]}, "plugins", "needs 'path'"),
    (
        {"skills": ["pdf", "docx,xlsx"]},
        "skills",
        "has 'docx,xlsx': a name cannot contain parentheses, commas",
    ),
    ({"session_id": "mine"}, "session_id", "must be a UUID"),
    ({"session_id": UUID.replace("-", "")}, "session_id", "must be a UUID"),
    ({"env": {"A=B": "x"}}, "env", "must not contain '='"),
    ({"env": {"A": "x\0"}}, "env", "NUL"),
    ({"model": "a\0b"}, "model", "NUL"),
    ({"system_prompt": {"type": "custom", "prompt": "a\0b"}}, "system_prompt", "NUL"),
    ({"add_dirs": [Path("a\0b")]}, "add_dirs", "NUL"),
    ({"extra_args": {"--debug": None}}, "extra_args", "without --, so write 'debug'"),
    ({"extra_args": {"--": None}}, "extra_args", "write the name of a flag"),
    ({"client_app": "größer-\u4e2d"}, "client_app", "HTTP header"),
    ({"client_app": "a\nb"}, "client_app", "HTTP header"),
    ({"tool_config": {"askUserQuestion": {"previewFormat": "pdf"}}}, "tool_config", "'markdown' or 'html'"),
    ({"project_config_root": "checkout"}, "project_config_root", "absolute"),
    ({"hooks": {"PreToolUse": callback}}, "hooks", "a list of HookMatcher"),
    ({"hooks": {"PreToolUse": [HookMatcher(hooks=["x"])]}}, "hooks", "a list of functions"),
    ({"agents": {"a": {"description": "d", "prompt": "p"}}}, "agents", "AgentDefinition(**...)"),
    ({"agents": {"a": AgentDefinition("d", "p", mcpServers=[{"x": FakeServer()}])}}, "agents", ".mcpServers"),
    ({"on_frame": "print"}, "on_frame", "function"),
    # options that contradict each other
    (
        {"can_use_tool": callback, "permission_prompt_tool_name": "mcp__a__b"},
        "can_use_tool",
        "permission_prompt_tool_name",
    ),
    ({"session_id": UUID, "resume": "x"}, "session_id", "fork_session=True"),
    ({"session_id": UUID, "continue_conversation": True}, "session_id", "fork_session=True"),
    ({"resume_session_at": UUID}, "resume_session_at", "set resume"),
    ({"resume_session_at": UUID, "continue_conversation": True}, "resume_session_at", "set resume"),
    ({"resume": "x", "resume_drops_turn": UUID}, "resume_drops_turn", "resume_session_at"),
    ({"resume": "x", "resume_session_at": UUID, "resume_drops_turn": ""}, "resume_drops_turn", "is empty"),
    ({"supported_dialog_kinds": ["x"]}, "supported_dialog_kinds", "on_user_dialog"),
]


@pytest.mark.parametrize(("given", "option", "text"), REFUSED)
def test_options_that_cannot_work_are_refused(given: dict[str, Any], option: str, text: str):
    """Each mistake has its own error, which names the option and says what to do."""
    with pytest.raises(OptionsError) as caught:
        ClaudeAgentOptions(**given)
    assert caught.value.option == option
    assert text in str(caught.value)


SERVERS_REFUSED: list[tuple[dict[Any, Any], str]] = [
    ({"a": FakeServer}, "is the class FakeServer"),
    ({"a": {"type": "sdk", "name": "a"}}, "needs 'instance'"),
    ({"a": {"command": "x", "timeout": {1, 2}}}, "JSON"),
]


@pytest.mark.parametrize(("servers", "text"), SERVERS_REFUSED)
def test_a_bad_server_is_refused_when_options_are_built(servers: dict[Any, Any], text: str):
    """An entry that is neither a server nor JSON cannot be sent to the CLI."""
    with pytest.raises(OptionsError) as caught:
        ClaudeAgentOptions(mcp_servers=servers)
    assert caught.value.option == "mcp_servers"
    assert text in str(caught.value)


def test_servers_of_all_kinds_are_accepted_together():
    """stdio, sse, http, ws, in-process objects and SDK dicts may be mixed; one object may serve twice."""
    server = FakeServer()
    ClaudeAgentOptions(
        mcp_servers={
            "a": {"command": "x", "args": ["y"], "env": {"K": "v"}, "alwaysLoad": True},
            "b": {"type": "sse", "url": "https://x", "headers": {"A": "b"}},
            "c": {"type": "http", "url": "https://x", "timeout": 5000},
            "d": {"type": "ws", "url": "wss://x"},
            "my server.v2": server,
            "again": server,
            "low": FakeLowLevel(),
            "high": FakeHighLevel(),
            "dict": {"type": "sdk", "name": "dict", "instance": server},
        }
    )


def test_servers_are_split_into_objects_and_configurations_for_the_cli():
    """The CLI gets the name and settings of an in-process server, never the object."""
    one, two, three = FakeServer(), FakeHighLevel(), FakeLowLevel()
    stdio = {"command": "x"}
    instances, configs = split_servers(
        {
            "one": one,
            "two": {"type": "sdk", "name": "other", "instance": two, "timeout": 2000},
            "three": {"type": "sdk", "instance": three},
            "four": stdio,
        }
    )
    assert instances == {"one": one, "two": two, "three": three}
    assert configs == {
        "one": {"type": "sdk", "name": "one"},
        "two": {"type": "sdk", "name": "other", "timeout": 2000},
        "three": {"type": "sdk", "name": "three"},
        "four": {"command": "x"},
    }
    assert configs["four"] is not stdio


@pytest.mark.parametrize("servers", ["servers.json", Path("servers.json"), {}, None])
def test_a_path_has_no_servers_to_split(servers: Any):
    """A path or JSON text is passed to the CLI unchanged."""
    assert ClaudeAgentOptions(mcp_servers=servers).mcp_servers == servers
    assert split_servers(servers) == ({}, {})


@pytest.mark.parametrize(
    "given",
    [
        {"max_turns": 0},
        {"resume": "", "session_id": ""},
        {"fork_session": True},
        {"session_id": UUID, "resume": "x", "fork_session": True},
        {"resume": "x", "resume_session_at": UUID, "resume_drops_turn": UUID},
        {"disallowed_tools": None, "betas": None, "add_dirs": None, "plugins": None, "mcp_servers": None},
        {"allowed_tools": ("Read",), "disallowed_tools": {"Bash"}},
        {"betas": ["a-beta-of-tomorrow"]},
        {"extra_args": {"replay-user-messages": None, "max-turns": 3}},
        {"system_prompt": {"type": "preset", "append": "x", "exclude_dynamic_sections": None}},
        {"system_prompt": ["static", SYSTEM_PROMPT_DYNAMIC_BOUNDARY, "dynamic"]},
        {"thinking": {"type": "disabled"}},
        {"initialize_timeout": 0.5, "control_timeout": float("inf")},
        {"settings": {"model": "x"}, "sandbox": {"enabled": True}},
        {"supported_dialog_kinds": ["x"], "on_user_dialog": callback},
        {"supported_dialog_kinds": []},
        {"permission_mode": "bypassPermissions"},
        {"debug": "mcp,hooks", "debug_file": Path("log.txt")},
        {"user": 1000},
        {"project_config_root": Path(sys.prefix).absolute()},
    ],
)
def test_options_that_the_cli_tolerates_are_accepted(given: dict[str, Any]):
    """Options that work with the official SDK or the CLI are accepted."""
    options = ClaudeAgentOptions(**given)
    assert {name: getattr(options, name) for name in given} == given


class Store:
    """Has the two methods that every store needs."""

    async def append(self, key: Any, entries: Any) -> None:
        """Add entries."""

    async def load(self, key: Any) -> None:
        """Return entries."""


class Forgetful(claude_agent_sdk.SessionStore):
    """Lacks one of them; the method of the official base class then does nothing, silently."""

    async def append(self, key: Any, entries: Any) -> None:
        """Add entries."""


def test_any_object_with_two_methods_is_a_session_store():
    """Duck typing: frameworks bring their own."""
    store = Store()
    assert ClaudeAgentOptions(session_store=store).session_store is store


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"session_store": object()}, r"append\(\)"),
        ({"session_store": Forgetful()}, r"load\(\)"),
        ({"session_store": Store(), "persist_session": False}, "persist_session=False"),
        ({"session_store": Store(), "extra_args": {"no-session-persistence": None}}, "CLI saves nothing"),
        ({"session_store": Store(), "enable_file_checkpointing": True}, "enable_file_checkpointing"),
        ({"session_store": Store(), "continue_conversation": True}, r"list_sessions\(\)"),
    ],
)
def test_a_store_that_would_lose_something_is_refused(given: dict[str, Any], problem: str):
    """When the options are built, not when the conversation is over."""
    with pytest.raises(OptionsError, match=problem):
        ClaudeAgentOptions(**given)


@pytest.mark.filterwarnings("ignore::toolwire.errors.ToolwireWarning")
@pytest.mark.parametrize("extra_args", [None, {"no-session-persistence": False}])
def test_conflicts_are_found_in_the_documented_form_of_options(extra_args: Any):
    """None means no flags, and False leaves a flag out: neither conflicts with a store."""
    ClaudeAgentOptions(session_store=Store(), extra_args=extra_args)


def test_the_load_timeout_of_a_store_must_be_a_number():
    """Without a store it is not used; with one, resuming would fail with a TypeError."""
    assert prepare(ClaudeAgentOptions(session_store=Store(), load_timeout_ms="500")).load_timeout_ms == 500
    with pytest.raises(OptionsError, match="must be a number of milliseconds") as caught:
        ClaudeAgentOptions(session_store=Store(), load_timeout_ms="soon")
    assert caught.value.option == "load_timeout_ms"


def test_replace_checks_again():
    """`dataclasses.replace` builds new options, so what cannot work is refused there too."""
    options = ClaudeAgentOptions(resume="x")
    with pytest.raises(OptionsError, match="session_id"):
        dataclasses.replace(options, session_id=UUID)


def test_fields_that_were_changed_can_be_checked_again():
    """Options are plain data; `check()` finds what was broken after they were built."""
    options = ClaudeAgentOptions()
    options.check()
    options.mcp_servers = {"a": object()}
    with pytest.raises(OptionsError, match="neither a config dict nor"):
        options.check()


@pytest.mark.parametrize(
    "given",
    [
        {"env": {"TOKEN": ["hunter2"]}},
        {"agents": {"a": {"mcpServers": "hunter2"}}},
        {"env": ["TOKEN=hunter2"]},
        {"extra_args": ["hunter2"]},
        {"settings": b"hunter2"},
        {"mcp_servers": ["hunter2"]},
        {"mcp_servers": {"a": {"type": "http", "url": "http://x", "headers": {"Authorization": b"hunter2"}}}},
        {"managed_settings": "hunter2"},
    ],
)
def test_secrets_do_not_get_into_errors(given: dict[str, Any]):
    """Where credentials are common, an error has the type of the value, never the value itself."""
    with pytest.raises(OptionsError) as caught:
        ClaudeAgentOptions(**given)
    assert "hunter2" not in str(caught.value)


def test_long_values_are_cut_in_errors():
    """An error stays readable if the value is long."""
    for given in ({"thinking": "x" * 100_000}, {"agents": ["x" * 100_000]}):
        with pytest.raises(OptionsError) as caught:
            ClaudeAgentOptions(**given)
        assert len(str(caught.value)) < 300


def test_the_working_directory_is_checked_on_its_own(tmp_path: Path):
    """Building options does not look at the disk; `check_paths` does, and says which path is wrong."""
    missing, file = tmp_path / "missing", tmp_path / "file"
    file.write_text("")
    for bad, text in ((missing, "does not exist"), (file, "not a directory")):
        options = ClaudeAgentOptions(cwd=bad)
        with pytest.raises(CLIConnectionError, match=text) as caught:
            check_paths(options)
        assert str(bad) in str(caught.value)
    for good in (tmp_path, str(tmp_path), "", None):
        check_paths(ClaudeAgentOptions(cwd=good))


@pytest.mark.process
def test_importing_options_is_light():
    """Options need no validation library and no MCP package."""
    import subprocess  # noqa: PLC0415 - only this test starts a process

    code = (
        "import toolwire.options.agent_options, toolwire.options.command_line, sys;"
        "print(*{m.split('.')[0] for m in sys.modules})"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"pydantic", "mcp", "anyio", "httpx", "claude_agent_sdk"} & set(loaded)
