"""toolwire and the official SDK, given equal options, send the same to the CLI.

The official code is really run: its command builder, its `query()` over a transport that records what is
written, and its `connect()` up to the moment when it would start a process. Intended differences are rows, each
with its reason.
"""

import dataclasses
import json
import os
import warnings
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import anyio
import pytest

import toolwire.types as ours
from toolwire.client import responses as _responses
from toolwire.errors import OptionsError
from toolwire.hooks import HookMatcher
from toolwire.hooks.registry import register
from toolwire.options import types as _option_types
from toolwire.options.checks import find_skill_name_problem
from toolwire.options.command_line import (
    POSIX,
    build_command,
    build_environment,
    build_initialize_request,
    build_user_message,
    explain_shadowing,
)

official = pytest.importorskip("claude_agent_sdk")
official_types = pytest.importorskip("claude_agent_sdk.types")
subprocess_cli = pytest.importorskip("claude_agent_sdk._internal.transport.subprocess_cli")

UUID = "0b7fbc8e-2d2b-4a55-9d0a-0e6c2c8a5f11"
NEXT_UUID = "1b7fbc8e-2d2b-4a55-9d0a-0e6c2c8a5f12"
OURS = SimpleNamespace(AgentDefinition=ours.AgentDefinition, HookMatcher=HookMatcher)
OFFICIAL = SimpleNamespace(AgentDefinition=official.AgentDefinition, HookMatcher=official.HookMatcher)


async def callback(*args: Any) -> dict[str, Any]:
    return {}


def _server(name: str) -> Any:
    return official.create_sdk_mcp_server(name, tools=[])


CALC = _server("calc")
SETTINGS = '{"permissions": {"allow": ["Bash(ls)"]}, "model": "ü"}'

