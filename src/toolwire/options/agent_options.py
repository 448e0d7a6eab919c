"""`ClaudeAgentOptions`: every option is one field, and everything that toolwire knows about it is declared there.

The first fifty fields are those of `claude_agent_sdk`, in its order and with its defaults; ours follow. The
annotation gives the accepted types. `option()` gives the rest: the flag, the environment variable or the field of
the `initialize` request that carries the option to the CLI (functions in `command_line`), and checks beyond its
type (functions in `checks`). A field without `option()` is only used in this process.

`resolve` checks the options as a whole. It rejects only values that cannot work. Anything that `claude_agent_sdk`
accepts and the CLI can run is accepted here too: if a value fails its checks, `repairs` looks for a documented form
that it may stand for, and a warning says how the value was interpreted.
"""
# ruff: noqa: RUF009 - `option()` is `dataclasses.field()` with metadata

import copy
import functools
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from toolwire._support.record import RecordWithSecrets
from toolwire._support.user_code import warn_at_user_line
from toolwire._support.words import closest
from toolwire.errors import OptionsError, ToolwireWarning
from toolwire.hooks import HookEvent, HookMatcher, Hooks
from toolwire.options import checks
from toolwire.options import command_line as line
from toolwire.options.checks import (
    DICT,
    JSON_DICT,
    NOTHING,
    NUMBER,
    ORDERED_TEXTS,
    PATH,
    TEXT,
    TEXTS,
    Check,
    Kind,
    check_kind,
    find_fields,
    iterate_texts,
    kinds_of,
    refuse,
)
from toolwire.options.command_line import Field, Flag, Variable
from toolwire.options.mcp_servers import check_servers
from toolwire.options.types import (
    AgentDefinition,
    EffortLevel,
    PermissionPrompts,
    PluginDelivery,
    SandboxSettings,
    SdkBeta,
    SdkPluginConfig,
    SessionStoreFlushMode,
    SettingSource,
    SystemPromptCustom,
    SystemPromptFile,
    SystemPromptPreset,
    TaskBudget,
    ThinkingConfig,
    ToolConfig,
    ToolsPreset,
)
from toolwire.permissions import CanUseTool, PermissionMode
from toolwire.sessions.types import implements

OnElicitation: TypeAlias = Callable[..., Awaitable[Any]]
"""Called when an MCP server requests input from the user; see `ClaudeAgentOptions.on_elicitation`."""
OnSampling: TypeAlias = Callable[..., Awaitable[Any]]
"""Called when an in-process server requests a response of a model; see `ClaudeAgentOptions.on_sampling`."""
SpawnProcess: TypeAlias = Callable[[Any], Any]
"""Runs the CLI somewhere else; see `ClaudeAgentOptions.spawn_claude_code_process`."""
OnFrame: TypeAlias = Callable[[Literal["in", "out"], dict[str, Any]], None]
"""Called with each frame that is sent or received; see `ClaudeAgentOptions.on_frame`."""
OnUserDialog: TypeAlias = Callable[..., Awaitable[Any]]
"""Called to show a dialog for the CLI; see `ClaudeAgentOptions.on_user_dialog`."""


def option(
    default: Any = None,
    *,
    factory: Callable[[], Any] | None = None,
    flag: Flag | None = None,
    variable: Variable | None = None,
    initialize: Field | None = None,
    kind: Kind | None = None,
    check: Check | None = None,
    raw_text: bool | None = None,
    secret: bool = False,
) -> Any:
    """Return a dataclass field with the metadata of an option.

    `flag`, `variable` and `initialize` say how it reaches the CLI. `kind` overrides the kind of value that
    follows from the annotation, if more values are accepted, such as None for an option that is not set. `check`
    looks inside the value. `raw_text` means that its strings reach the operating system unchanged, so they may not
    contain NUL; it defaults to True for options with a flag. `secret` means that errors do not show its value.
    """
    row = {
        "flag": flag,
        "variable": variable,
        "initialize": initialize,
        "kind": kind,
        "check": check,
        "raw_text": flag is not None if raw_text is None else raw_text,
        "secret": secret,
    }
    return (
        field(default=default, metadata=row)
        if factory is None
        else field(default_factory=factory, metadata=row)
    )


