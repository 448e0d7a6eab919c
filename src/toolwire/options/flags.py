"""The command line's flags: one row for each option that has one (`FLAGS`), and what a row may do.

Text that can be too long for an argument, or that holds secrets, goes by a file or by the `initialize` request
instead: every user of a machine can read the command lines of all processes. The order is that of
`claude_agent_sdk`, so that equal options give equal command lines; flags of our own options come last.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolwire._support.secrets import holds_secrets
from toolwire.errors import CLIConnectionError, OptionsError
from toolwire.options.agent_options import ClaudeAgentOptions
from toolwire.options.mcp_servers import split_servers

ToFile = Callable[[str, str], str]
"""`(name, text) -> path` of a private file that holds the text for as long as the CLI needs it."""
MCP_CONFIG: Final = "mcp-config.json"
"""The file for `--mcp-config`, which the CLI reads once, before it answers `initialize`."""


class Limits(NamedTuple):
    """Bytes of UTF-8: above `inline`, text that can travel otherwise does; nothing may be above `most`."""

    inline: int
    most: int


# Linux allows 128 KiB for one argument with its end mark; Windows 32 KiB for the whole line.
POSIX: Final = Limits(inline=100_000, most=128 * 1024 - 1)
WINDOWS: Final = Limits(inline=8_000, most=32_000)
HERE: Final = WINDOWS if sys.platform == "win32" else POSIX

_CMD_CHARACTERS: Final = frozenset('&|<>^%!"\r\n')


class Build(NamedTuple):
    """What a row may need besides its own value."""

    options: ClaudeAgentOptions
    to_file: ToFile
    limits: Limits


Emit = Callable[[Any, Build], Iterable[str]]


def check_argument(option: str, argument: str, limits: Limits) -> None:
    """Raise `OptionsError` if no command line can carry this argument."""
    try:
        size = len(argument.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        problem = "holds half a surrogate pair, which cannot be written as UTF-8"
    else:
        if "\0" in argument:
            problem = "contains a NUL character"
        elif size > limits.most:
            problem = (
                f"is too long for a command line: {size} bytes in one argument, {limits.most} are allowed"
            )
        else:
            return
    raise OptionsError(f"ClaudeAgentOptions.{option} {problem}.", option=option)


def is_long(text: str, limits: Limits) -> bool:
    """Whether the text should travel otherwise, if it can."""
    return len(text) > limits.inline // 4 and len(text.encode("utf-8", "surrogatepass")) > limits.inline


def _switch(flag: str) -> Emit:
    return lambda value, _: [flag] if value else []


def _plain(value: object) -> str:
    """As text; a string stays what it is, also one that is an enum member and would print as its name."""
    return value if isinstance(value, str) else str(value)


def _pair(flag: str) -> Emit:
    return lambda value, _: [flag, _plain(value)] if value else []


def _number(flag: str) -> Emit:
    return lambda value, _: [] if value is None else [flag, str(value)]


def _joined(flag: str) -> Emit:
    return lambda value, _: [flag, ",".join(value)] if value else []


def _equals(flag: str) -> Emit:
    """One argument, so that a value that starts with a dash cannot be taken for a flag."""
    return lambda value, _: [f"{flag}=" + os.fspath(value)] if value else []


def _identifier(flag: str) -> Emit:
    """As `_equals`; these often come from outside, so they must not mean anything to a Windows shell."""

    def emit(value: str | None, build: Build) -> list[str]:
        if not value:
            return []
        if build.limits is WINDOWS and (bad := _CMD_CHARACTERS.intersection(value)):
            option = flag.strip("-").replace("-", "_")
            raise OptionsError(
                f"ClaudeAgentOptions.{option} has characters unsafe in a Windows command: {sorted(bad)}.",
                option=option,
            )
        return [f"{flag}=" + value]

    return emit


def _text(flag: str, text: str, build: Build) -> list[str]:
    if is_long(text, build.limits):
        return [f"{flag}-file", _to_file("system_prompt", flag.strip("-") + ".md", text, build)]
    return [flag, text]


def _json_or_path(option: str, flag: str, text: str, build: Build, *, secret: bool) -> list[str]:
    """The CLI takes either here; only JSON can be too long or secret."""
    if is_long(text, build.limits) or (secret and _starts_here(build.options)):
        return [flag, _to_file(option, flag.strip("-") + ".json", text, build)]
    return [flag, text]


def _to_file(option: str, name: str, text: str, build: Build) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise OptionsError(
            f"ClaudeAgentOptions.{option} holds half a surrogate pair, which cannot be written as UTF-8.",
            option,
        ) from None
    return build.to_file(name, text)


def _starts_here(options: ClaudeAgentOptions) -> bool:
    """Whether the CLI will see our files: who starts it elsewhere gets all that fits on the command line."""
    spawner = options.spawn_claude_code_process
    return spawner is None or getattr(spawner, "starts_here", False) is True


def _system_prompt(value: Any, build: Build) -> list[str]:
    if value is None:
        return ["--system-prompt", ""]
    if isinstance(value, str):
        return _text("--system-prompt", value, build)
    if not isinstance(value, Mapping):  # a list of blocks: only the initialize request can carry it
        return []
    match value["type"]:
        case "file":
            return ["--system-prompt-file", os.fspath(value["path"])]
        case "custom":
            return _system_prompt(value["prompt"], build)
        case _:
            return _text("--append-system-prompt", value["append"], build) if "append" in value else []


def _tools(value: Any, _: Build) -> list[str]:
    if value is None:
        return []
    return ["--tools", "default" if isinstance(value, Mapping) else ",".join(value)]


def allowed_tools(options: ClaudeAgentOptions) -> list[str]:
    """The rules of `allowed_tools`, and those that `skills` asks for."""
    rules = list(options.allowed_tools)
    skills = options.skills
    wanted = ["Skill"] if skills == "all" else [f"Skill({name})" for name in skills or ()]
    return rules + [rule for rule in dict.fromkeys(wanted) if rule not in rules]


def _permission_prompt_tool(value: str | None, build: Build) -> list[str]:
    tool = "stdio" if build.options.can_use_tool else value
    return ["--permission-prompt-tool", tool] if tool else []


def _settings(value: Any, build: Build) -> list[str]:
    text = _settings_text(value, build.options)
    return _json_or_path("settings", "--settings", text, build, secret=_is_secret_json(text)) if text else []


def _is_secret_json(text: str) -> bool:
    return text.lstrip().startswith("{") and holds_secrets(text)


def _settings_text(settings: Any, options: ClaudeAgentOptions) -> str:
    """Settings as the flag takes them; the sandbox is a part of them, so then a file has to be read."""
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
        except OSError as error:  # without the name: text that is no JSON object is taken for one
            raise CLIConnectionError(f"Failed to load settings: {error.strerror or error}") from None
        except ValueError as error:
            raise CLIConnectionError(f"Failed to load settings: {error}") from error
        if not isinstance(settings, dict):
            raise CLIConnectionError("Failed to load settings: they are not a JSON object")
    return json.dumps({**settings, "sandbox": options.sandbox})


def _add_dirs(value: Any, _: Build) -> list[str]:
    return [part for directory in value or () for part in ("--add-dir", os.fspath(directory))]


def _mcp_config(value: Any, build: Build) -> list[str]:
    if not value:
        return []
    if isinstance(value, Mapping):
        _instances, configs = split_servers(value)
        text = json.dumps({"mcpServers": configs})
    else:
        text = os.fspath(value)
    return _json_or_path("mcp_servers", "--mcp-config", text, build, secret=_names_other_servers(text))


def _names_other_servers(text: str) -> bool:
    """Whether a configuration holds anything but the names of in-process servers. A path does not."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        servers = json.loads(text)["mcpServers"].values()
        return holds_secrets(text) or any(each["type"] != "sdk" for each in servers)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return True  # whatever it is