# Each row is a set of options; `sdk` gives the classes of the side that is asked.
CASES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "nothing": lambda sdk: {},
    "tools": lambda sdk: {"tools": ["Read", "Bash"]},
    "no tools": lambda sdk: {"tools": []},
    "tools preset": lambda sdk: {"tools": {"type": "preset", "preset": "claude_code"}},
    "allowed and denied": lambda sdk: {
        "allowed_tools": ["Read", "Bash(git *)", "mcp__calc"],
        "disallowed_tools": ["Write", "WebFetch"],
    },
    "system prompt": lambda sdk: {"system_prompt": "Be brief. Größe, 中"},
    "empty system prompt": lambda sdk: {"system_prompt": ""},
    "prompt with a dash": lambda sdk: {"system_prompt": "- a list"},
    "preset": lambda sdk: {"system_prompt": {"type": "preset", "preset": "claude_code"}},
    "preset with everything": lambda sdk: {
        "system_prompt": {
            "type": "preset",
            "preset": "claude_code",
            "append": "And be kind.",
            "exclude_dynamic_sections": True,
            "snapshot": False,
        }
    },
    "preset, flags off": lambda sdk: {
        "system_prompt": {"type": "preset", "preset": "claude_code", "exclude_dynamic_sections": False}
    },
    "custom prompt": lambda sdk: {"system_prompt": {"type": "custom", "prompt": "x", "snapshot": True}},
    "custom prompt, foreign key": lambda sdk: {
        "system_prompt": {"type": "custom", "prompt": "x", "exclude_dynamic_sections": True}
    },
    "prompt file": lambda sdk: {"system_prompt": {"type": "file", "path": "prompt.md"}},
    "stdio server": lambda sdk: {
        "mcp_servers": {"fs": {"command": "npx", "args": ["-y"], "env": {"K": "ü"}}}
    },
    "remote servers": lambda sdk: {
        "mcp_servers": {
            "a": {"type": "http", "url": "https://x/mcp", "headers": {"A": "b"}, "timeout": 1000},
            "b": {"type": "sse", "url": "https://y"},
        },
        "strict_mcp_config": True,
    },
    "in-process server": lambda sdk: {"mcp_servers": {"calc": CALC, "my server.v2": _server("other")}},
    "in-process server with settings": lambda sdk: {
        "mcp_servers": {"calc": {**CALC, "timeout": 2000, "alwaysLoad": True}, "fs": {"command": "x"}}
    },
    "server file": lambda sdk: {"mcp_servers": "servers.json"},
    "server path": lambda sdk: {"mcp_servers": Path("conf") / "servers.json"},
    "server JSON": lambda sdk: {"mcp_servers": '{"mcpServers": {}}'},
    "permission mode": lambda sdk: {"permission_mode": "acceptEdits"},
    "permission mode default": lambda sdk: {"permission_mode": "default"},
    "permission tool": lambda sdk: {"permission_prompt_tool_name": "mcp__auth__ask"},
    "callback": lambda sdk: {"can_use_tool": callback, "allowed_tools": ["Bash(ls)"]},
    "continue": lambda sdk: {"continue_conversation": True},
    "resume": lambda sdk: {"resume": UUID},
    "resume by a title with a dash": lambda sdk: {"resume": "--dangerously-skip-permissions"},
    "resume, cut and fork": lambda sdk: {
        "resume": "my title",
        "fork_session": True,
        "session_id": UUID,
        "resume_session_at": UUID,
        "resume_drops_turn": NEXT_UUID,
    },
    "fork only": lambda sdk: {"fork_session": True},
    "session id": lambda sdk: {"session_id": UUID},
    "empty identifiers": lambda sdk: {"resume": "", "session_id": "", "resume_session_at": "", "model": ""},
    "limits": lambda sdk: {"max_turns": 3, "max_budget_usd": 0.5, "task_budget": {"total": 20_000}},
    "no turns": lambda sdk: {"max_turns": 0, "max_budget_usd": 2},
    "models": lambda sdk: {
        "model": "sonnet",
        "fallback_model": "haiku,opus",
        "betas": ["context-1m-2025-08-07", "other"],
    },
    "directories": lambda sdk: {
        "cwd": "work",
        "cli_path": Path("other") / "claude",
        "add_dirs": ["/a", Path("/b c")],
    },
    "settings": lambda sdk: {"settings": SETTINGS},
    "settings file": lambda sdk: {"settings": "settings.json"},
    "no settings": lambda sdk: {"settings": ""},
    "sandbox": lambda sdk: {"sandbox": {"enabled": True, "network": {"allowedDomains": ["x"]}}},
    "sandbox in settings": lambda sdk: {"settings": f" {SETTINGS} ", "sandbox": {"enabled": True}},
    "sandbox over a sandbox": lambda sdk: {"settings": '{"sandbox": {"a": 1}, "z": 1}', "sandbox": {}},
    "environment": lambda sdk: {
        "env": {"A": "1", "CLAUDE_CODE_ENTRYPOINT": "me", "CLAUDE_AGENT_SDK_CLIENT_APP": "x"},
        "client_app": "app/1.0",
        "enable_file_checkpointing": True,
    },
    "environment of the caller": lambda sdk: {"env": {"claude_code_sdk_reads_session_state": "0"}},
    "empty client app": lambda sdk: {"client_app": ""},
    "extra flags": lambda sdk: {
        "extra_args": {"replay-user-messages": None, "name": "x", "offset": "-1", "empty": "", "n": 5}
    },
    "host side": lambda sdk: {
        "max_buffer_size": 10_000,
        "debug_stderr": None,
        "stderr": print,
        "user": None,
        "session_store": official.InMemorySessionStore(),
        "session_store_flush": "eager",
        "load_timeout_ms": 5,
    },
    "stream": lambda sdk: {
        "include_partial_messages": True,
        "include_hook_events": True,
        "forward_subagent_text": True,
    },
    "verbatim": lambda sdk: {"verbatim_prompts": True},
    "hooks": lambda sdk: {
        "hooks": {
            "PreToolUse": [
                sdk.HookMatcher(matcher="Bash|Write", hooks=[callback, callback], timeout=5.0),
                sdk.HookMatcher(hooks=[callback], on_failure="continue"),
            ],
            "Stop": [],
        }
    },
    "agents": lambda sdk: {
        "agents": {
            "reviewer": sdk.AgentDefinition(
                "reviews",
                "You review.",
                tools=["Read"],
                disallowedTools=["Bash"],
                model="inherit",
                skills=[],
                memory="project",
                mcpServers=["calc", {"fs": {"command": "x"}}],
                initialPrompt="go",
                maxTurns=3,
                background=False,
                effort="high",
                permissionMode="plan",
            ),
            "plain": sdk.AgentDefinition("d", "p"),
        }
    },
    "no agents": lambda sdk: {"agents": {}},
    "setting sources": lambda sdk: {"setting_sources": ["project", "local"]},
    "no setting sources": lambda sdk: {"setting_sources": []},
    "skills": lambda sdk: {"skills": ["pdf", "plugin:skill", "pdf"], "allowed_tools": ["Skill(pdf)", "Read"]},
    "all skills": lambda sdk: {"skills": "all", "setting_sources": ["user"]},
    "no skills": lambda sdk: {"skills": []},
    "plugins": lambda sdk: {"plugins": [{"type": "local", "path": "./a"}, {"type": "local", "path": "/b"}]},
    "thinking tokens": lambda sdk: {"max_thinking_tokens": 0},
    "thinking wins": lambda sdk: {"max_thinking_tokens": 5, "thinking": {"type": "disabled"}},
    "thinking enabled": lambda sdk: {
        "thinking": {"type": "enabled", "budget_tokens": 4096, "display": "omitted"}
    },
    "thinking adaptive": lambda sdk: {
        "thinking": {"type": "adaptive", "display": "summarized"},
        "effort": "xhigh",
    },
    "schema": lambda sdk: {
        "output_format": {"type": "json_schema", "schema": {"type": "object", "description": "ü"}}
    },
    "much at once": lambda sdk: {
        "tools": ["Read"],
        "allowed_tools": ["Read"],
        "system_prompt": "x",
        "mcp_servers": {"calc": CALC},
        "strict_mcp_config": True,
        "permission_mode": "plan",
        "resume": UUID,
        "fork_session": True,
        "settings": SETTINGS,
        "sandbox": {"enabled": False},
        "add_dirs": ["/a"],
        "setting_sources": ["user"],
        "plugins": [{"type": "local", "path": "p"}],
        "extra_args": {"x": "y"},
        "thinking": {"type": "adaptive"},
        "effort": "low",
        "output_format": {"type": "json_schema", "schema": {}},
        "include_partial_messages": True,
        "can_use_tool": callback,
    },
}


