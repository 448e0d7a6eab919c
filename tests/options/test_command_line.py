"""What becomes of options: command line, environment, initialize request, user message, warning."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from toolwire import AgentDefinition, ClaudeAgentOptions
from toolwire.errors import CLIConnectionError, OptionsError
from toolwire.options.command_line import (
    POSIX,
    WINDOWS,
    build_command,
    build_environment,
    build_initialize_request,
    build_user_message,
    explain_shadowing,
)

LONG = "é" * 50_001  # 100 002 bytes in UTF-8
START = ["claude", "--output-format", "stream-json", "--verbose"]
END = ["--input-format", "stream-json"]


async def callback(*args: Any) -> dict[str, Any]:
    return {}


class Files:
    """Keeps what would have been written."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def add(self, hint: str, text: str) -> str:
        path = f"/private/{hint}"
        self.texts[path] = text
        return path


def flags(files: Files | None = None, **given: Any) -> list[str]:
    """Return the flags in the middle of the command line, without those that are always there."""
    argv = build_command(ClaudeAgentOptions(**given), "claude", (files or Files()).add, POSIX)
    assert argv[:4] == START
    assert argv[-2:] == END
    middle = argv[4:-2]
    return middle if "system_prompt" in given or middle[:2] != ["--system-prompt", ""] else middle[2:]


def test_every_option_has_a_place():
    """Each option is a flag, a variable, an initialize field, or is listed here as one that they do not carry."""
    carried = {
        field.name
        for field in dataclasses.fields(ClaudeAgentOptions)
        if any(field.metadata.get(column) for column in ("flag", "variable", "initialize"))
    }
    assert {field.name for field in dataclasses.fields(ClaudeAgentOptions)} - carried == NOT_CARRIED


NOT_CARRIED = {
    # read by the rows of others
    *("sandbox", "max_thinking_tokens", "plugin_delivery", "can_use_tool", "spawn_claude_code_process"),
    # for the process that runs the CLI
    *("cli_path", "user", "env", "inherit_env", "max_buffer_size", "stderr", "close_timeout"),
    # for the conversation
    *("hooks", "on_elicitation", "on_sampling", "roots", "on_user_dialog", "on_frame", "tracing"),
    *("verbatim_prompts", "include_all_messages", "initialize_timeout", "control_timeout"),
    *(
        "session_store_flush",
        "session_store_timeout_ms",
        "session_store_close_timeout_ms",
        "session_store_spool",
        "load_timeout_ms",
    ),
    # without effect
    "debug_stderr",
}


OURS: list[tuple[dict[str, Any], list[str]]] = [
    ({"agent": "reviewer"}, ["--agent=reviewer"]),
    ({"debug": True}, ["--debug"]),
    ({"debug": "mcp"}, ["--debug=mcp"]),
    ({"debug": True, "debug_file": "log"}, ["--debug-file=log"]),
    ({"debug_file": Path("log")}, ["--debug-file=log"]),
    ({"permission_prompts": "none"}, ["--permission-prompts=none"]),
    ({"allow_dangerously_skip_permissions": True}, ["--allow-dangerously-skip-permissions"]),
    ({"project_config_root": "/repo"}, ["--project-config-root=/repo"]),
    ({"persist_session": False}, ["--no-session-persistence"]),
    ({"managed_settings": {"a": 1}}, ["--managed-settings", '{"a": 1}']),
    ({"managed_settings": {}}, []),
    ({"settings": {"model": "x"}}, ["--settings", '{"model": "x"}']),
    ({"settings": {}}, []),
    ({"settings": Path("s.json")}, ["--settings", "s.json"]),
    (
        {"settings": {"model": "x"}, "sandbox": {"a": 1}},
        ["--settings", '{"model": "x", "sandbox": {"a": 1}}'],
    ),
    ({"plugins": [{"type": "local", "path": Path("p")}]}, ["--plugin-dir", "p"]),
    (
        {"plugins": [{"type": "local", "path": "p", "skipMcpDiscovery": True}]},
        ["--plugin-dir-no-mcp", "p"],
    ),
    (
        {"plugins": [{"type": "local", "path": "p"}], "plugin_delivery": "initialize"},
        ["--await-initialize"],
    ),
    ({"plugin_delivery": "initialize"}, []),
    ({"tools": ("Read", "Bash")}, ["--tools", "Read,Bash"]),
    ({"system_prompt": ["a", "b"]}, []),
    ({"system_prompt": {"type": "custom", "prompt": ["a"]}}, []),
    ({"extra_args": {"max-turns": 3}}, ["--max-turns", "3"]),
    ({"extra_args": {"a": "", "b": "-1", "c": -2}}, ["--a", "", "--b=-1", "--c=-2"]),
    (
        {"title": "t", "tool_aliases": {"a": "b"}, "plan_mode_instructions": "p", "prompt_suggestions": True},
        [],
    ),
]