@dataclass(repr=False, eq=False)
class ClaudeAgentOptions(RecordWithSecrets):
    """The options of a session. Every field has a default, and most sessions set three or four.

    Tools: `tools`, `allowed_tools`, `disallowed_tools`, `mcp_servers`, `skills`, `agents`.
    Model and prompt: `system_prompt`, `model`, `thinking`, `effort`, `output_format`.
    Permissions: `permission_mode`, `can_use_tool`, `hooks`, `sandbox`, `settings`, `setting_sources`.
    Limits: `max_turns`, `max_budget_usd`, `task_budget`.
    Sessions: `resume`, `continue_conversation`, `fork_session`, `session_id`, `persist_session`.
    Process: `cwd`, `add_dirs`, `env`, `inherit_env`, `cli_path`, `user`.
    Messages and output: `include_partial_messages`, `include_all_messages`, `include_hook_events`, `stderr`.

    Options that cannot work raise `OptionsError`, which names the option, its value and what to do. The repr hides
    values that can be secrets: those of environments, headers and parameters in URLs.
    """

    tools: list[str] | ToolsPreset | None = option(
        flag=Flag("--tools", line.build_tools), check=checks.check_tools
    )
    """Built-in tools that are available. `[]`: none. None or the preset: all that Claude Code has."""
    allowed_tools: list[str] = option(factory=list, flag=Flag("--allowedTools", line.build_allowed_tools))
    """Tools that run without permission: `Read`, `Bash(git *)`, `mcp__server`, `mcp__server__tool`."""
    system_prompt: str | list[str] | SystemPromptPreset | SystemPromptCustom | SystemPromptFile | None = (
        option(
            kind=TEXT | ORDERED_TEXTS | DICT | NOTHING,
            flag=Flag("--system-prompt", line.build_system_prompt),
            initialize=Field("systemPrompt", line.send_system_prompt),
            check=checks.check_system_prompt,
        )
    )
    """The system prompt: a string, a list of blocks, or a preset, custom or file dict. None: an empty prompt."""
    mcp_servers: dict[str, Any] | str | Path = option(
        factory=dict,
        kind=DICT | PATH,
        flag=Flag("--mcp-config", line.build_mcp_config),
        initialize=Field("sdkMcpServers", line.send_policies),
        check=lambda _, value: check_servers(value),
        raw_text=False,
        secret=True,
    )
    """Server name -> config dict or in-process server object. Or a path to a config file, or its JSON.

    Configurations are passed to the CLI in a private file, which other users cannot read and which is deleted once
    the CLI has started.
    """
    strict_mcp_config: bool = option(False, flag=line.switch("--strict-mcp-config"))
    """True: use only `mcp_servers`, and ignore the servers of settings files, projects and plugins."""
    permission_mode: PermissionMode | None = option(flag=line.pair("--permission-mode"))
    """How to decide about tools that no rule allows or denies. None: as in the CLI's settings."""
    continue_conversation: bool = option(False, flag=line.switch("--continue"))
    """Continue the latest conversation of the directory. `resume` takes precedence."""
    resume: str | None = option(flag=line.identifier("--resume"))
    """Session id or title of the conversation to continue."""
    session_id: str | None = option(flag=line.identifier("--session-id"), check=checks.check_session_id)
    """UUID for the new session. With `resume` or `continue_conversation` it needs `fork_session`."""
    max_turns: int | None = option(kind=NUMBER | NOTHING, flag=line.pair("--max-turns"))
    """Stop after this number of turns. None or 0: no limit."""
    max_budget_usd: float | None = option(
        flag=line.number("--max-budget-usd"), check=checks.more_than(0, finite=True)
    )
    """Stop when this amount (in US dollars) is spent; the result is then `error_max_budget_usd`."""
    disallowed_tools: list[str] = option(factory=list, kind=TEXTS, flag=line.comma_list("--disallowedTools"))
    """Tools that are removed, even if another option allows them."""
    model: str | None = option(flag=line.pair("--model"))
    """Alias (`sonnet`) or full name. None: the CLI's default."""
    fallback_model: str | None = option(flag=line.pair("--fallback-model"))
    """Model to use when the first is overloaded, or several separated by commas."""
    betas: list[SdkBeta] = option(factory=list, kind=TEXTS, flag=line.comma_list("--betas"))
    """API beta headers. Any string is passed to the CLI."""
    permission_prompt_tool_name: str | None = option(
        flag=Flag("--permission-prompt-tool", line.build_permission_prompt_tool)
    )
    """MCP tool that responds to permission requests. Cannot be combined with `can_use_tool`, which is the tool
    `stdio`."""
    cwd: str | Path | None = option(
        variable=Variable("PWD", lambda value: os.fspath(value) if value else None), raw_text=True
    )
    """Working directory of the CLI. None: that of this process."""
    cli_path: str | Path | None = option(raw_text=True)
    """The CLI to run. None: search for it."""
    settings: str | Path | dict[str, Any] | None = option(
        flag=Flag("--settings", line.build_settings), raw_text=False, secret=True
    )
    """More settings, which take precedence over the user's other settings: a path, JSON, or a dict."""
    add_dirs: list[str | Path] = option(
        factory=list, kind=checks.many(PATH), flag=Flag("--add-dir", line.build_add_dirs)
    )
    """Directories besides `cwd` that tools may work in."""
    env: dict[str, str] = option(factory=dict, check=checks.check_env, raw_text=True, secret=True)
    """Environment variables for the CLI, which replace inherited ones (see `inherit_env`)."""
    extra_args: dict[str, str | None] = option(
        factory=dict,
        kind=checks.by_name(TEXT | NUMBER | NOTHING),
        flag=Flag("any flag", line.build_extra_args),
        check=checks.check_extra_args,
        secret=True,
    )
    """More CLI flags: name without dashes -> value, or None for a flag without a value. Do not pass secrets here:
    every user of the machine can read a command line."""
    max_buffer_size: int | None = option(check=checks.more_than(0))
    """The longest line to accept from the CLI, in bytes. None: 256 MiB."""
    debug_stderr: Any = sys.stderr
    """Kept for compatibility and never used. Use `stderr`."""
    stderr: Callable[[str], None] | None = None
    """Called with each line that the CLI writes to stderr."""
    can_use_tool: CanUseTool | None = None
    """Called before a tool runs that no rule, mode or hook has already allowed or denied."""
    hooks: dict[HookEvent, list[HookMatcher]] | Hooks | None = option(check=checks.check_hooks)
    """`Hooks`, or event -> matchers with functions. The CLI calls the functions of one event concurrently."""
    user: str | int | None = option(raw_text=True)
    """Operating-system user (name or id) to run the CLI as."""
    include_partial_messages: bool = option(False, flag=line.switch("--include-partial-messages"))
    """Also yield each chunk of a message while it is streamed."""
    include_hook_events: bool = option(False, flag=line.switch("--include-hook-events"))
    """Also yield a message when a hook starts and ends."""
    forward_subagent_text: bool = option(False, initialize=line.plain_field("forwardSubagentText"))
    """Also yield the text and thinking of subagents, not only their tool use."""
    verbatim_prompts: bool = False
    """Send prompts to the model as written: no `@file` expansion, no slash commands."""
    fork_session: bool = option(False, flag=line.switch("--fork-session"))
    """With `resume` or `continue_conversation`: continue in a copy of the conversation, with a new id."""
    resume_session_at: str | None = option(flag=line.identifier("--resume-session-at"))
    """With `resume`: UUID of the last message to keep."""
    resume_drops_turn: str | None = option(flag=line.identifier("--resume-drops-turn"))
    """With `resume_session_at`: UUID of the prompt whose turn may be dropped; dropping more is refused."""
    agents: dict[str, AgentDefinition] | None = option(
        initialize=Field("agents", line.send_agents), check=checks.check_agents
    )
    """Subagents by name."""
    setting_sources: list[SettingSource] | None = option(
        flag=Flag("--setting-sources", line.build_setting_sources)
    )
    """Settings files to load. None: all. `[]`: none. CLAUDE.md needs `project`."""
    skills: list[str] | Literal["all"] | None = option(
        kind=checks.SKILLS, initialize=Field("skills", line.send_skills), check=checks.check_skills
    )
    """Skills to make available, by exact name, or `"all"`. Extends `allowed_tools` and, if it is not set,
    `setting_sources` as skills require."""
    sandbox: SandboxSettings | None = option(kind=JSON_DICT | NOTHING, secret=True)
    """The sandbox for shell commands; passed as a part of `settings`."""
    plugins: list[SdkPluginConfig] = option(
        factory=list,
        kind=checks.many(DICT),
        flag=Flag("--plugin-dir", line.build_plugins),
        initialize=Field("plugins", line.send_plugins),
        check=checks.check_plugins,
    )
    """Plugins to load, from local directories."""
    max_thinking_tokens: int | None = None
    """Deprecated; use `thinking`, which takes precedence."""
    thinking: ThinkingConfig | None = option(
        flag=Flag("--thinking", line.build_thinking), check=checks.check_thinking
    )
    """Extended thinking: adaptive, enabled with a budget, or disabled."""
    effort: EffortLevel | None = option(flag=line.pair("--effort"))
    """How much effort the model spends on a response."""
    output_format: dict[str, Any] | None = option(
        flag=Flag("--json-schema", line.build_json_schema),
        initialize=Field("jsonSchema", line.send_long_schema),
        check=checks.check_output_format,
        raw_text=False,
    )
    """`{"type": "json_schema", "schema": {...}}`: the result then has data that matches the schema."""
    enable_file_checkpointing: bool = option(
        False,
        variable=Variable(
            "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING", lambda value: "true" if value else None
        ),
    )
    """Keep copies of changed files, so that `rewind_files` can restore them."""
    session_store: Any = option(
        flag=Flag("--session-mirror", lambda value, _: ["--session-mirror"] if value is not None else []),
        check=checks.check_session_store,
    )
    """A `SessionStore` that keeps the conversation in addition to the local disk; `resume` then looks there."""
    session_store_flush: SessionStoreFlushMode = "batched"
    """`batched`: store the entries of a turn together; `eager`: store each as soon as the one before is stored."""
    load_timeout_ms: int = 60_000
    """Timeout in milliseconds for each call of `session_store` when a conversation is resumed from it."""
    task_budget: TaskBudget | None = option(
        flag=Flag("--task-budget", lambda value, _: ["--task-budget", str(value["total"])] if value else []),
        check=checks.check_task_budget,
    )
    """Token budget of the task, which the model can see."""
    client_app: str | None = option(
        variable=Variable("CLAUDE_AGENT_SDK_CLIENT_APP", lambda value: value), check=checks.check_client_app
    )
    """Name of your application, such as `my-app/1.0`, for the User-Agent header."""

    inherit_env: bool = True
    """False: the CLI's environment is `env` and the variables that toolwire sets, without those of this process."""
    include_all_messages: bool = False
    """Also yield the messages that the official SDK hides, and system messages in their own classes (`typed`)."""
    initialize_timeout: float | None = option(check=checks.more_than(0))
    """Seconds to wait for the CLI to start. None: 60, or `CLAUDE_CODE_STREAM_CLOSE_TIMEOUT` ms if longer."""
    control_timeout: float = option(60.0, check=checks.more_than(0))
    """Seconds to wait for the response to any other control request."""
    close_timeout: float = option(5.0, check=checks.at_least(0))
    """Seconds to wait for the CLI to exit after its input is closed. Then it gets SIGTERM, and 2 seconds later
    SIGKILL."""
    agent: str | None = option(flag=line.single_argument("--agent"))
    """Agent that leads the session with its prompt, tools and model: one of `agents` or of the settings."""
    tool_aliases: dict[str, str] | None = option(initialize=line.plain_field("toolAliases", dict))
    """Tool name that the model uses -> tool that runs instead: `{"Bash": "mcp__workspace__bash"}`."""
    tool_config: ToolConfig | None = option(
        kind=JSON_DICT | NOTHING,
        variable=Variable("CLAUDE_CODE_QUESTION_PREVIEW_FORMAT", line.get_preview_format),
        check=checks.check_tool_config,
    )
    """Settings of built-in tools: `{"askUserQuestion": {"previewFormat": "html"}}`."""
    on_elicitation: OnElicitation | None = None
    """Called when an MCP server requests input from the user. None: requests of the CLI are declined, and requests
    of in-process tools fail."""
    on_sampling: OnSampling | None = None
    """Called when an in-process server requests a response of a model. None: such requests fail."""
    roots: list[str | Path | dict[str, Any]] | None = None
    """The MCP roots for in-process servers: paths, URIs, or `{"uri": ..., "name": ...}`."""
    on_user_dialog: OnUserDialog | None = None
    """Called to show the dialogs named in `supported_dialog_kinds`."""
    supported_dialog_kinds: list[str] | None = option(
        initialize=line.plain_field("supportedDialogKinds", list)
    )
    """Dialogs that `on_user_dialog` can show. The CLI sends no others."""
    per_task_stop_affordance: bool = option(False, initialize=line.plain_field("perTaskStopAffordance"))
    """True: your program can stop single tasks, so an interrupt does not stop background tasks."""
    session_store_timeout_ms: int = option(10_000, check=checks.at_least(0))
    """Milliseconds that a result waits until `session_store` has stored the turn."""
    session_store_close_timeout_ms: int = option(30_000, check=checks.at_least(0))
    """Milliseconds that closing the conversation waits for `session_store` to store the remaining entries."""
    session_store_spool: str | Path | None = None
    """Folder for entries that `session_store` did not store and that no permanent file of the CLI contains. None: a
    folder of the user."""
    persist_session: bool = option(
        True,
        flag=Flag("--no-session-persistence", lambda value, _: [] if value else ["--no-session-persistence"]),
    )
    """False: the session is not saved and cannot be resumed."""
    plan_mode_instructions: str | None = option(initialize=line.plain_field("planModeInstructions"))
    """Instructions for plan mode, in place of the CLI's own."""
    allow_dangerously_skip_permissions: bool = option(
        False, flag=line.switch("--allow-dangerously-skip-permissions")
    )
    """Allow the session to switch to `bypassPermissions` later."""
    permission_prompts: PermissionPrompts | None = option(flag=line.single_argument("--permission-prompts"))
    """`"none"`: calls that would need permission are denied without asking. None or `"host"`: your program is
    asked."""
    plugin_delivery: PluginDelivery = "argv"
    """`"initialize"`: send the plugin list on stdin, for lists too long for a command line."""
    prompt_suggestions: bool = option(False, initialize=line.plain_field("promptSuggestions"))
    """After each turn, the CLI suggests the user's next prompt (yielded with `include_all_messages`)."""
    agent_progress_summaries: bool = option(False, initialize=line.plain_field("agentProgressSummaries"))
    """Running subagents report what they are doing, about every 30 seconds."""
    managed_settings: dict[str, Any] | None = option(
        flag=Flag("--managed-settings", line.build_managed_settings),
        initialize=Field("managedSettings", line.send_managed_settings),
        raw_text=False,
        secret=True,
    )
    """Settings with the precedence of an administrator's; only restrictions take effect."""
    debug: bool | str = option(False, flag=Flag("--debug", line.build_debug))
    """Make the CLI write its debug log. A string selects topics, as in `"mcp,hooks"`."""
    debug_file: str | Path | None = option(flag=line.single_argument("--debug-file"))
    """Make the CLI write its debug log to this file."""
    title: str | None = option(initialize=line.plain_field("title"))
    """Title of a new session."""
    spawn_claude_code_process: SpawnProcess | None = None
    """Called with the command (`argv`, `env`, `cwd`, `user`) instead of starting it; returns a `Transport`.

    Everything that fits is in `argv`, secrets included, because files of this machine may not exist where the CLI
    runs. If they do, set `starts_here = True` on the callable; secrets are then passed in private files.
    """
    project_config_root: str | Path | None = option(
        flag=line.single_argument("--project-config-root"), check=checks.check_absolute
    )
    """Trusted checkout (an absolute path) whose project settings are used instead of those in `cwd`."""
    on_frame: OnFrame | None = None
    """Called with `"in"` or `"out"` and each frame, with long texts cut. For debugging. Must not block."""
    tracing: bool | None = None
    """True: emit OpenTelemetry spans of the run to the provider that the program has set up, unless another library
    already traces it. None: use the environment variable `TOOLWIRE_TRACING`; if it is not set, emit none."""

    def __post_init__(self) -> None:
        resolve(self, lambda text: warn_at_user_line(text, ToolwireWarning))

    def check(self) -> None:
        """Raise `OptionsError` if these options cannot work. For options that were changed after their creation."""
        resolve(self)


