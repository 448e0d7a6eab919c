"""All that a user may set: `ClaudeAgentOptions`.

The first fifty fields are those of `claude_agent_sdk`, in its order and with its defaults; ours follow.
Types, literals and contradictions are refused when options are built (`check`, tables in `_option_checks`);
the file system is looked at when connecting (`check_paths`). What becomes of a field is a row in `_argv`.
"""

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from toolwire._support.record import RecordWithSecrets
from toolwire.hooks import HookEvent, HookMatcher, Hooks
from toolwire.options.checks import check
from toolwire.options.kinds import KINDS
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

OnElicitation: TypeAlias = Callable[..., Awaitable[Any]]
"""Called with what an MCP server wants to know; see `ClaudeAgentOptions.on_elicitation`."""
OnSampling: TypeAlias = Callable[..., Awaitable[Any]]
"""Called when an in-process server wants a model's answer; see `ClaudeAgentOptions.on_sampling`."""
SpawnProcess: TypeAlias = Callable[[Any], Any]
"""Runs the CLI somewhere else; see `ClaudeAgentOptions.spawn_claude_code_process`."""
OnFrame: TypeAlias = Callable[[Literal["in", "out"], dict[str, Any]], None]
"""Looks at frames as they go by; see `ClaudeAgentOptions.on_frame`."""

OnUserDialog: TypeAlias = Callable[..., Awaitable[Any]]
"""Called with a dialog that the CLI wants shown; see `ClaudeAgentOptions.on_user_dialog`."""


