"""Options -> the CLI's command line, its environment, and the `initialize` request.

One table row for each option (`FLAGS` in `_flags`, `_VARIABLES` and `_INITIALIZE` here). For equal options
all three are those of `claude_agent_sdk`, but for secrets. Nothing is started or written: text that is secret,
or too long for a command line, is handed to `to_file`, which the caller owns. Only a settings file that a
sandbox must be merged into is read.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final

from toolwire._support.secrets import holds_secrets
from toolwire.options.agent_options import ClaudeAgentOptions
from toolwire.options.flags import FLAGS, HERE, Build, Limits, ToFile, allowed_tools, check_argument, is_long
from toolwire.options.mcp_servers import policies, split_servers


def command(options: ClaudeAgentOptions, cli: str, to_file: ToFile, limits: Limits = HERE) -> list[str]:
    """The command line. `OptionsError` names the option if a value cannot be put on one."""
    build = Build(options, to_file, limits)
    argv = [cli, "--output-format", "stream-json", "--verbose"]
    for option, emit in FLAGS:
        for argument in emit(getattr(options, option), build):
            check_argument(option, argument, limits)
            argv.append(argument)
    return [*argv, "--input-format", "stream-json"]


def environment(options: ClaudeAgentOptions, base: Mapping[str, str], version: str) -> dict[str, str]:
    """The CLI's environment; `base` is this process's own."""
    env = {name: value for name, value in base.items() if name != "CLAUDECODE"} if options.inherit_env else {}
    env |= {"CLAUDE_CODE_ENTRYPOINT": "sdk-py", **options.env, "CLAUDE_AGENT_SDK_VERSION": version}
    # A label that an outer session derived names that session's application, not this one's.
    env.pop("CLAUDE_AGENT_SDK_DERIVED_CLIENT_APP", None)
    if not any(name.upper() == "CLAUDE_CODE_SDK_READS_SESSION_STATE" for name in env):
        env["CLAUDE_CODE_SDK_READS_SESSION_STATE"] = "1"
    for option, variables in _VARIABLES:
        env |= variables(getattr(options, option))
    return env


def initialize_request(
    options: ClaudeAgentOptions, hooks_config: Mapping[str, Any] | None, limits: Limits = HERE
) -> dict[str, Any]:
    """The first control request. `hooks_config` is what the hook registry made of `options.hooks`."""
    request: dict[str, Any] = {"subtype": "initialize", "hooks": hooks_config or None}
    for option, fields in _INITIALIZE:
        request |= fields(getattr(options, option), options, limits)
    return request


def user_message(prompt: str | list[dict[str, Any]], session_id: str, verbatim: bool) -> dict[str, Any]:
    """The frame that carries a prompt; `verbatim` is the option `verbatim_prompts`."""
    frame = {
        "type": "user",
        "message": {"role": "user", "content": prompt},
        "parent_tool_use_id": None,
        "session_id": session_id,
    }
    return {**frame, "client_composed": True} if verbatim else frame


def shadow_warning(options: ClaudeAgentOptions) -> str | None:
    """Why `can_use_tool` will not be asked about some tools or any, or None if nothing hides them from it."""
    if not options.can_use_tool:
        return None
    advice = "To see every call, use a PreToolUse hook."
    if options.permission_mode == "bypassPermissions":
        return f"can_use_tool is never asked: permission_mode='bypassPermissions' allows all tools. {advice}"
    if options.permission_prompts == "none":
        return f"can_use_tool is never asked: permission_prompts='none' denies what would be asked. {advice}"
    tools = dict.fromkeys(tool for rule in allowed_tools(options) if (tool := _whole_tool(rule)))
    if not tools:
        return None
    return (
        f"can_use_tool is not asked about {', '.join(tools)}: allowed_tools allows them outright. "
        f"Take them out, or narrow the rule as in Bash(git *). {advice} Rules in settings files do it too."
    )


def _whole_tool(rule: str) -> str | None:
    """The tool that a rule allows whatever its input; None if it only allows some of its calls."""
    name, bracket, inside = rule.partition("(")
    if not name.strip() or (bracket and inside not in (")", "*)")):
        return None
    return name


# --- the environment --------------------------------------------------------------------------------------


def _question_format(value: Any) -> dict[str, str]:
    shown = ((value or {}).get("askUserQuestion") or {}).get("previewFormat")
    return {"CLAUDE_CODE_QUESTION_PREVIEW_FORMAT": shown} if shown else {}


_VARIABLES: tuple[tuple[str, Callable[[Any], dict[str, str]]], ...] = (
    ("client_app", lambda value: {} if value is None else {"CLAUDE_AGENT_SDK_CLIENT_APP": value}),
    (
        "enable_file_checkpointing",
        lambda value: {"CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING": "true"} if value else {},
    ),
    ("cwd", lambda value: {"PWD": os.fspath(value)} if value else {}),
    ("tool_config", _question_format),
)


# --- the initialize request -------------------------------------------------------------------------------

Fields = Callable[[Any, ClaudeAgentOptions, Limits], dict[str, Any]]


def _given(field: str) -> Fields:
    return lambda value, *_: {field: value} if value else {}


def _agents(value: Any, *_: Any) -> dict[str, Any]:
    agents = {
        name: {key: part for key, part in asdict(agent).items() if part is not None}
        for name, agent in (value or {}).items()
    }
    return {"agents": agents} if agents else {}


def _prompt_fields(value: Any, *_: Any) -> dict[str, Any]:
    blocks = value["prompt"] if isinstance(value, Mapping) and value["type"] == "custom" else value
    fields: dict[str, Any] = {}
    if isinstance(value, Mapping):
        wire = {"exclude_dynamic_sections": "excludeDynamicSections", "snapshot": "systemPromptSnapshot"}
        takes = {"preset": tuple(wire), "custom": ("snapshot",)}.get(value["type"], ())
        fields = {wire[key]: value[key] for key in takes if isinstance(value.get(key), bool)}
    return {**fields, "systemPrompt": list(blocks)} if isinstance(blocks, list | tuple) else fields


def _long_schema(value: Any, _: ClaudeAgentOptions, limits: Limits) -> dict[str, Any]:
    return {"jsonSchema": value["schema"]} if value and is_long(json.dumps(value["schema"]), limits) else {}


def _long_managed(value: Any, _: ClaudeAgentOptions, limits: Limits) -> dict[str, Any]:
    sent = value and (is_long(json.dumps(value), limits) or holds_secrets(value))
    return {"managedSettings": value} if sent else {}


def _policies(value: Any, *_: Any) -> dict[str, Any]:
    """Tools of in-process servers that must always be asked about, or never run."""
    instances, _configs = split_servers(value)
    configs = {name: {"tools": tools} for name, server in instances.items() if (tools := policies(server))}
    # The CLI heeds the configs only of servers that this request names as well.
    return {"sdkMcpServers": list(configs), "sdkMcpServerConfigs": configs} if configs else {}


def _sent_plugins(value: Any, options: ClaudeAgentOptions, _: Limits) -> dict[str, Any]:
    if not value or options.plugin_delivery != "initialize":
        return {}
    return {"plugins": [{**plugin, "path": os.fspath(plugin["path"])} for plugin in value]}


_INITIALIZE: tuple[tuple[str, Fields], ...] = (
    ("agents", _agents),
    ("mcp_servers", _policies),
    ("system_prompt", _prompt_fields),
    ("skills", lambda value, *_: {"skills": value} if isinstance(value, list) else {}),
    ("forward_subagent_text", _given("forwardSubagentText")),
    ("output_format", _long_schema),
    ("plan_mode_instructions", _given("planModeInstructions")),
    ("tool_aliases", lambda value, *_: {"toolAliases": dict(value)} if value else {}),
    ("title", _given("title")),
    ("prompt_suggestions", _given("promptSuggestions")),
    ("agent_progress_summaries", _given("agentProgressSummaries")),
    ("supported_dialog_kinds", lambda value, *_: {"supportedDialogKinds": list(value)} if value else {}),
    ("per_task_stop_affordance", _given("perTaskStopAffordance")),
    ("plugins", _sent_plugins),
    ("managed_settings", _long_managed),
)

# What only Python needs, and what other rows read. A test holds that each option is somewhere.
HOST_ONLY: Final = frozenset(
    {
        *(
            "env",
            "inherit_env",
            "skills",
            "sandbox",
            "max_thinking_tokens",
            "plugin_delivery",
            "verbatim_prompts",
        ),
        *("cli_path", "user", "max_buffer_size", "debug_stderr", "stderr", "can_use_tool", "hooks"),
        *("session_store", "session_store_flush", "load_timeout_ms"),
        *(
            "include_all_messages",
            "initialize_timeout",
            "control_timeout",
            "close_timeout",
            "on_frame",
            "on_elicitation",
            "on_sampling",
            "spawn_claude_code_process",
            "roots",
            "on_user_dialog",
        ),
    }
)