_init = ClaudeAgentOptions.__init__


@functools.wraps(_init)
def _init_or_suggest(self: ClaudeAgentOptions, *args: Any, **given: Any) -> None:
    try:
        _init(self, *args, **given)
    except TypeError as error:
        known = [each.name for each in fields(ClaudeAgentOptions)]
        unknown = [name for name in given if name not in known]
        near = closest(unknown[0], known) if unknown else None
        if near is None:
            raise
        raise TypeError(f"{error}. Did you mean {near!r}?") from None


setattr(ClaudeAgentOptions, "__init__", _init_or_suggest)  # noqa: B010 - a type checker sees the dataclass's own


def prepare(options: object) -> ClaudeAgentOptions:
    """Return the options with each value in its documented form. `OptionsError` for a value that cannot work.

    Options of another class with the same fields, such as the official one, are accepted too.
    """
    if not isinstance(options, ClaudeAgentOptions):
        if isinstance(options, type) or not is_dataclass(options):
            kind = type(options).__name__
            hint = "; write ClaudeAgentOptions(**options)" if isinstance(options, dict) else ""
            raise TypeError(f"options must be ClaudeAgentOptions, got {kind}{hint}")
        known = {field.name for field in fields(ClaudeAgentOptions)}
        options = ClaudeAgentOptions(
            **{each.name: getattr(options, each.name) for each in fields(options) if each.name in known}
        )
    prepared: ClaudeAgentOptions = resolve(options)
    return prepared