@dataclass(repr=False, eq=False)
class ClaudeAgentOptions(RecordWithSecrets):
    """How a session is to run. Every field has a default, and most sessions set three or four.

    What it can do: `tools`, `allowed_tools`, `disallowed_tools`, `mcp_servers`, `skills`, `agents`.
    What it is told: `system_prompt`, `model`, `thinking`, `effort`, `output_format`.
    Who decides: `permission_mode`, `can_use_tool`, `hooks`, `sandbox`, `settings`, `setting_sources`.
    How far it goes: `max_turns`, `max_budget_usd`, `task_budget`.
    Which conversation: `resume`, `continue_conversation`, `fork_session`, `session_id`, `persist_session`.
    Where it runs: `cwd`, `add_dirs`, `env`, `inherit_env`, `cli_path`, `user`.
    What you see: `include_partial_messages`, `include_all_messages`, `include_hook_events`, `stderr`.

    Options that cannot work raise `OptionsError`, which names the field, what was given and what to do. The repr
    hides values that can be secrets: those of environments, headers and parameters in URLs.
    """

    tools: list[str] | ToolsPreset | None = None
    """Built-in tools that exist at all. `[]`: none. None or the preset: all that Claude Code has."""
    allowed_tools: list[str] = field(default_factory=list)
    """Tools that run without asking: `Read`, `Bash(git *)`, `mcp__server`, `mcp__server__tool`."""
    system_prompt: str | list[str] | SystemPromptPreset | SystemPromptCustom | SystemPromptFile | None = None
    """None: an empty prompt. A string or a list of blocks: yours. Or the preset, custom and file dicts."""
    mcp_servers: dict[str, Any] | str | Path = field(default_factory=dict)
    """Server name -> config dict or in-process server object. Or a path to a config file, or its JSON.

    Configurations reach the CLI by a private file, which is gone once it has started: others cannot read them.
    """
    strict_mcp_config: bool = False
    """True: only `mcp_servers`; the servers of settings files, projects and plugins are left out."""
    permission_mode: PermissionMode | None = None
    """What happens where no rule allows or denies a tool. None: as the CLI's settings say."""
    continue_conversation: bool = False
    """Go on with the latest conversation of the directory. Not together with `resume`."""
    resume: str | None = None
    """Session id or title to go on with."""
    session_id: str | None = None
    """UUID for the new session. With `resume` or `continue_conversation` only if `fork_session` is set."""
    max_turns: int | None = None
    """Stop after so many turns. None or 0: no limit."""
    max_budget_usd: float | None = None
    """Stop when so many dollars are spent; the result then is `error_max_budget_usd`."""
    disallowed_tools: list[str] = field(default_factory=list)
    """Tools that are taken away, whatever else allows them."""
    model: str | None = None
    """Alias (`sonnet`) or full name. None: the CLI's default."""
    fallback_model: str | None = None
    """Model, or several with commas, to use when the first is overloaded."""
    betas: list[SdkBeta] = field(default_factory=list)
    """API beta headers. Any string is passed on."""
    permission_prompt_tool_name: str | None = None
    """MCP tool that answers permission questions. Not together with `can_use_tool`."""
    cwd: str | Path | None = None
    """Directory in which the CLI works. None: this process's own."""
    cli_path: str | Path | None = None
    """The CLI to run. None: search for it."""
    settings: str | Path | dict[str, Any] | None = None
    """More settings, above all others of the user: a path, JSON, or a dict."""
    add_dirs: list[str | Path] = field(default_factory=list)
    """Directories besides `cwd` that tools may work in."""
    env: dict[str, str] = field(default_factory=dict)
    """Environment variables for the CLI, over the inherited ones (see `inherit_env`)."""
    extra_args: dict[str, str | None] = field(default_factory=dict)
    """More CLI flags: name without dashes -> value, or None for a flag that takes none. No place for secrets:
    every user of the machine can read a command line."""
    max_buffer_size: int | None = None
    """Longest line in bytes to take from the CLI. None: 256 MiB."""
    debug_stderr: Any = sys.stderr
    """Kept for old code and never read. Use `stderr`."""
    stderr: Callable[[str], None] | None = None
    """Called with each line that the CLI writes to stderr."""
    can_use_tool: CanUseTool | None = None
    """Asked before a tool runs that no rule, mode or hook has already allowed or denied."""
    hooks: dict[HookEvent, list[HookMatcher]] | Hooks | None = None
    """`Hooks`, or event -> matchers with the functions to call. The CLI runs those of one event side by side."""
    user: str | int | None = None
    """Operating-system user (name or id) to run the CLI as."""
    include_partial_messages: bool = False
    """Also yield each piece of a message as it streams in."""
    include_hook_events: bool = False
    """Also yield a message when a hook starts and ends."""
    forward_subagent_text: bool = False
    """Also yield the text and thinking of subagents, not only their tool use."""
    verbatim_prompts: bool = False
    """Prompts reach the model as written: no `@file` expansion, no slash commands."""
    fork_session: bool = False
    """With `resume` or `continue_conversation`: go on in a copy, under a new id."""
    resume_session_at: str | None = None
    """With `resume`: UUID of the last message to keep."""
    resume_drops_turn: str | None = None
    """With `resume_session_at`: UUID of the prompt whose turn may be lost; more is refused."""
    agents: dict[str, AgentDefinition] | None = None
    """Subagents by name."""
    setting_sources: list[SettingSource] | None = None
    """Settings files to load. None: all. `[]`: none. CLAUDE.md needs `project`."""
    skills: list[str] | Literal["all"] | None = None
    """Skills to offer, by exact name, or `"all"`. Sets `allowed_tools` and `setting_sources` as they need."""
    sandbox: SandboxSettings | None = None
    """The sandbox for shell commands; put into `settings`."""
    plugins: list[SdkPluginConfig] = field(default_factory=list)
    """Plugins to load, from local directories."""
    max_thinking_tokens: int | None = None
    """Deprecated; use `thinking`, which wins."""
    thinking: ThinkingConfig | None = None
    """Extended thinking: adaptive, enabled with a budget, or disabled."""
    effort: EffortLevel | None = None
    """How hard the model works on an answer."""
    output_format: dict[str, Any] | None = None
    """`{"type": "json_schema", "schema": {...}}`: the result then carries data of that shape."""
    enable_file_checkpointing: bool = False
    """Keep copies of changed files, so that `rewind_files` can restore them."""
    session_store: Any = None
    """Not supported yet: anything but None raises `NotSupportedError`."""
    session_store_flush: SessionStoreFlushMode = "batched"
    """Without effect until `session_store` is supported."""
    load_timeout_ms: int = 60_000
    """Without effect until `session_store` is supported."""
    task_budget: TaskBudget | None = None
    """Tokens for the task, which the model is told about."""
    client_app: str | None = None
    """Name of your application, such as `my-app/1.0`, for the User-Agent header."""

    inherit_env: bool = True
    """False: the CLI's environment is `env` and what toolwire itself sets, nothing of this process's."""
    include_all_messages: bool = False
    """Also yield the messages that the official SDK hides or has no class for."""
    initialize_timeout: float | None = None
    """Seconds to wait for the CLI to start. None: 60, or `CLAUDE_CODE_STREAM_CLOSE_TIMEOUT` ms if longer."""
    control_timeout: float = 60.0
    """Seconds to wait for the answer to any other control request."""
    close_timeout: float = 5.0
    """Seconds that the CLI gets to end by itself once its input has ended. Then SIGTERM, after 2 more SIGKILL."""
    agent: str | None = None
    """Agent that leads the session: its prompt, tools and model. One of `agents` or of the settings."""
    tool_aliases: dict[str, str] | None = None
    """Name that the model calls -> tool that runs instead: `{"Bash": "mcp__workspace__bash"}`."""
    tool_config: ToolConfig | None = None
    """Settings of built-in tools: `{"askUserQuestion": {"previewFormat": "html"}}`."""
    on_elicitation: OnElicitation | None = None
    """Asked when an MCP server wants input of the user. None: such requests are declined."""
    on_sampling: OnSampling | None = None
    """Asked when an in-process server wants a model's answer. None: such requests are refused."""
    roots: list[str | Path | dict[str, Any]] | None = None
    """Places that in-process servers may ask for: paths, URIs, or `{"uri": ..., "name": ...}`."""
    on_user_dialog: OnUserDialog | None = None
    """Asked to show the dialogs named in `supported_dialog_kinds`."""
    supported_dialog_kinds: list[str] | None = None
    """Dialogs that `on_user_dialog` can show. The CLI sends no others."""
    per_task_stop_affordance: bool = False
    """You can stop single tasks, so an interrupt spares those in the background."""
    persist_session: bool = True
    """False: the session is not saved and cannot be resumed."""
    plan_mode_instructions: str | None = None
    """How to plan, in place of the CLI's own workflow for plan mode."""
    allow_dangerously_skip_permissions: bool = False
    """Let the session switch to `bypassPermissions` later on."""
    permission_prompts: PermissionPrompts | None = None
    """`"none"`: nobody is asked, and what would need asking is denied. None or `"host"`: you are asked."""
    plugin_delivery: PluginDelivery = "argv"
    """`"initialize"`: send the plugin list on stdin, for lists too long for a command line."""
    prompt_suggestions: bool = False
    """After each turn, the CLI guesses the user's next prompt (`include_all_messages` shows it)."""
    agent_progress_summaries: bool = False
    """Running subagents report what they are doing, about every 30 seconds."""
    managed_settings: dict[str, Any] | None = None
    """Settings with the rank of an administrator's; only restrictions count."""
    debug: bool | str = False
    """Let the CLI write its debug log; a string says of what, as in `"mcp,hooks"`."""
    debug_file: str | Path | None = None
    """Let the CLI write its debug log into this file."""
    title: str | None = None
    """Title of a new session."""
    spawn_claude_code_process: SpawnProcess | None = None
    """Called with the command (`argv`, `env`, `cwd`, `user`) in place of starting it; gives a `Transport`.

    All that fits is in `argv`, secrets too, since files of ours may not be where the CLI runs. If they are, set
    `starts_here = True` on the callable, and secrets come in private files.
    """
    project_config_root: str | Path | None = None
    """Trusted checkout (absolute) whose project settings count instead of those in `cwd`."""
    on_frame: OnFrame | None = None
    """Called with `"in"` or `"out"` and each frame, long texts cut; for debugging. Must not block."""

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Raise `OptionsError` if these options cannot work. Fields may have changed since they were set."""
        check({name: getattr(self, name) for name in KINDS})
