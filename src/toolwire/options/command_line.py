"""Converts options to the CLI's command line, its environment, and the `initialize` request.

Each field of `ClaudeAgentOptions` declares which of the three carries it, with a function of this module. For equal
options all three are identical to those of `claude_agent_sdk`, except for secrets. Text that may be too long for an
argument, or that contains secrets, is passed in a private file or in the `initialize` request instead: every user
of a machine can read the command lines of all processes.

Nothing is started or written here: the caller provides `to_file`. The only file that is read is a settings file
that must be merged with a sandbox.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from toolwire._support.secrets import holds_secrets
from toolwire.errors import CLIConnectionError, OptionsError
from toolwire.options.checks import find_fields
from toolwire.options.mcp_servers import get_policies, split_servers

if TYPE_CHECKING:  # that module imports this one
    from toolwire.options.agent_options import ClaudeAgentOptions

ToFile = Callable[[str, str], str]
"""`(name, text) -> path` of a private file that contains the text for as long as the CLI needs it."""
MCP_CONFIG: Final = "mcp-config.json"
"""The file for `--mcp-config`, which the CLI reads once, before it responds to `initialize`."""


class Limits(NamedTuple):
    """Limits for one argument in bytes of UTF-8: text above `inline` is passed in another way if possible, and text
    above `most` is an error."""

    inline: int
    most: int


# Linux allows 128 KiB for one argument with its terminating NUL; Windows 32 KiB for the whole line.
POSIX: Final = Limits(inline=100_000, most=128 * 1024 - 1)
WINDOWS: Final = Limits(inline=8_000, most=32_000)
HERE: Final = WINDOWS if sys.platform == "win32" else POSIX

_CMD_CHARACTERS: Final = frozenset('&|<>^%!"\r\n')


class Build(NamedTuple):
    """What the `build` function of a flag gets besides the option's value."""

    options: "ClaudeAgentOptions"
    to_file: ToFile
    limits: Limits


class Flag(NamedTuple):
    """An option that becomes arguments of the command line. The name is for documentation."""

    name: str
    build: Callable[[Any, Build], Iterable[str]]


class Variable(NamedTuple):
    """An option that becomes an environment variable; None leaves it unset."""

    name: str
    build: Callable[[Any], str | None]


class Field(NamedTuple):
    """An option that becomes fields of the `initialize` request. The name is for documentation."""

    name: str
    build: Callable[[Any, "ClaudeAgentOptions", Limits], dict[str, Any]]


def build_command(
    options: "ClaudeAgentOptions", cli: str, to_file: ToFile, limits: Limits = HERE
) -> list[str]:
    """Build the command line. `OptionsError` names an option whose value cannot be an argument."""
    build = Build(options, to_file, limits)
    argv = [cli, "--output-format", "stream-json", "--verbose"]
    for option, flag in _rows(options, "flag"):
        for argument in flag.build(getattr(options, option), build):
            _check_argument(option, argument, limits)
            argv.append(argument)
    return [*argv, "--input-format", "stream-json"]


def build_environment(options: "ClaudeAgentOptions", base: Mapping[str, str], version: str) -> dict[str, str]:
    """Build the CLI's environment; `base` is this process's own."""
    env = {name: value for name, value in base.items() if name != "CLAUDECODE"} if options.inherit_env else {}
    env |= {"CLAUDE_CODE_ENTRYPOINT": "sdk-py", **options.env, "CLAUDE_AGENT_SDK_VERSION": version}
    # Inside another session this is set to the name of that session's application.
    env.pop("CLAUDE_AGENT_SDK_DERIVED_CLIENT_APP", None)
    if not any(name.upper() == "CLAUDE_CODE_SDK_READS_SESSION_STATE" for name in env):
        env["CLAUDE_CODE_SDK_READS_SESSION_STATE"] = "1"
    for option, variable in _rows(options, "variable"):
        if (text := variable.build(getattr(options, option))) is not None:
            env[variable.name] = text
    return env


def build_initialize_request(
    options: "ClaudeAgentOptions", hooks_config: Mapping[str, Any] | None, limits: Limits = HERE
) -> dict[str, Any]:
    """Build the first control request. `hooks_config` is the result of `hooks.registry.register(options.hooks)`."""
    request: dict[str, Any] = {"subtype": "initialize", "hooks": hooks_config or None}
    for option, field in _rows(options, "initialize"):
        request |= field.build(getattr(options, option), options, limits)
    return request