# --- all options together ---------------------------------------------------------------------------------------

Warn = Callable[[str], None]
"""Called with the text of a warning."""


class _Row(NamedTuple):
    """An option, as `resolve` uses it."""

    name: str
    default: object
    """MISSING if `factory` makes the default."""
    factory: Any
    kind: Kind
    raw_text: bool
    check: Check | None


@functools.cache
def _rows(options_class: type) -> list[_Row]:
    """Return a row for each field of a class, with the metadata of `option()`."""
    kinds = kinds_of(options_class)
    return [
        _Row(
            field.name,
            field.default,
            field.default_factory,
            kinds[field.name],
            field.metadata.get("raw_text", False),
            field.metadata.get("check"),
        )
        for field in find_fields(options_class)
    ]


def resolve(options: Any, warn: Warn | None = None) -> Any:
    """Return a copy of the options with every value in its documented form; the options themselves if all are.

    Raises `OptionsError` for the first option that cannot work. `warn` is called for each value whose
    interpretation may differ from what its author meant.
    """
    changes: dict[str, Any] = {}
    for row in _rows(options.__class__):
        value = getattr(options, row.name)
        if value is row.default:  # a default is always valid
            continue
        if row.kind.item is not None and isinstance(value, Iterator):  # it can be consumed only once
            value = list(value)
            setattr(options, row.name, value)
        if (resolved := _resolve_value(row, value, warn)) is not value:
            changes[row.name] = resolved
    if changes:
        options = copy.copy(options)
        for name, value in changes.items():
            setattr(options, name, value)
    _check_conflicts(options, warn)
    return options