@pytest.mark.skipif("os.sep != '/'")
@pytest.mark.parametrize(("given", "expected"), OURS)
def test_our_own_options_become_flags(given: dict[str, Any], expected: list[str]):
    """Options that the official SDK lacks become the flags of the TypeScript SDK."""
    assert flags(**given) == expected


def test_a_server_object_is_sent_to_the_cli_by_name():
    """An in-process server given as an object becomes a config of type sdk under its key."""

    class Server:
        def connect(self, channel: Any) -> None: ...

    files = Files()
    flag, path = flags(files, mcp_servers={"calc": Server(), "other": {"command": "x"}})
    assert flag == "--mcp-config"
    assert json.loads(files.texts[path]) == {
        "mcpServers": {"calc": {"type": "sdk", "name": "calc"}, "other": {"command": "x"}}
    }
    alone = '{"mcpServers": {"calc": {"type": "sdk", "name": "calc"}}}'
    assert flags(mcp_servers={"calc": Server()}) == ["--mcp-config", alone]


HIDDEN_IN_FILES: list[tuple[dict[str, Any], str]] = [
    ({"mcp_servers": {"a": {"command": "x"}}}, "--mcp-config"),
    ({"mcp_servers": '{"mcpServers": {"a": {"command": "x"}}}'}, "--mcp-config"),
    ({"mcp_servers": ' {"a": {"type": "sdk", "name": "a"}}'}, "--mcp-config"),
    ({"mcp_servers": '{"broken'}, "--mcp-config"),
    (
        {"mcp_servers": '{"mcpServers": {"a": {"type": "sdk", "name": "a", "headers": {"X": "1"}}}}'},
        "--mcp-config",
    ),
    ({"settings": {"env": {"A": "b"}}}, "--settings"),
    ({"settings": '{"apiKeyHelper": "echo secret"}'}, "--settings"),
    ({"settings": {"env": {"A": "b"}}, "sandbox": {"enabled": True}}, "--settings"),
]


@pytest.mark.parametrize(("given", "flag"), HIDDEN_IN_FILES)
def test_secrets_are_passed_in_a_file(given: dict[str, Any], flag: str):
    """Values that may contain secrets are not on the command line, in whatever form they were given."""
    files = Files()
    assert flags(files, **given) == [flag, *files.texts]


@pytest.mark.parametrize(
    "given",
    [
        {"mcp_servers": "servers.json"},
        {"mcp_servers": '{"mcpServers": {}}'},
        {"mcp_servers": '{"mcpServers": {"a": {"type": "sdk", "name": "a"}}}'},
        {"settings": "settings.json"},
        {"settings": {"permissions": {"allow": ["Bash(ls)"]}}},
    ],
)
def test_values_that_are_not_secret_stay_on_the_command_line(given: dict[str, Any]):
    """Paths, names and permissions are not secret."""
    files = Files()
    flags(files, **given)
    assert not files.texts


def test_a_cli_that_is_started_elsewhere_gets_no_file():
    """Our files may not exist there; a callable that starts it on this machine says so."""

    class Here:
        starts_here = True

        def __call__(self, command: Any) -> None: ...

    servers = {"a": {"command": "x"}}
    elsewhere, here = Files(), Files()
    flag, text = flags(elsewhere, mcp_servers=servers, spawn_claude_code_process=lambda command: None)
    assert (flag, json.loads(text), elsewhere.texts) == ("--mcp-config", {"mcpServers": servers}, {})
    assert flags(here, mcp_servers=servers, spawn_claude_code_process=Here()) == ["--mcp-config", *here.texts]