def build_user_message(prompt: str | list[dict[str, Any]], session_id: str, verbatim: bool) -> dict[str, Any]:
    """Build the frame that carries a prompt; `verbatim` is the option `verbatim_prompts`."""
    frame = {
        "type": "user",
        "message": {"role": "user", "content": prompt},
        "parent_tool_use_id": None,
        "session_id": session_id,
    }
    return {**frame, "client_composed": True} if verbatim else frame


def explain_shadowing(options: "ClaudeAgentOptions") -> str | None:
    """Return why `can_use_tool` will not be called for some or all tools; None if it will be called for all."""
    if not options.can_use_tool:
        return None
    advice = "To see every call, use a PreToolUse hook."
    if options.permission_mode == "bypassPermissions":
        return f"can_use_tool is never called: permission_mode='bypassPermissions' allows all tools. {advice}"
    if options.permission_prompts == "none":
        return f"can_use_tool is never called: permission_prompts='none' denies such calls at once. {advice}"
    tools = dict.fromkeys(tool for rule in _list_allowed_tools(options) if (tool := _get_whole_tool(rule)))
    if not tools:
        return None
    return (
        f"can_use_tool is not called for {', '.join(tools)}: allowed_tools allows all their calls. "
        f"Remove them, or narrow the rule as in Bash(git *). {advice} Rules in settings files have the same effect."
    )


def _get_whole_tool(rule: str) -> str | None:
    """Return the tool that a rule allows with any input; None if it only allows some of its calls."""
    name, bracket, inside = rule.partition("(")
    if not name.strip() or (bracket and inside not in (")", "*)")):
        return None
    return name


# The order of the flags in `claude_agent_sdk`, so that equal options give equal command lines. Flags of other
# options follow in the order of the options.
_OFFICIAL_ORDER: Final = (
    *("system_prompt", "tools", "allowed_tools", "max_turns", "max_budget_usd", "disallowed_tools"),
    *("task_budget", "model", "fallback_model", "betas", "permission_prompt_tool_name", "permission_mode"),
    *("continue_conversation", "resume", "session_id", "settings", "add_dirs", "mcp_servers"),
    *("include_partial_messages", "include_hook_events", "strict_mcp_config", "fork_session"),
    *("resume_session_at", "resume_drops_turn", "session_store", "setting_sources", "plugins", "extra_args"),
    *("thinking", "effort", "output_format"),
)


def _rows(options: Any, column: Literal["flag", "variable", "initialize"]) -> list[tuple[str, Any]]:
    """Return the options with a flag, a variable or an `initialize` field, each with that."""
    return _columns(options.__class__)[column]


@cache
def _columns(options_class: type) -> dict[str, list[tuple[str, Any]]]:
    columns = {
        column: [
            (field.name, field.metadata[column])
            for field in find_fields(options_class)
            if field.metadata.get(column) is not None
        ]
        for column in ("flag", "variable", "initialize")
    }
    order = {option: place for place, option in enumerate(_OFFICIAL_ORDER)}
    columns["flag"].sort(key=lambda row: order.get(row[0], len(order)))
    return columns


# --- flags --------------------------------------------------------------------------------------------------


def switch(name: str) -> Flag:
    """Return a flag without a value, which is present if the option is true."""
    return Flag(name, lambda value, _: [name] if value else [])


def pair(name: str) -> Flag:
    """Return a flag with a value as the next argument."""
    # str() of an enum member that is a string would be its name.
    return Flag(
        name, lambda value, _: [name, value if isinstance(value, str) else str(value)] if value else []
    )


def number(name: str) -> Flag:
    """Return a flag with a number, which may be 0."""
    return Flag(name, lambda value, _: [] if value is None else [name, str(value)])


def comma_list(name: str) -> Flag:
    """Return a flag with several values, joined by commas."""
    return Flag(name, lambda value, _: [name, ",".join(value)] if value else [])


def single_argument(name: str) -> Flag:
    """Return a flag as `--name=value`, so that a value that starts with a dash cannot be taken for a flag."""
    return Flag(name, lambda value, _: [f"{name}=" + os.fspath(value)] if value else [])