def _resolve_value(row: _Row, value: Any, warn: Warn | None) -> Any:
    """Return the value of an option in its documented form."""
    if value is None and not row.kind.fits(None):
        return row.factory() if row.default is MISSING else row.default
    try:
        _check_value(row, value)
    except OptionsError:
        from toolwire.options.repairs import find_repairs  # noqa: PLC0415 - few programs need it

        for repair in find_repairs(row.name, value, row.kind.literals):
            if repair.final or _fits(row, repair.value):
                for warning in repair.warnings:
                    _warn_about(warn, row.name, warning)
                return repair.value
        raise
    return value


def _check_value(row: _Row, value: Any) -> None:
    """Raise `OptionsError` unless an option may have this value."""
    check_kind(row.name, value, row.kind)
    if row.raw_text and any("\0" in text for text in iterate_texts(value)):
        refuse(row.name, "contains a NUL character, which no command line can carry; remove it")
    if row.check is not None and value is not None:
        row.check(row.name, value)


def _fits(row: _Row, value: Any) -> bool:
    try:
        _check_value(row, value)
    except OptionsError:
        return False
    return True


def _warn_about(warn: Warn | None, option: str, warning: str) -> None:
    """Warn about an option, or about a part of it if the text begins with `[`."""
    if warn is not None:
        text = f"ClaudeAgentOptions.{option}{'' if warning.startswith('[') else ' '}{warning}"
        warn(text if text.endswith("?") else f"{text}.")