def test_managed_settings_with_secrets_are_in_the_initialize_request():
    """They have no flag that takes a file."""
    managed = {"env": {"A_KEY": "secret"}}
    assert flags(managed_settings=managed) == ["--await-initialize", "--managed-settings-in-initialize"]
    request = build_initialize_request(ClaudeAgentOptions(managed_settings=managed), None)
    assert request["managedSettings"] == managed


LONG_IN_FILES: list[tuple[dict[str, Any], str, str]] = [
    ({"system_prompt": LONG}, "--system-prompt-file", LONG),
    ({"system_prompt": {"type": "custom", "prompt": LONG}}, "--system-prompt-file", LONG),
    ({"system_prompt": {"type": "preset", "append": LONG}}, "--append-system-prompt-file", LONG),
    ({"settings": {"a": LONG}}, "--settings", json.dumps({"a": LONG})),
    ({"settings": json.dumps({"a": LONG})}, "--settings", json.dumps({"a": LONG})),
    ({"sandbox": {"a": LONG}}, "--settings", json.dumps({"sandbox": {"a": LONG}})),
    (
        {"mcp_servers": {"a": {"command": LONG}}},
        "--mcp-config",
        json.dumps({"mcpServers": {"a": {"command": LONG}}}),
    ),
    (
        {"mcp_servers": json.dumps({"mcpServers": {"é": LONG}})},
        "--mcp-config",
        json.dumps({"mcpServers": {"é": LONG}}),
    ),
]


@pytest.mark.parametrize(("given", "flag", "text"), LONG_IN_FILES)
def test_long_text_is_passed_in_a_file(given: dict[str, Any], flag: str, text: str):
    """Text over 100 000 bytes is passed in a file if the CLI can read it from one."""
    files = Files()
    given_flag, path = flags(files, **given)
    assert given_flag == flag
    assert files.texts == {path: text}


def test_text_just_below_the_limit_stays_on_the_command_line():
    """100 000 bytes are still an argument; the limit counts bytes, not characters."""
    files = Files()
    assert flags(files, system_prompt="x" * 100_000) == ["--system-prompt", "x" * 100_000]
    assert flags(files, system_prompt="é" * 50_000) == ["--system-prompt", "é" * 50_000]
    assert files.texts == {}


def test_a_long_schema_is_in_the_initialize_request():
    """A schema is either a flag or a field of the first request, never both and never neither."""
    short = {"type": "json_schema", "schema": {"type": "object"}}
    long = {"type": "json_schema", "schema": {"type": "object", "description": LONG}}
    assert flags(output_format=short) == ["--json-schema", '{"type": "object"}']
    assert "jsonSchema" not in build_initialize_request(ClaudeAgentOptions(output_format=short), None, POSIX)
    assert flags(output_format=long) == []
    request = build_initialize_request(ClaudeAgentOptions(output_format=long), None, POSIX)
    assert request["jsonSchema"] == long["schema"]


def test_long_managed_settings_are_in_the_initialize_request():
    """A flag makes the CLI wait for that request; it is given once, also when plugins are sent the same way."""
    managed = {"note": LONG}
    assert flags(managed_settings=managed) == ["--await-initialize", "--managed-settings-in-initialize"]
    assert (
        build_initialize_request(ClaudeAgentOptions(managed_settings=managed), None)["managedSettings"]
        == managed
    )
    plugins = [{"type": "local", "path": "p"}]
    assert flags(managed_settings=managed, plugins=plugins, plugin_delivery="initialize") == [
        "--await-initialize",
        "--managed-settings-in-initialize",
    ]


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"model": "x" * 131_072}, "model"),
        ({"allowed_tools": [f"Bash({i})" for i in range(20_000)]}, "allowed_tools"),
        ({"resume": "x" * 131_072}, "resume"),
        ({"extra_args": {"x": "y" * 131_072}}, "extra_args"),
    ],
)
def test_an_argument_that_is_too_long_is_refused_by_name(given: dict[str, Any], option: str):
    """A value that must be an argument and is too long is refused before anything is started."""
    with pytest.raises(OptionsError, match="too long for a command line") as caught:
        flags(**given)
    assert caught.value.option == option