def _setting_sources(value: Any, build: Build) -> list[str]:
    if value is None:
        value = None if build.options.skills is None else ("user", "project")
    return [] if value is None else [f"--setting-sources={','.join(value)}"]


def _plugins(value: Any, build: Build) -> list[str]:
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


def _extra_args(value: Mapping[str, Any], _: Build) -> Iterable[str]:
    for name, given in value.items():
        text = None if given is None else str(given)
        if text is None:
            yield f"--{name}"
        elif text.startswith("-"):
            yield f"--{name}={text}"
        else:
            yield f"--{name}"
            yield text


def _thinking(value: Any, build: Build) -> list[str]:
    if value is None:
        tokens = build.options.max_thinking_tokens
        return [] if tokens is None else ["--max-thinking-tokens", str(tokens)]
    kind = value["type"]
    flags = (
        ["--max-thinking-tokens", str(value["budget_tokens"])] if kind == "enabled" else ["--thinking", kind]
    )
    shows = kind != "disabled" and "display" in value
    return [*flags, "--thinking-display", value["display"]] if shows else flags


def _json_schema(value: Any, build: Build) -> list[str]:
    text = "" if value is None else json.dumps(value["schema"])
    return ["--json-schema", text] if text and not is_long(text, build.limits) else []


def _debug(value: bool | str, build: Build) -> list[str]:
    if build.options.debug_file or not value:
        return []
    return ["--debug" if value is True else f"--debug={value}"]


