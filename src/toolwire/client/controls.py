"""The client's control requests: one method each, named as in the official Python or TypeScript SDK.

To add a control request, add a method here and the type of its response to `responses`. Methods check their
arguments before anything is sent. Requests that have no method yet go through `control_request`.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import anyio

from toolwire._conversation.wiring import Conversation
from toolwire._support.secrets import redact
from toolwire.client.responses import (
    AccountInfo,
    AgentInfo,
    BinaryVersion,
    ContextUsageResponse,
    ExportedConversation,
    FileContents,
    FileSuggestions,
    ForkConversationResult,
    HooksListing,
    InitializeResponse,
    InterruptReceipt,
    McpCallResult,
    McpModeOverride,
    McpResource,
    McpServerStatus,
    McpSetServersResult,
    McpStatusResponse,
    MemoryDialog,
    ModelInfo,
    PermissionRules,
    PlanResponse,
    ProactivityLevel,
    ReloadOutputStylesResponse,
    ReloadPluginsResponse,
    ReloadSkillsResponse,
    RepoRoot,
    RewindConversationResult,
    RewindFilesResult,
    SandboxDialog,
    SetCwdResult,
    SettingsResponse,
    SideAnswer,
    SkillsDialog,
    SlashCommand,
    StatusResponse,
    TaskOutput,
    UsageResponse,
    WorkspaceDiff,
)
from toolwire.errors import CLIConnectionError, CLITimeoutError, OptionsError, UnsupportedRequestError
from toolwire.hooks.registry import register
from toolwire.options import command_line
from toolwire.permissions import PermissionMode

if TYPE_CHECKING:
    from toolwire.options.agent_options import ClaudeAgentOptions

KEEP: Final = "keep"
StrPath: TypeAlias = str | os.PathLike[str]
_FIRST_PAUSE: Final = 0.02  # seconds between two status requests, doubled each time
_LONGEST_PAUSE: Final = 0.25
_UNKNOWN: Final = "not known to the CLI"
_LATE: Final = ("pending", _UNKNOWN)


class Controls:
    """Every control request, over the client's conversation."""

    if TYPE_CHECKING:  # an annotation that cannot be resolved would break get_type_hints() for the client
        options: ClaudeAgentOptions
    _conversation: Conversation | None = None

    async def control_request(
        self, subtype: str, /, *, control_timeout: float | None = None, **fields: Any
    ) -> dict[str, Any]:
        """Send any control request and return the CLI's response. For requests that are newer than toolwire.

        `fields` are sent as they are. `control_timeout` is in seconds; None uses the option of that name.

        Raises `UnsupportedRequestError` if this CLI does not know the request, `ControlRequestError` with the
        CLI's own message if it refuses, `CLITimeoutError` if no response comes, and `CLIConnectionError` or
        `ProcessError` if the connection is closed.
        """
        check_text("subtype", subtype)
        seconds = self.options.control_timeout if control_timeout is None else control_timeout
        check_number("control_timeout", seconds)
        live = self._live
        with self._explain_unsupported(live):
            return await live.session.request({**fields, "subtype": subtype}, seconds)

    @property
    def _live(self) -> Conversation:
        """The open conversation; raises `CLIConnectionError` if there is none."""
        if self._conversation is None:
            raise CLIConnectionError("Not connected. Call connect() first.")
        return self._conversation

    @contextmanager
    def _explain_unsupported(self, live: Conversation) -> Iterator[None]:
        """Add the CLI's version, and what to do, to an `UnsupportedRequestError`."""
        try:
            yield
        except UnsupportedRequestError as error:
            version = (live.info or {}).get("claude_code_version") or "of unknown version"
            text = (
                f"{error}. Claude Code {version} does not support {error.subtype!r} in this kind of session. If a "
                "newer version does, install it, or set cli_path to it."
            )
            raise UnsupportedRequestError(text, subtype=error.subtype, error_code=error.error_code) from None

    # The run.

    async def interrupt(self, cancel_queued: bool = False) -> InterruptReceipt:
        """Stop the current turn. Its `ResultMessage` still arrives.

        Prompts that are still queued run next, and the receipt lists them in `still_queued`; `cancel_queued`
        drops them too.
        """
        response = await self.control_request("interrupt", **omit_unset(cancel_queued=cancel_queued))
        return cast("InterruptReceipt", response)

    async def cancel_async_message(self, message_uuid: str) -> bool:
        """Drop a queued prompt; returns False if it has begun or is unknown.

        `message_uuid` is the `uuid` of the message dict that was sent.
        """
        uuid = check_text("message_uuid", message_uuid)
        return bool((await self.control_request("cancel_async_message", message_uuid=uuid)).get("cancelled"))

    async def stop_task(self, task_id: str) -> None:
        """Stop a background task; its end arrives as a task message. The CLI ignores an unknown id."""
        known = task_id if task_id == "" else check_text("task_id", task_id)  # the CLI accepts ""
        await self.control_request("stop_task", task_id=known)

    async def background_tasks(self, tool_use_id: str | None = None) -> bool:
        """Move running commands and subagents to the background: all, or that of one tool call.

        The turn continues at once. Returns False only if `tool_use_id` is not running.
        """
        target = check_optional_text("tool_use_id", tool_use_id)
        response = await self.control_request("background_tasks", **omit_unset(tool_use_id=target))
        return bool(response.get("backgrounded", True))

    async def get_task_output(self, task_id: str) -> TaskOutput:
        """Return the last 8 KiB of a background command's output, while it runs and after."""
        response = await self.control_request("get_task_output", task_id=check_text("task_id", task_id))
        return cast("TaskOutput", response)

    # Model and mode.

    async def set_permission_mode(self, mode: PermissionMode) -> PermissionMode:
        """Change the permission mode for the rest of the session, and return it."""
        response = await self.control_request("set_permission_mode", mode=check_text("mode", mode))
        return cast("PermissionMode", response.get("mode", mode))

    async def set_model(self, model: str | None = None) -> str | None:
        """Change the model, or with None return to the default; returns the name of the model now in use.

        The CLI accepts names that it does not know; the API then refuses the next turn.
        """
        name = check_optional_text("model", model)
        return cast("str | None", (await self.control_request("set_model", model=name)).get("model", name))

    async def set_max_thinking_tokens(
        self,
        max_thinking_tokens: int | None,
        thinking_display: Literal["summarized", "omitted", "highlights", "keep"] | None = KEEP,
    ) -> None:
        """Change the thinking budget (None: the initial one) and how thinking is shown (None: the default)."""
        if max_thinking_tokens is not None and (
            isinstance(max_thinking_tokens, bool) or not isinstance(max_thinking_tokens, int)
        ):
            raise TypeError(
                f"max_thinking_tokens must be an integer or None, got {type(max_thinking_tokens).__name__}"
            )
        check_choice(
            "thinking_display", thinking_display, ("summarized", "omitted", "highlights", KEEP, None)
        )
        display: dict[str, Any] = {} if thinking_display == KEEP else {"thinking_display": thinking_display}
        await self.control_request(
            "set_max_thinking_tokens", max_thinking_tokens=max_thinking_tokens, **display
        )

    async def set_proactivity_level(self, level: Literal["ask", "default", "proactive"]) -> ProactivityLevel:
        """Set how much Claude does on its own initiative. Call `reinitialize(proactivity=True)` first."""
        check_choice("level", level, ("ask", "default", "proactive"))
        return cast("ProactivityLevel", await self.control_request("set_proactivity_level", level=level))

    # Information about the CLI and the session.

    async def initialization_result(self) -> InitializeResponse:
        """Return the CLI's response to the last `initialize`."""
        return cast("InitializeResponse", self._live.info or {})

    async def reinitialize(self, **fields: Any) -> InitializeResponse:
        """Initialize the running session again with the same options; `fields` are added to the request.

        Hooks are registered again, and a hook call that is running is cancelled.
        """
        live = self._live
        hooks, _ = register(live.options.hooks or {})
        request = {**command_line.build_initialize_request(live.options, hooks), **fields}
        response = await self.control_request(request.pop("subtype"), **request)
        live.info = response
        return cast("InitializeResponse", response)

    async def supported_commands(self) -> list[SlashCommand]:
        """Return the commands and skills that a prompt may begin with, as of the start of the session."""
        return (await self.initialization_result()).get("commands", [])

    async def supported_models(self) -> list[ModelInfo]:
        """Return the available models, as of the start of the session."""
        return (await self.initialization_result()).get("models", [])

    async def supported_agents(self) -> list[AgentInfo]:
        """Return the subagents that the model may start, as of the start of the session."""
        return (await self.initialization_result()).get("agents", [])

    async def account_info(self) -> AccountInfo:
        """Return the account and the kind of credentials in use."""
        return (await self.initialization_result()).get("account", {})

    async def list_models(self) -> list[ModelInfo]:
        """Ask the CLI for the available models."""
        return cast("list[ModelInfo]", (await self.control_request("list_models")).get("models", []))

    async def get_context_usage(
        self, detail: Literal["summary", "full"] | None = None
    ) -> ContextUsageResponse:
        """Return the contents of the context window.

        `summary` estimates the tokens; `full`, the default, has the API count them.
        """
        check_choice("detail", detail, ("summary", "full", None))
        response = await self.control_request("get_context_usage", **omit_unset(detail=detail))
        return cast("ContextUsageResponse", response)

    async def get_usage(self, skip_behaviors: bool = False) -> UsageResponse:
        """Return cost and tokens of the session, and the limits of a subscription.

        With `skip_behaviors` the CLI does not read the transcripts of the last days.
        """
        response = await self.control_request("get_usage", **omit_unset(skip_behaviors=skip_behaviors))
        return cast("UsageResponse", response)

    async def get_session_cost(self) -> str:
        """Return the cost of the session as the CLI's own text."""
        return str((await self.control_request("get_session_cost")).get("text", ""))

    # Reloading from disk.

    async def reload_plugins(
        self,
        *,
        hold_on_cache_impact: bool = False,
        add_plugins: Sequence[Mapping[str, Any]] | None = None,
        refuse_if_busy: bool = False,
    ) -> ReloadPluginsResponse:
        """Reload plugins, and load those in `add_plugins` too (as in the option `plugins`, absolute paths).

        With `hold_on_cache_impact` nothing is applied if that would change the tools of a cached conversation.
        With `refuse_if_busy` the CLI refuses with the error code `reload_plugins_busy` while a turn runs.
        """
        plugins = None if add_plugins is None else _check_plugins(add_plugins)
        flags = omit_unset(
            hold_on_cache_impact=hold_on_cache_impact, add_plugins=plugins, refuse_if_busy=refuse_if_busy
        )
        return cast("ReloadPluginsResponse", await self.control_request("reload_plugins", **flags))

    async def reload_skills(self) -> ReloadSkillsResponse:
        """Reload skills."""
        return cast("ReloadSkillsResponse", await self.control_request("reload_skills"))

    async def reload_output_styles(self) -> ReloadOutputStylesResponse:
        """Reload output styles."""
        return cast("ReloadOutputStylesResponse", await self.control_request("reload_output_styles"))

    # Files and folders where the CLI runs.

    async def rewind_files(self, user_message_id: str, dry_run: bool = False) -> RewindFilesResult:
        """Restore tracked files to their state at a user message (needs `enable_file_checkpointing`).

        `dry_run` changes nothing and returns the changes that would be made.
        """
        uuid = check_text("user_message_id", user_message_id)
        response = await self.control_request(
            "rewind_files", user_message_id=uuid, **omit_unset(dry_run=dry_run)
        )
        return cast("RewindFilesResult", response)

    async def read_file(
        self, path: StrPath, max_bytes: int | None = None, encoding: Literal["utf-8", "base64"] = "utf-8"
    ) -> FileContents:
        """Read a file where the CLI runs, at most 1 MB or `max_bytes`; the rules for the Read tool apply."""
        if max_bytes is not None:
            check_number("max_bytes", max_bytes)
        check_choice("encoding", encoding, ("utf-8", "base64"))
        fields = omit_unset(max_bytes=max_bytes, encoding=None if encoding == "utf-8" else encoding)
        response = await self.control_request("read_file", path=check_path("path", path), **fields)
        return cast("FileContents", response)

    async def seed_read_state(self, path: StrPath, mtime: int) -> None:
        """Mark a file as read by the model, so that the model may edit it.

        `mtime` is the file's modification time at that moment, in milliseconds. If the file has changed since, the
        CLI ignores the request.
        """
        if isinstance(mtime, bool) or not isinstance(mtime, int):
            raise TypeError(
                "mtime must be in whole milliseconds, as in int(path.stat().st_mtime * 1000), "
                f"got {type(mtime).__name__}"
            )
        await self.control_request("seed_read_state", path=check_path("path", path), mtime=mtime)

    async def file_suggestions(self, query: str) -> FileSuggestions:
        """Return paths that match the text typed after an @. The query may be empty."""
        if not isinstance(query, str):
            raise TypeError(f"query must be a string, got {type(query).__name__}")
        return cast("FileSuggestions", await self.control_request("file_suggestions", query=query))

    async def get_workspace_diff(self) -> WorkspaceDiff:
        """Return the uncommitted changes in the session's git repository."""
        return cast("WorkspaceDiff", await self.control_request("get_workspace_diff"))

    async def set_cwd(self, path: StrPath, *, trusted_directory: str | None = None) -> SetCwdResult:
        """Move an idle session to another working directory.

        If the directory is not trusted yet, the status is `needs_trust`: ask the user, then call again with the
        returned `directory` as `trusted_directory`.
        """
        fields: dict[str, Any] = {}
        if trusted_directory is not None:
            accepted = check_text("trusted_directory", trusted_directory)
            fields = {"trust_accepted": True, "trusted_directory": accepted}
        response = await self.control_request("set_cwd", path=check_path("path", path), **fields)
        return cast("SetCwdResult", response)

    async def register_repo_root(
        self,
        directory: StrPath,
        *,
        reload_claude_md: bool = False,
        reload_plugins: bool = False,
        reload_skills: bool = False,
    ) -> RepoRoot:
        """Add a folder below the working directory, or below one of `add_dirs`, as a working directory."""
        flags = omit_unset(
            reload_claude_md=reload_claude_md, reload_plugins=reload_plugins, reload_skills=reload_skills
        )
        folder = check_path("directory", directory)
        return cast("RepoRoot", await self.control_request("register_repo_root", directory=folder, **flags))

    async def add_directory(self, mount_path: StrPath) -> RepoRoot:
        """Attach a mounted folder to a session that Anthropic hosts. Elsewhere use `register_repo_root`."""
        path = check_path("mount_path", mount_path)
        return cast("RepoRoot", await self.control_request("add_directory", mount_path=path))

    # Settings and rules.

    async def get_settings(self) -> SettingsResponse:
        """Return the settings in force and their sources."""
        return cast("SettingsResponse", await self.control_request("get_settings"))

    async def apply_flag_settings(self, settings: Mapping[str, Any]) -> None:
        """Change settings for this session, like the option `settings` at its start.

        Top-level keys replace those of earlier calls; None clears one. If any value is invalid, the CLI refuses
        the request and applies nothing.
        """
        await self.control_request("apply_flag_settings", settings=check_mapping("settings", settings))

    async def update_settings(
        self, source: Literal["localSettings", "userSettings"], settings: Mapping[str, Any]
    ) -> None:
        """Write settings to a file. The CLI accepts `outputStyle` in local and `effortLevel` in user settings.

        The CLI refuses a source that the option `setting_sources` leaves out.
        """
        check_choice("source", source, ("localSettings", "userSettings"))
        body = check_mapping("settings", settings)
        await self.control_request("update_settings", source=source, settings=body)

    async def list_permission_rules(self) -> PermissionRules:
        """Return the permission rules in force and their sources."""
        return cast("PermissionRules", (await self.control_request("list_permission_rules")).get("state", {}))

    async def get_hooks_listing(self) -> HooksListing:
        """Return the hooks of settings, plugins and this session, and all events that the CLI knows."""
        return cast("HooksListing", await self.control_request("get_hooks_listing"))

    # The conversation.

    async def rename_session(
        self, title: str, *, source: Literal["host", "remote"] = "host", session_id: str | None = None
    ) -> None:
        """Set the title of the session. With `session_id`, only if that still is the current session."""
        check_choice("source", source, ("host", "remote"))
        same = omit_unset(session_id=check_optional_text("session_id", session_id))
        await self.control_request("rename_session", title=check_text("title", title), source=source, **same)

    async def generate_session_title(
        self, description: str, persist: bool = False, *, control_timeout: float | None = None
    ) -> str | None:
        """Have the model write a title for a description; returns None if it cannot. `persist` saves it."""
        response = await self.control_request(
            "generate_session_title",
            control_timeout=control_timeout,
            description=check_text("description", description),
            persist=bool(persist),
        )
        return cast("str | None", response.get("title"))

    async def side_question(
        self,
        question: str,
        history: Sequence[Mapping[str, str]] = (),
        *,
        control_timeout: float | None = None,
    ) -> SideAnswer:
        """Ask the model about the conversation without adding to it.

        `history` has earlier side questions, as dicts with `question` and `response`.
        """
        before = [_check_exchange(each) for each in history]
        response = await self.control_request(
            "side_question",
            control_timeout=control_timeout,
            question=check_text("question", question),
            **omit_unset(history=before or None),
        )
        return cast("SideAnswer", response)

    async def rewind_conversation(
        self,
        target_message_uuid: str,
        *,
        allow_assistant_target: bool = False,
        allow_summarized_target: bool = False,
    ) -> RewindConversationResult:
        """Cut the conversation back to before a message. Files are not restored (see `rewind_files`)."""
        flags = omit_unset(
            allow_assistant_target=allow_assistant_target, allow_summarized_target=allow_summarized_target
        )
        uuid = check_text("target_message_uuid", target_message_uuid)
        response = await self.control_request("rewind_conversation", target_message_uuid=uuid, **flags)
        return cast("RewindConversationResult", response)

    async def fork_conversation(
        self, target_message_uuid: str | None = None, title: str | None = None
    ) -> ForkConversationResult:
        """Fork the conversation at a message. The CLI supports this in remote sessions only."""
        fields = omit_unset(
            target_message_uuid=check_optional_text("target_message_uuid", target_message_uuid),
            title=check_optional_text("title", title),
        )
        return cast("ForkConversationResult", await self.control_request("fork_conversation", **fields))

    async def export_conversation(self) -> ExportedConversation:
        """Return the conversation as plain text."""
        return cast("ExportedConversation", await self.control_request("export_conversation"))

    async def get_plan(self) -> PlanResponse:
        """Return the plan that Claude wrote in plan mode, if there is one."""
        return cast("PlanResponse", await self.control_request("get_plan"))

    async def end_session(self, reason: str | None = None) -> None:
        """Have the CLI stop its work and exit. The message stream ends after that."""
        await self.control_request("end_session", **omit_unset(reason=check_optional_text("reason", reason)))

    # For user interfaces: what they show, and what they report back.

    async def get_status(self) -> StatusResponse:
        """Return the contents of `/status`."""
        return cast("StatusResponse", await self.control_request("get_status"))

    async def get_binary_version(self) -> BinaryVersion:
        """Return the version of the CLI."""
        return cast("BinaryVersion", await self.control_request("get_binary_version"))

    async def get_memory_dialog(self) -> MemoryDialog:
        """Return the files that hold Claude's instructions and memories."""
        return cast("MemoryDialog", await self.control_request("get_memory_dialog"))

    async def get_skills_dialog(self) -> SkillsDialog:
        """Return the skills of the user and the project."""
        return cast("SkillsDialog", await self.control_request("get_skills_dialog"))

    async def get_sandbox_dialog(self) -> SandboxDialog:
        """Return the state of the command sandbox."""
        return cast("SandboxDialog", await self.control_request("get_sandbox_dialog"))

    async def set_has_subscribers(self, has_subscribers: bool | None) -> None:
        """Report whether a client is watching (None: unknown), for sessions that hold back partial messages."""
        check_choice("has_subscribers", has_subscribers, (True, False, None))
        await self.control_request("set_has_subscribers", has_subscribers=has_subscribers)

    async def set_prompt_suggestions_paused(self, paused: bool) -> None:
        """Pause or resume prompt suggestions."""
        check_choice("paused", paused, (True, False))
        await self.control_request("set_prompt_suggestions_paused", paused=paused)

    async def message_rated(
        self,
        message_uuid: str,
        sentiment: Literal["positive", "negative"],
        surface: Literal["assistant_text", "tool_use"] = "assistant_text",
        cleared: bool = False,
    ) -> None:
        """Report the user's rating of a message; `cleared` withdraws it."""
        check_choice("sentiment", sentiment, ("positive", "negative"))
        check_choice("surface", surface, ("assistant_text", "tool_use"))
        uuid = check_text("message_uuid", message_uuid)
        await self.control_request(
            "message_rated", messageUuid=uuid, sentiment=sentiment, surface=surface, cleared=bool(cleared)
        )

    # MCP servers: change them, call them, wait for them.

    async def wait_until_ready(
        self,
        timeout: float = 30.0,  # noqa: ASYNC109 - raises CLITimeoutError
        servers: Collection[str] | None = None,
    ) -> McpStatusResponse:
        """Wait until MCP servers are connected and their tools listed, and return their status.

        This works for in-process servers, those that the CLI starts, and remote ones. `servers` names those to wait
        for; None means all that are configured and not disabled. The model sees the tools from the next turn on.

        Raises `CLITimeoutError` if a server is late, and `CLIConnectionError` if none is late and some failed. Both
        name every server that is not ready, with the CLI's reason. The session stays usable.
        """
        check_number("timeout", timeout)
        wanted = _check_names(servers)
        status: McpStatusResponse = {"mcpServers": []}
        pause = _FIRST_PAUSE
        with anyio.move_on_after(timeout):
            while True:
                status = await self.get_mcp_status()
                if not any(why in _LATE for why in self._find_missing(status, wanted).values()):
                    break
                await anyio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
        missing = self._find_missing(status, wanted)
        if not missing:
            return status
        late = any(why in _LATE for why in missing.values())
        text = redact(", ".join(f"{name} ({why})" for name, why in sorted(missing.items())))
        if late:
            raise CLITimeoutError(f"MCP servers not ready within {timeout:g} s: {text}")
        raise CLIConnectionError(f"MCP servers not ready: {text}")

    def _find_missing(self, status: McpStatusResponse, wanted: Collection[str] | None) -> dict[str, str]:
        """Return the servers that are not ready, each with the reason."""
        found = {server["name"]: server for server in status["mcpServers"]}
        names = wanted
        if names is None:
            enabled = [name for name, server in found.items() if server["status"] != "disabled"]
            names = [*enabled, *(name for name in self._list_configured() if name not in found)]
        reasons = {name: _explain_status(found.get(name)) for name in names}
        return {name: why for name, why in reasons.items() if why is not None}

    def _list_configured(self) -> Collection[str]:
        try:
            return self._live.mcp_servers
        except OptionsError:  # they are in a file: only the CLI knows their names
            return ()

    async def get_mcp_status(self) -> McpStatusResponse:
        """Return the status of every MCP server."""
        return cast("McpStatusResponse", await self.control_request("mcp_status"))

    async def reconnect_mcp_server(self, server_name: str) -> None:
        """Reconnect an MCP server. The CLI refuses this for in-process servers, which are always connected."""
        await self.control_request("mcp_reconnect", serverName=check_text("server_name", server_name))

    async def toggle_mcp_server(self, server_name: str, enabled: bool) -> None:
        """Enable or disable an MCP server."""
        name = check_text("server_name", server_name)
        await self.control_request("mcp_toggle", serverName=name, enabled=enabled)

    async def set_mcp_servers(self, servers: Mapping[str, Any]) -> McpSetServersResult:
        """Replace the MCP servers of the session: those set before, and all in-process ones.

        In-process servers that stay keep their connection and their running calls. A server that the CLI started
        from the option `mcp_servers` stays until one call has named it and the next has not; `remove_mcp_server`
        takes care of that.
        """
        full = {name: _add_args(server) for name, server in check_mapping("servers", servers).items()}
        live = self._live
        with self._explain_unsupported(live):
            return cast("McpSetServersResult", await live.set_servers(full))

    async def add_mcp_server(self, name: str, server: Any) -> McpSetServersResult:
        """Add a server, in-process or by its configuration. A server of the same name is replaced."""
        return await self.set_mcp_servers({**self._live.mcp_servers, name: server})

    async def remove_mcp_server(self, name: str) -> McpSetServersResult:
        """Remove a server; raises KeyError if there is none of that name."""
        rest = self._live.mcp_servers
        server = rest.pop(name)
        result = await self.set_mcp_servers(rest)
        if name in result.get("removed", ()) or not isinstance(server, Mapping):
            return result
        status = await self.get_mcp_status()
        if all(each["name"] != name for each in status["mcpServers"]):
            return result
        # The CLI got it on the command line and removes such a server only after a call has named it.
        await self.set_mcp_servers({**rest, name: server})
        return await self.set_mcp_servers(rest)

    async def set_mcp_permission_mode_override(
        self, server_name: str, mode: Literal["default", "auto"] | None
    ) -> McpModeOverride:
        """Make one server's permission mode stricter than the session's; None undoes that.

        `default` asks before each call of its tools; `auto` lets the classifier decide.
        """
        check_choice("mode", mode, ("default", "auto", None))
        name = check_text("server_name", server_name)
        response = await self.control_request("set_mcp_permission_mode_override", serverName=name, mode=mode)
        return cast("McpModeOverride", response)

    async def mcp_call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        check_permissions: bool = False,
        result_not_for_model: bool = False,
        control_timeout: float | None = None,
    ) -> McpCallResult:
        """Call a tool (`mcp__server__tool`) of a server that the CLI connects to, without the model.

        Permissions are not checked unless `check_permissions` is set. With `result_not_for_model` the result is
        returned exactly as the server sent it. The CLI refuses in-process tools: call the function itself.
        """
        flags = omit_unset(check_permissions=check_permissions, result_not_for_model=result_not_for_model)
        response = await self.control_request(
            "mcp_call",
            control_timeout=control_timeout,
            tool=check_text("tool", tool),
            arguments=check_mapping("arguments", {} if arguments is None else arguments),
            **flags,
        )
        return cast("McpCallResult", response)

    async def read_mcp_resource(self, server_name: str, uri: str) -> McpResource:
        """Read a `ui://` resource of a server that the CLI connects to. Treat the contents as untrusted."""
        if not check_text("uri", uri).startswith("ui://"):
            raise ValueError(f"uri must begin with ui://, got {uri!r}")
        name = check_text("server_name", server_name)
        return cast("McpResource", await self.control_request("mcp_read_resource", serverName=name, uri=uri))

    async def send_mcp_message(self, server_name: str, message: Mapping[str, Any]) -> None:
        """Send the CLI a JSON-RPC message in the name of an in-process server. A `ToolServer` does so by itself.

        The CLI accepts any message, and acts on `notifications/tools/list_changed`.
        """
        body = check_mapping("message", message)
        name = check_text("server_name", server_name)
        await self.control_request("mcp_message", server_name=name, message=body)