def test_the_longest_argument_is_allowed():
    """128 KiB less one byte is what Linux takes."""
    assert flags(model="x" * 131_071) == ["--model", "x" * 131_071]


def test_half_a_surrogate_pair_is_refused_by_name():
    """Text that is not Unicode cannot be an argument, and the error says which option it is in."""
    with pytest.raises(OptionsError, match="surrogate") as caught:
        flags(model="\ud800")
    assert caught.value.option == "model"
    with pytest.raises(OptionsError, match="surrogate") as caught:
        flags(mcp_servers='{"a": "\ud800"}')
    assert caught.value.option == "mcp_servers"


def test_options_changed_after_they_were_built_are_still_refused_on_the_command_line():
    """A NUL that was added after the checks does not reach the operating system."""
    options = ClaudeAgentOptions()
    options.model = "a\0b"
    with pytest.raises(OptionsError, match="NUL") as caught:
        build_command(options, "claude", Files().add)
    assert caught.value.option == "model"


def test_on_windows_less_fits_and_shell_characters_are_refused():
    """A Windows command line is short, and identifiers must not mean anything to its shell."""
    files = Files()
    argv = build_command(ClaudeAgentOptions(system_prompt="x" * 8_001), "claude.exe", files.add, WINDOWS)
    assert argv[4] == "--system-prompt-file"
    with pytest.raises(OptionsError, match="too long"):
        build_command(ClaudeAgentOptions(model="x" * 32_001), "claude.exe", files.add, WINDOWS)
    with pytest.raises(OptionsError, match="unsafe") as caught:
        build_command(ClaudeAgentOptions(resume="a&calc"), "claude.exe", files.add, WINDOWS)
    assert caught.value.option == "resume"


def test_a_settings_file_is_read_when_a_sandbox_goes_into_it(tmp_path: Path):
    """It is read relative to cwd, with or without a byte-order mark, and an unreadable one is an error."""
    (tmp_path / "s.json").write_bytes(b'\xef\xbb\xbf{"model": "x"}')
    assert flags(settings="s.json", cwd=tmp_path, sandbox={"enabled": True}) == [
        "--settings",
        '{"model": "x", "sandbox": {"enabled": true}}',
    ]
    for text, content in (("s.json", b"[]"), ("s.json", b"{"), ("none.json", b"")):
        (tmp_path / "s.json").write_bytes(content)
        with pytest.raises(CLIConnectionError, match="Failed to load settings"):
            flags(settings=text, cwd=tmp_path, sandbox={"enabled": True})


def test_environment_is_inherited_and_overridden():
    """The process's variables are passed on, CLAUDECODE is not, and `env` wins except over the version."""
    base = {"PATH": "/bin", "A": "1", "CLAUDECODE": "1", "CLAUDE_CODE_ENTRYPOINT": "cli"}
    options = ClaudeAgentOptions(env={"A": "2", "CLAUDE_AGENT_SDK_VERSION": "0"})
    assert build_environment(options, base, "9.9") == {
        "PATH": "/bin",
        "A": "2",
        "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
        "CLAUDE_AGENT_SDK_VERSION": "9.9",
        "CLAUDE_CODE_SDK_READS_SESSION_STATE": "1",
    }
    assert base["A"] == "1"


def test_environment_without_inheritance_has_nothing_of_this_process():
    """With inherit_env=False only `env` and what toolwire sets is there."""
    options = ClaudeAgentOptions(inherit_env=False, env={"PATH": "/usr/bin"})
    assert set(build_environment(options, {"SECRET": "x", "PATH": "/bin"}, "1")) == {
        "PATH",
        "CLAUDE_CODE_ENTRYPOINT",
        "CLAUDE_AGENT_SDK_VERSION",
        "CLAUDE_CODE_SDK_READS_SESSION_STATE",
    }