def _managed_settings(value: Any, build: Build) -> list[str]:
    if not value:
        return []
    text = json.dumps(value)
    if not (is_long(text, build.limits) or holds_secrets(value)):
        return ["--managed-settings", text]
    waits = build.options.plugins and build.options.plugin_delivery == "initialize"  # said already
    return [*([] if waits else ["--await-initialize"]), "--managed-settings-in-initialize"]


FLAGS: tuple[tuple[str, Emit], ...] = (
    ("system_prompt", _system_prompt),
    ("tools", _tools),
    ("allowed_tools", lambda _, build: _joined("--allowedTools")(allowed_tools(build.options), build)),
    ("max_turns", _pair("--max-turns")),
    ("max_budget_usd", _number("--max-budget-usd")),
    ("disallowed_tools", _joined("--disallowedTools")),
    ("task_budget", lambda value, _: ["--task-budget", str(value["total"])] if value else []),
    ("model", _pair("--model")),
    ("fallback_model", _pair("--fallback-model")),
    ("betas", _joined("--betas")),
    ("permission_prompt_tool_name", _permission_prompt_tool),
    ("permission_mode", _pair("--permission-mode")),
    ("continue_conversation", _switch("--continue")),
    ("resume", _identifier("--resume")),
    ("session_id", _identifier("--session-id")),
    ("settings", _settings),
    ("add_dirs", _add_dirs),
    ("mcp_servers", _mcp_config),
    ("include_partial_messages", _switch("--include-partial-messages")),
    ("include_hook_events", _switch("--include-hook-events")),
    ("strict_mcp_config", _switch("--strict-mcp-config")),
    ("fork_session", _switch("--fork-session")),
    ("resume_session_at", _identifier("--resume-session-at")),
    ("resume_drops_turn", _identifier("--resume-drops-turn")),
    ("setting_sources", _setting_sources),
    ("plugins", _plugins),
    ("extra_args", _extra_args),
    ("thinking", _thinking),
    ("effort", _pair("--effort")),
    ("output_format", _json_schema),
    ("agent", _equals("--agent")),
    ("debug", _debug),
    ("debug_file", _equals("--debug-file")),
    ("permission_prompts", _equals("--permission-prompts")),
    ("allow_dangerously_skip_permissions", _switch("--allow-dangerously-skip-permissions")),
    ("project_config_root", _equals("--project-config-root")),
    ("persist_session", lambda value, _: [] if value else ["--no-session-persistence"]),
    ("managed_settings", _managed_settings),
)