def _check_plugins(plugins: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return plugins with their paths as text; raises ValueError for a path that is not absolute."""
    checked = [check_mapping("a plugin in add_plugins", plugin) for plugin in plugins]
    for plugin in checked:
        if not Path(check_path("the path of a plugin", plugin.get("path"))).is_absolute():
            raise ValueError(f"the path of a plugin must be absolute, got {plugin['path']!r}")
    return [{**plugin, "path": os.fspath(plugin["path"])} for plugin in checked]


def _check_exchange(exchange: Mapping[str, str]) -> dict[str, str]:
    """Return one earlier side question as a dict; raises ValueError without `question` and `response`."""
    body = check_mapping("an exchange in history", exchange)
    if missing := [name for name in ("question", "response") if not isinstance(body.get(name), str)]:
        raise ValueError(f"an exchange in history needs {missing[0]!r} as a string")
    return body


def _check_names(servers: Collection[str] | None) -> list[str] | None:
    if servers is None:
        return None
    if isinstance(servers, str):
        raise TypeError("servers must be a list of names, got a string")
    return [check_text("a name in servers", name) for name in servers]


def _explain_status(server: McpServerStatus | None) -> str | None:
    """Return why a server is not ready; None if it is."""
    if server is None:
        return _UNKNOWN
    if server["status"] == "connected":
        return None if "tools" in server else "pending"
    error = server.get("error")
    return f"{server['status']}: {error}" if error else server["status"]


def _add_args(server: Any) -> Any:
    """Add `args` to a configuration without it: this request requires it, the command line does not."""
    if isinstance(server, Mapping) and "command" in server and "args" not in server:
        return {**server, "args": []}
    return server


def omit_unset(**fields: Any) -> dict[str, Any]:
    """Return the fields that are neither None nor False. For a missing field the CLI uses its default."""
    return {name: value for name, value in fields.items() if value is not None and value is not False}


def check_text(name: str, value: object) -> str:
    """Return a string that is not blank; raises TypeError or ValueError."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, got {type(value).__name__}")
    if not value.strip():
        raise ValueError(f"{name} must not be empty")
    return value


def check_optional_text(name: str, value: object) -> str | None:
    """Return None, or a string that is not blank."""
    return None if value is None else check_text(name, value)


def check_path(name: str, value: object) -> str:
    """Return a path as text."""
    return check_text(name, os.fspath(value) if isinstance(value, os.PathLike) else value)


def check_number(name: str, value: object) -> None:
    """Raise TypeError or ValueError unless the value is a number above zero."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    if not value > 0:
        raise ValueError(f"{name} must be above zero, got {value}")


def check_choice(name: str, value: object, choices: Iterable[object]) -> None:
    """Raise ValueError unless the value is one of the choices."""
    allowed = list(choices)
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def check_mapping(name: str, value: object) -> dict[str, Any]:
    """Return a dict whose keys are strings; raises TypeError."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a dict, got {type(value).__name__}")
    if wrong := [key for key in value if not isinstance(key, str)]:
        raise TypeError(f"the keys of {name} must be strings, got {wrong[0]!r}")
    return dict(value)