def identifier(name: str) -> Flag:
    """Return a flag as `single_argument` does, and reject characters that have a meaning in a Windows shell.

    For ids, which often come from untrusted input.
    """

    def build_argument(value: str | None, build: Build) -> list[str]:
        if not value:
            return []
        if build.limits is WINDOWS and (bad := _CMD_CHARACTERS.intersection(value)):
            option = name.strip("-").replace("-", "_")
            raise OptionsError(
                f"ClaudeAgentOptions.{option} has characters unsafe in a Windows command: {sorted(bad)}.",
                option=option,
            )
        return [f"{name}=" + value]

    return Flag(name, build_argument)


def _check_argument(option: str, argument: str, limits: Limits) -> None:
    """Raise `OptionsError` if this cannot be an argument of a command line."""
    try:
        size = len(argument.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        problem = "contains half of a surrogate pair, which cannot be encoded as UTF-8"
    else:
        if "\0" in argument:
            problem = "contains a NUL character"
        elif size > limits.most:
            problem = (
                f"is too long for a command line: {size} bytes in one argument, and {limits.most} are allowed"
            )
        else:
            return
    raise OptionsError(f"ClaudeAgentOptions.{option} {problem}.", option=option)


def _is_long(text: str, limits: Limits) -> bool:
    """True if the text should be passed in another way than as an argument, if possible."""
    return len(text) > limits.inline // 4 and len(text.encode("utf-8", "surrogatepass")) > limits.inline


def _write_to_file(option: str, name: str, text: str, build: Build) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise OptionsError(
            f"ClaudeAgentOptions.{option} contains half of a surrogate pair, which cannot be encoded as UTF-8.",
            option,
        ) from None
    return build.to_file(name, text)


def _build_json_or_path(option: str, flag: str, text: str, build: Build, *, secret: bool) -> list[str]:
    """Return a flag whose value is JSON or a path; JSON that is too long or secret is replaced by a file."""
    if _is_long(text, build.limits) or (secret and _starts_here(build.options)):
        return [flag, _write_to_file(option, flag.strip("-") + ".json", text, build)]
    return [flag, text]


def _starts_here(options: "ClaudeAgentOptions") -> bool:
    """True if the CLI can read files of this machine. If not, everything that fits goes on the command line."""
    spawner = options.spawn_claude_code_process
    return spawner is None or getattr(spawner, "starts_here", False) is True


def build_system_prompt(value: Any, build: Build) -> list[str]:
    """Build the flags of `system_prompt`. A list of blocks has none: it goes into the `initialize` request."""
    if value is None:
        return ["--system-prompt", ""]
    if isinstance(value, str):
        return _build_prompt("--system-prompt", value, build)
    if not isinstance(value, Mapping):
        return []
    match value["type"]:
        case "file":
            return ["--system-prompt-file", os.fspath(value["path"])]
        case "custom":
            return build_system_prompt(value["prompt"], build)
        case _:
            return (
                _build_prompt("--append-system-prompt", value["append"], build) if "append" in value else []
            )


def _build_prompt(flag: str, text: str, build: Build) -> list[str]:
    if _is_long(text, build.limits):
        return [f"{flag}-file", _write_to_file("system_prompt", flag.strip("-") + ".md", text, build)]
    return [flag, text]


def build_tools(value: Any, _: Build) -> list[str]:
    """Build the flag of `tools`. An empty list gives a flag with an empty value."""
    if value is None:
        return []
    return ["--tools", "default" if isinstance(value, Mapping) else ",".join(value)]


def build_allowed_tools(_: Any, build: Build) -> list[str]:
    """Build the flag of `allowed_tools`, with the rules that `skills` needs."""
    rules = _list_allowed_tools(build.options)
    return ["--allowedTools", ",".join(rules)] if rules else []


def _list_allowed_tools(options: "ClaudeAgentOptions") -> list[str]:
    """Return the rules of `allowed_tools`, and those that `skills` needs."""
    rules = list(options.allowed_tools)
    skills = options.skills
    wanted = ["Skill"] if skills == "all" else [f"Skill({name})" for name in skills or ()]
    return rules + [rule for rule in dict.fromkeys(wanted) if rule not in rules]


def build_permission_prompt_tool(value: str | None, build: Build) -> list[str]:
    """Build the flag of `permission_prompt_tool_name`; for the CLI, `can_use_tool` is a tool called `stdio`."""
    tool = "stdio" if build.options.can_use_tool else value
    return ["--permission-prompt-tool", tool] if tool else []


def build_settings(value: Any, build: Build) -> list[str]:
    """Build the flag of `settings` and `sandbox`."""
    text = _build_settings_text(value, build.options)
    secret = text.lstrip().startswith("{") and holds_secrets(text)
    return _build_json_or_path("settings", "--settings", text, build, secret=secret) if text else []


def _build_settings_text(settings: Any, options: "ClaudeAgentOptions") -> str:
    """Return the value of the settings flag. To add the sandbox to a settings file, the file is read."""
    if options.sandbox is None:
        if isinstance(settings, Mapping):
            return json.dumps(settings) if settings else ""
        return "" if settings is None else os.fspath(settings)
    if not isinstance(settings, Mapping):
        text = "" if settings is None else os.fspath(settings).strip()
        try:
            if text and not (text.startswith("{") and text.endswith("}")):
                text = (Path(options.cwd or "") / text).read_text(encoding="utf-8-sig")
            settings = json.loads(text or "{}")
        except OSError as error:  # not with the file's name: it may be malformed JSON with secrets in it
            raise CLIConnectionError(f"Failed to load settings: {error.strerror or error}") from None
        except ValueError as error:
            raise CLIConnectionError(f"Failed to load settings: {error}") from error
        if not isinstance(settings, dict):
            raise CLIConnectionError("Failed to load settings: they are not a JSON object")
    return json.dumps({**settings, "sandbox": options.sandbox})


def build_add_dirs(value: Any, _: Build) -> list[str]:
    """Build a flag for each directory of `add_dirs`."""
    return [part for directory in value or () for part in ("--add-dir", os.fspath(directory))]


def build_mcp_config(value: Any, build: Build) -> list[str]:
    """Build the flag of `mcp_servers`."""
    if not value:
        return []
    if isinstance(value, Mapping):
        _instances, configs = split_servers(value)
        text = json.dumps({"mcpServers": configs})
    else:
        text = os.fspath(value)
    return _build_json_or_path("mcp_servers", "--mcp-config", text, build, secret=_names_other_servers(text))


def _names_other_servers(text: str) -> bool:
    """True if a configuration contains more than the names of in-process servers. False for a path."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        servers = json.loads(text)["mcpServers"].values()
        return holds_secrets(text) or any(each["type"] != "sdk" for each in servers)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return True  # not understood, so it may contain secrets


def build_setting_sources(value: Any, build: Build) -> list[str]:
    """Build the flag of `setting_sources`. Its default with `skills` is user and project, which contain them."""
    if value is None:
        value = None if build.options.skills is None else ("user", "project")
    return [] if value is None else [f"--setting-sources={','.join(value)}"]


def build_plugins(value: Any, build: Build) -> list[str]:
    """Build a flag for each plugin, or the one that makes the CLI wait for the `initialize` request."""
    if not value:
        return []
    if build.options.plugin_delivery == "initialize":
        return ["--await-initialize"]
    return [
        part
        for plugin in value
        for part in (
            "--plugin-dir-no-mcp" if plugin.get("skipMcpDiscovery") else "--plugin-dir",
            os.fspath(plugin["path"]),
        )
    ]


def build_extra_args(value: Mapping[str, Any], _: Build) -> Iterable[str]:
    """Build the flags of `extra_args`."""
    for name, given in value.items():
        text = None if given is None else str(given)
        if text is None:
            yield f"--{name}"
        elif text.startswith("-"):
            yield f"--{name}={text}"
        else:
            yield f"--{name}"
            yield text


def build_thinking(value: Any, build: Build) -> list[str]:
    """Build the flags of `thinking`, or of the older `max_thinking_tokens`."""
    if value is None:
        tokens = build.options.max_thinking_tokens
        return [] if tokens is None else ["--max-thinking-tokens", str(tokens)]
    kind = value["type"]
    flags = (
        ["--max-thinking-tokens", str(value["budget_tokens"])] if kind == "enabled" else ["--thinking", kind]
    )
    shows = kind != "disabled" and "display" in value
    return [*flags, "--thinking-display", value["display"]] if shows else flags


def build_json_schema(value: Any, build: Build) -> list[str]:
    """Build the flag of `output_format`, unless the schema is too long for an argument."""
    text = "" if value is None else json.dumps(value["schema"])
    return ["--json-schema", text] if text and not _is_long(text, build.limits) else []


def build_debug(value: bool | str, build: Build) -> list[str]:
    """Build the flag of `debug`, which `debug_file` implies."""
    if build.options.debug_file or not value:
        return []
    return ["--debug" if value is True else f"--debug={value}"]


def build_managed_settings(value: Any, build: Build) -> list[str]:
    """Build the flag of `managed_settings`, or the flags that announce them in the `initialize` request."""
    if not value:
        return []
    text = json.dumps(value)
    if not (_is_long(text, build.limits) or holds_secrets(value)):
        return ["--managed-settings", text]
    waits = build.options.plugins and build.options.plugin_delivery == "initialize"  # the flag is already set
    return [*([] if waits else ["--await-initialize"]), "--managed-settings-in-initialize"]


# --- the environment ----------------------------------------------------------------------------------------


def get_preview_format(value: Any) -> str | None:
    """Return the preview format in `tool_config`."""
    return ((value or {}).get("askUserQuestion") or {}).get("previewFormat") or None


# --- the initialize request ---------------------------------------------------------------------------------


def plain_field(name: str, convert: Callable[[Any], Any] | None = None) -> Field:
    """Return a field of the `initialize` request that is sent if the option is set."""
    return Field(name, lambda value, *_: {name: convert(value) if convert else value} if value else {})


def send_agents(value: Any, *_: Any) -> dict[str, Any]:
    """Return each agent with the fields that are set."""
    agents = {
        name: {key: part for key, part in asdict(agent).items() if part is not None}
        for name, agent in (value or {}).items()
    }
    return {"agents": agents} if agents else {}


def send_system_prompt(value: Any, *_: Any) -> dict[str, Any]:
    """Return the parts of a system prompt that have no flag: blocks, and two switches."""
    blocks = value["prompt"] if isinstance(value, Mapping) and value["type"] == "custom" else value
    entries: dict[str, Any] = {}
    if isinstance(value, Mapping):
        wire = {"exclude_dynamic_sections": "excludeDynamicSections", "snapshot": "systemPromptSnapshot"}
        takes = {"preset": tuple(wire), "custom": ("snapshot",)}.get(value["type"], ())
        entries = {wire[key]: value[key] for key in takes if isinstance(value.get(key), bool)}
    return {**entries, "systemPrompt": list(blocks)} if isinstance(blocks, list | tuple) else entries


def send_skills(value: Any, *_: Any) -> dict[str, Any]:
    """Return the list of skills, even if it is empty."""
    return {"skills": value} if isinstance(value, list) else {}


def send_long_schema(value: Any, _: "ClaudeAgentOptions", limits: Limits) -> dict[str, Any]:
    """Return the output schema if it is too long for a flag."""
    return {"jsonSchema": value["schema"]} if value and _is_long(json.dumps(value["schema"]), limits) else {}


def send_managed_settings(value: Any, _: "ClaudeAgentOptions", limits: Limits) -> dict[str, Any]:
    """Return the managed settings if they are too long for a flag or contain secrets."""
    wanted = value and (_is_long(json.dumps(value), limits) or holds_secrets(value))
    return {"managedSettings": value} if wanted else {}


def send_policies(value: Any, *_: Any) -> dict[str, Any]:
    """Return the tools of in-process servers that always need permission, or never run."""
    instances, _configs = split_servers(value)
    configs = {
        name: {"tools": tools} for name, server in instances.items() if (tools := get_policies(server))
    }
    # The CLI only uses the configs of servers that this request lists as well.
    return {"sdkMcpServers": list(configs), "sdkMcpServerConfigs": configs} if configs else {}


def send_plugins(value: Any, options: "ClaudeAgentOptions", _: Limits) -> dict[str, Any]:
    """Return the plugins if `plugin_delivery` is "initialize"."""
    if not value or options.plugin_delivery != "initialize":
        return {}
    return {"plugins": [{**plugin, "path": os.fspath(plugin["path"])} for plugin in value]}