def test_options_that_are_variables(tmp_path: Path):
    """Directory, checkpointing, application name and question format are passed in the environment."""
    options = ClaudeAgentOptions(
        cwd=tmp_path,
        enable_file_checkpointing=True,
        client_app="app/1",
        tool_config={"askUserQuestion": {"previewFormat": "html"}},
        env={"claude_code_sdk_reads_session_state": "0", "CLAUDE_AGENT_SDK_CLIENT_APP": "other"},
    )
    env = build_environment(options, {"CLAUDE_AGENT_SDK_DERIVED_CLIENT_APP": "outer"}, "1")
    assert env == {
        "PWD": str(tmp_path),
        "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING": "true",
        "CLAUDE_AGENT_SDK_CLIENT_APP": "app/1",
        "CLAUDE_CODE_QUESTION_PREVIEW_FORMAT": "html",
        "claude_code_sdk_reads_session_state": "0",
        "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
        "CLAUDE_AGENT_SDK_VERSION": "1",
    }


def test_our_own_options_in_the_initialize_request():
    """Options that the official SDK lacks become the fields that the TypeScript SDK sends."""
    options = ClaudeAgentOptions(
        system_prompt={"type": "custom", "prompt": ["a", "b"], "snapshot": False},
        plan_mode_instructions="plan",
        tool_aliases={"Bash": "mcp__a__b"},
        title="title",
        prompt_suggestions=True,
        agent_progress_summaries=True,
        on_user_dialog=callback,
        supported_dialog_kinds=("kind",),
        per_task_stop_affordance=True,
        plugins=[{"type": "local", "path": Path("p"), "skipMcpDiscovery": True}],
        plugin_delivery="initialize",
        agents={"a": AgentDefinition("d", "p", observer="o", omitClaudeMd=False)},
    )
    assert build_initialize_request(options, {"Stop": []}) == {
        "subtype": "initialize",
        "hooks": {"Stop": []},
        "agents": {"a": {"description": "d", "prompt": "p", "observer": "o", "omitClaudeMd": False}},
        "systemPromptSnapshot": False,
        "systemPrompt": ["a", "b"],
        "planModeInstructions": "plan",
        "toolAliases": {"Bash": "mcp__a__b"},
        "title": "title",
        "promptSuggestions": True,
        "agentProgressSummaries": True,
        "supportedDialogKinds": ["kind"],
        "perTaskStopAffordance": True,
        "plugins": [{"type": "local", "path": "p", "skipMcpDiscovery": True}],
    }


def test_a_plain_initialize_request_has_no_further_fields():
    """Unset options add no fields, and an empty table of hooks is null."""
    assert build_initialize_request(ClaudeAgentOptions(), {}) == {"subtype": "initialize", "hooks": None}


def test_a_prompt_in_blocks_is_in_the_initialize_request():
    """A system prompt given as a list is sent as a list."""
    assert build_initialize_request(ClaudeAgentOptions(system_prompt=["a", "b"]), None)["systemPrompt"] == [
        "a",
        "b",
    ]
    assert "systemPrompt" not in build_initialize_request(ClaudeAgentOptions(system_prompt="a"), None)


def test_verbatim_prompts_are_marked():
    """Only with `verbatim` does the user message ask to be delivered as written."""
    plain = {
        "type": "user",
        "message": {"role": "user", "content": "hi"},
        "parent_tool_use_id": None,
        "session_id": "default",
    }
    assert build_user_message("hi", "default", verbatim=False) == plain
    assert build_user_message("hi", "default", verbatim=True) == {**plain, "client_composed": True}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"permission_mode": "bypassPermissions"}, "bypassPermissions"),
        ({"permission_prompts": "none"}, "permission_prompts='none'"),
        ({"allowed_tools": ["Read", "Read()", "Edit(*)", "Bash(ls)"]}, "for Read, Edit:"),
        ({"skills": "all"}, "for Skill:"),
        ({"allowed_tools": ["Bash(ls:*)", "(x)", "Read(", " "], "skills": ["pdf"]}, None),
        ({}, None),
    ],
)
def test_a_callback_that_will_not_be_called_is_noticed(given: dict[str, Any], text: str | None):
    """The warning names the tools that are allowed before can_use_tool is called; without one it is None."""
    warning = explain_shadowing(ClaudeAgentOptions(can_use_tool=callback, **given))
    assert (warning is None) if text is None else (text in str(warning))
    assert explain_shadowing(ClaudeAgentOptions(**given)) is None