def _check_conflicts(options: Any, warn: Warn | None) -> None:
    for conflict in _CONFLICTS:
        if conflict.when(options):
            if not conflict.runs:
                refuse(conflict.option, conflict.problem)
            _warn_about(warn, conflict.option, conflict.problem)


# --- options that contradict each other -----------------------------------------------------------------------


class _Conflict(NamedTuple):
    option: str
    when: Callable[[Any], bool]
    problem: str
    runs: bool = False
    """True: the CLI accepts both, and a warning says which one takes effect."""


_CONFLICTS = (
    _Conflict(
        "can_use_tool",
        # "stdio" is the CLI's name for the callback: options that were prepared for it have both.
        lambda it: bool(it.can_use_tool and it.permission_prompt_tool_name not in (None, "", "stdio")),
        "and permission_prompt_tool_name both respond to permission requests; set only one of them",
    ),
    _Conflict(
        "continue_conversation",
        lambda it: bool(it.continue_conversation and it.resume),
        "and resume both select a conversation: resume takes precedence; leave out continue_conversation",
        runs=True,
    ),
    _Conflict(
        "session_id",
        lambda it: bool(it.session_id and (it.resume or it.continue_conversation) and not it.fork_session),
        "cannot be set for a conversation that already has an id; set fork_session=True, "
        "or leave out resume and continue_conversation",
    ),
    _Conflict(
        "resume_session_at",
        lambda it: bool(it.resume_session_at and not it.resume),
        "is a point in a resumed conversation; set resume to that conversation",
    ),
    _Conflict(
        "resume_drops_turn",
        lambda it: it.resume_drops_turn == "",
        "is empty; set it to the UUID of the prompt whose turn may be dropped, or None",
    ),
    _Conflict(
        "resume_drops_turn",
        lambda it: it.resume_drops_turn is not None and not it.resume_session_at,
        "limits what resume_session_at may drop; set resume_session_at too",
    ),
    _Conflict(
        "session_store",
        lambda it: (
            it.session_store is not None
            and not (it.persist_session and "no-session-persistence" not in it.extra_args)
        ),
        "stores what the CLI saves, but with persist_session=False (or the flag no-session-persistence) the CLI "
        "saves nothing; set only one of them",
    ),
    _Conflict(
        "session_store",
        lambda it: it.session_store is not None and bool(it.enable_file_checkpointing),
        "does not store copies of files, so it cannot be combined with enable_file_checkpointing",
    ),
    _Conflict(
        "session_store",
        lambda it: (
            it.session_store is not None
            and bool(it.continue_conversation and not it.resume)
            and not implements(it.session_store, "list_sessions")
        ),
        "needs the method list_sessions() for continue_conversation; add it, or select a session with resume",
    ),
    _Conflict(
        "load_timeout_ms",
        lambda it: it.session_store is not None and not NUMBER.fits(it.load_timeout_ms),
        "must be a number of milliseconds when session_store is set",
    ),
    _Conflict(
        "supported_dialog_kinds",
        lambda it: bool(it.supported_dialog_kinds) and it.on_user_dialog is None,
        "lists dialogs, but no callback would show them; set on_user_dialog too",
    ),
)