def no_file(hint: str, text: str) -> str:
    raise AssertionError(f"{hint} should have been an argument")


def official_options(given: dict[str, Any]) -> Any:
    return official.ClaudeAgentOptions(**{"cli_path": "claude", **given})


def official_command(given: dict[str, Any]) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", official.CanUseToolShadowedWarning)
        options = official_types._configure_can_use_tool(official_options(given))
    return subprocess_cli.SubprocessCLITransport(prompt="", options=options)._build_command()


def our_command(given: dict[str, Any], to_file: Callable[[str, str], str] = no_file) -> list[str]:
    options = ours.ClaudeAgentOptions(**{"cli_path": "claude", **given})
    return build_command(options, os.fspath(options.cli_path or ""), to_file, POSIX)


class Recorder(official.Transport):  # type: ignore[misc, name-defined]
    """Answers initialize, ends after the prompt, and keeps what was written."""

    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []
        self._send, self._receive = anyio.create_memory_object_stream[dict[str, Any]](10)

    async def connect(self) -> None: ...

    async def write(self, data: str) -> None:
        frame = json.loads(data)
        self.frames.append(frame)
        if frame["type"] == "control_request":
            answer = {"subtype": "success", "request_id": frame["request_id"], "response": {}}
            await self._send.send({"type": "control_response", "response": answer})
        else:
            self._send.close()

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        async with self._receive:
            async for frame in self._receive:
                yield frame

    async def close(self) -> None: ...

    def is_ready(self) -> bool:
        return True

    async def end_input(self) -> None: ...


def official_frames(given: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the official `query("hi")` writes: the initialize request, then the prompt."""
    recorder = Recorder()

    async def run() -> None:
        with anyio.fail_after(20), warnings.catch_warnings():
            warnings.simplefilter("ignore", official.CanUseToolShadowedWarning)
            async for _ in official.query(prompt="hi", options=official_options(given), transport=recorder):
                pass

    anyio.run(run)
    return recorder.frames


# The configuration of a server that is not in this process may hold secrets, so it is passed in a private file.
IN_A_FILE = {"stdio server", "remote servers", "in-process server with settings"}


@pytest.mark.parametrize("name", CASES)
def test_the_command_line_is_the_same(name: str):
    """For equal options, every argument is equal and in the same place; files hold what stood there."""
    to_file = (lambda hint, text: text) if name in IN_A_FILE else no_file
    assert our_command(CASES[name](OURS), to_file) == official_command(CASES[name](OFFICIAL))


@pytest.mark.parametrize("name", CASES)
def test_the_first_two_frames_are_the_same(name: str):
    """For equal options, the initialize request and the user message are equal."""
    options = ours.ClaudeAgentOptions(**CASES[name](OURS))
    hooks_config, _callbacks = register(options.hooks or {})
    initialize, prompt = official_frames(CASES[name](OFFICIAL))
    assert build_initialize_request(options, hooks_config, POSIX) == initialize["request"]
    assert build_user_message("hi", "", options.verbatim_prompts) == prompt


class Started(Exception):  # noqa: N818 - a signal, not an error
    """The official SDK is about to start a process."""


@pytest.mark.parametrize(
    "name", ["nothing", "environment", "environment of the caller", "empty client app", "directories"]
)
def test_the_environment_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch):
    """For equal options, the CLI gets equal variables, apart from the version of the SDK."""
    base = {
        "PATH": "/bin",
        "A": "0",
        "CLAUDECODE": "1",
        "CLAUDE_CODE_ENTRYPOINT": "cli",
        "CLAUDE_AGENT_SDK_DERIVED_CLIENT_APP": "outer/1",
    }
    seen: list[dict[str, str]] = []

    async def open_process(*args: Any, env: dict[str, str], **kwargs: Any) -> None:
        seen.append(env)
        raise Started

    async def run() -> None:
        transport = subprocess_cli.SubprocessCLITransport(
            prompt="", options=official_options(CASES[name](OFFICIAL))
        )
        with pytest.raises(official.CLIConnectionError):
            await transport.connect()

    monkeypatch.setattr(subprocess_cli.os, "environ", base)
    monkeypatch.setattr(subprocess_cli.anyio, "open_process", open_process)
    anyio.run(run)
    assert (
        build_environment(ours.ClaudeAgentOptions(**CASES[name](OURS)), base, official.__version__) == seen[0]
    )


def test_each_official_option_is_tried():
    """No option of the official SDK is missing from the cases."""
    tried = {option for case in CASES.values() for option in case(OURS)}
    assert tried == {field.name for field in dataclasses.fields(official.ClaudeAgentOptions)}


LONG = "x" * 100_001
ARGV_DIFFERENCES: list[tuple[str, dict[str, Any], list[str]]] = [
    # reason, options, our flags
    (
        "a tuple of tools is a list of tools; there it means all of them",
        {"tools": ("Read",)},
        ["--tools", "Read"],
    ),
    (
        "the CLI skips an in-process server that has no name",
        {"mcp_servers": {"calc": {"type": "sdk", "instance": CALC["instance"]}}},
        ["--mcp-config", '{"mcpServers": {"calc": {"type": "sdk", "name": "calc"}}}'],
    ),
    (
        "a plugin may come without its MCP servers, as in TypeScript",
        {"plugins": [{"type": "local", "path": "p", "skipMcpDiscovery": True}]},
        ["--plugin-dir-no-mcp", "p"],
    ),
    (
        "others can read a command line, and a server's headers, environment and address hold secrets",
        {"mcp_servers": {"a": {"type": "http", "url": "https://x/mcp"}}},
        ["--mcp-config", "FILE"],
    ),
    (
        "the same, given as JSON",
        {"mcp_servers": '{"mcpServers": {"a": {"command": "x"}}}'},
        ["--mcp-config", "FILE"],
    ),
    (
        "settings with variables hold secrets too",
        {"settings": '{"env": {"A_KEY": "x"}}'},
        ["--settings", "FILE"],
    ),
    ("long text does not fit a command line", {"system_prompt": LONG}, ["--system-prompt-file", "FILE"]),
    (
        "long text does not fit a command line",
        {"system_prompt": {"type": "preset", "preset": "claude_code", "append": LONG}},
        ["--append-system-prompt-file", "FILE"],
    ),
    ("long text does not fit a command line", {"settings": f'{{"a": "{LONG}"}}'}, ["--settings", "FILE"]),
    (
        "long text does not fit a command line",
        {"mcp_servers": {"a": {"command": LONG}}},
        ["--mcp-config", "FILE"],
    ),
    (
        "a long schema is sent in the initialize request",
        {"output_format": {"type": "json_schema", "schema": {"description": LONG}}},
        [],
    ),
]


@pytest.mark.parametrize(("reason", "given", "expected"), ARGV_DIFFERENCES)
def test_intended_differences_of_the_command_line(reason: str, given: dict[str, Any], expected: list[str]):
    """Where we differ on purpose, we still do; if the official SDK changes, the row can go."""
    argv = our_command(given, lambda hint, text: "FILE")
    assert argv != official_command(given), f"no difference any more: {reason}"
    default = [] if "system_prompt" in given else ["--system-prompt", ""]
    assert argv == [*our_command({})[:4], *default, *expected, "--input-format", "stream-json"]


REFUSED_BY_US: list[tuple[str, dict[str, Any]]] = [
    ("the CLI exits: an id needs a fork", {"session_id": UUID, "resume": "x"}),
    ("the CLI exits: not a UUID", {"session_id": "mine"}),
    ("the CLI exits: a cut needs --resume", {"resume_session_at": UUID}),
    ("the CLI exits: the guard needs a cut", {"resume": "x", "resume_drops_turn": UUID}),
    ("the CLI exits: a budget is more than 0", {"max_budget_usd": 0}),
    ("the CLI exits: a budget is more than 0", {"task_budget": {"total": 0}}),
    ("the flag would get four dashes", {"extra_args": {"--debug": None}}),
    ("no process can be started with it", {"model": "a\0b"}),
]


@pytest.mark.parametrize(("reason", "given"), REFUSED_BY_US)
def test_intended_differences_in_what_is_refused(reason: str, given: dict[str, Any]):
    """Options that cannot work are refused when they are built; the official SDK starts the CLI with them."""
    official_command(given)
    with pytest.raises(OptionsError):
        ours.ClaudeAgentOptions(**given)


@pytest.mark.parametrize("name", ["ClaudeAgentOptions", "AgentDefinition"])
def test_the_fields_are_the_same(name: str):
    """The official fields come first, in the same order and with the same defaults."""
    theirs = dataclasses.fields(getattr(official, name))
    mine = dataclasses.fields(getattr(ours, name))[: len(theirs)]
    assert [field.name for field in mine] == [field.name for field in theirs]
    for one, other in zip(mine, theirs, strict=True):
        assert one.default_factory is other.default_factory, one.name
        # Both look up sys.stderr when their class is made, which under pytest may be two different ones.
        assert one.name == "debug_stderr" or one.default == other.default, one.name


TYPED_DICTS = [
    name
    for module in (_option_types, _responses)
    for name, value in vars(module).items()
    if hasattr(value, "__required_keys__") and hasattr(official_types, name)
]


@pytest.mark.parametrize("name", TYPED_DICTS)
def test_the_typed_dicts_have_the_same_keys(name: str):
    """Each official key exists here, and is required where the official one is; our own keys are optional."""
    mine = getattr(_option_types, name, None) or getattr(_responses, name)
    theirs = getattr(official_types, name)
    assert mine.__required_keys__ == theirs.__required_keys__
    assert theirs.__optional_keys__ <= mine.__optional_keys__


@pytest.mark.parametrize(
    "name", ["EffortLevel", "SettingSource", "SdkBeta", "ThinkingDisplay", "SessionStoreFlushMode"]
)
def test_the_literals_are_the_same(name: str):
    """Each set of values is the official one."""
    assert get_args(getattr(_option_types, name)) == get_args(getattr(official_types, name))


def test_the_statuses_of_a_server_are_the_same():
    """A server's status is one of the official words."""
    assert get_args(_responses.McpServerConnectionStatus) == get_args(
        official_types.McpServerConnectionStatus
    )
    assert get_type_hints(_responses.McpServerStatus)["status"] == _responses.McpServerConnectionStatus


SKILL_NAMES: list[Any] = [
    *("pdf", "plugin:skill", "a b", "ü", "中文", "a.b-c_d", "a\\b", "*a", "a*", "a:b*", "a/b", "'", '"'),
    *("", " ", " a", "a ", "a,b", "a(b", "a)", "a\n", "\x00", "a\x7fb", "\x85", "a\ufeffb", "\ud800"),
    *("*", "a:*", "a *", "/a", "a\\\\b", "a\\", "\u00a0a", "a\u2028"),
    *(None, 3, b"a", ["a"]),
]


@pytest.mark.parametrize("name", SKILL_NAMES, ids=repr)
def test_the_same_skill_names_are_refused(name: Any):
    """A skill's name is refused here exactly where the official SDK refuses it."""
    try:
        subprocess_cli._validate_skill_name(name)
    except (TypeError, ValueError):
        assert find_skill_name_problem(name)
    else:
        assert find_skill_name_problem(name) is None


@pytest.mark.parametrize("mode", [None, "default", "bypassPermissions", "acceptEdits"])
@pytest.mark.parametrize(
    "tools",
    [[], ["Read"], ["Read()"], ["Read(*)"], ["Bash(ls:*)"], [" "], ["(x)"], ["a(b"], ["a(*)b"], ["mcp__a"]],
)
@pytest.mark.parametrize("skills", [None, "all", ["pdf"]])
def test_the_same_options_hide_tools_from_the_callback(mode: str | None, tools: list[str], skills: Any):
    """We warn about can_use_tool exactly where the official SDK warns."""
    given = {"can_use_tool": callback, "permission_mode": mode, "allowed_tools": tools, "skills": skills}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        official_types._configure_can_use_tool(official_options(given))
    assert (explain_shadowing(ours.ClaudeAgentOptions(**given)) is not None) == bool(caught)
