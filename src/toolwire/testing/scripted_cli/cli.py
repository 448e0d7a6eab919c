"""`ScriptedCLI`: the CLI's side of the protocol in memory, for tests that take milliseconds.

Owns the interface for tests: the options, the records, the assertions. Each connection is a `ScriptedConnection`,
which corresponds to one process of the real CLI: it starts, ends, and responds to the host's control requests. All
connections share the script. `agent` plays the turns; `host` communicates with the MCP servers.

    cli = ScriptedCLI([call("mcp__calc__add", a=15, b=27), say("42")])
    options = ClaudeAgentOptions(mcp_servers={"calc": calc}, spawn_claude_code_process=cli)
    reply = await run("What is 15 + 27?", options=options)
    cli.assert_called("add", a=15)
    cli.assert_finished()
"""

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import anyio

from toolwire._support.tasks import Task, spawn
from toolwire._support.waiting import Mailbox
from toolwire._transport.custom import Transport
from toolwire._transport.find_cli import TESTED
from toolwire.errors import CLIConnectionError, ProcessError
from toolwire.testing.script import Scene, find_call
from toolwire.testing.scripted_cli.agent import Agent, EarlyExit
from toolwire.testing.scripted_cli.host import (
    DEFAULT_MODEL,
    HostChannel,
    MCPServers,
    Playback,
    Settings,
    ToolCall,
)

if TYPE_CHECKING:
    from toolwire._transport.process import Command


class ScriptedCLI(Transport):
    """Plays a script as the Claude Code CLI would, without a process, a model or a network.

    Pass it as `ClaudeAgentOptions(spawn_claude_code_process=cli)`: it then follows the options as the real CLI
    does (servers, permissions, structured output, ...), for any number of connections. It is also a `Transport`
    for one connection; a transport gets no command line, so pass the flags to follow as `argv`.

    - `allow`: run every tool without asking for permission, whatever the options say.
    - `tools`: functions in place of built-in tools, by name (`{"Bash": lambda command: "ok"}`). There are no other
      built-in tools.
    - `transcripts`: write the conversation to the same place as the real CLI, and only resume conversations that
      exist there. Set `CLAUDE_CONFIG_DIR` in the options' `env`, so that a test does not write to your own history.
      A `session_store` gets the conversation in any case.
    """

    def __init__(
        self,
        script: Iterable[Scene] = (),
        *,
        allow: bool = False,
        tools: Mapping[str, Callable[..., Any]] | None = None,
        argv: Sequence[str] = (),
        transcripts: bool = False,
    ) -> None:
        self._playback = Playback(script, allow=allow, tools=dict(tools or {}))
        self._argv = argv
        self._transcripts = transcripts
        self._own: ScriptedConnection | None = None

    def __call__(self, command: "Command") -> Transport:
        """Make a connection, for `spawn_claude_code_process`."""
        return self._make(command.argv, command.cwd, command.env)

    def _make(
        self, argv: Sequence[str], cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> "ScriptedConnection":
        settings = Settings.parse(argv, cwd, env)
        settings.writes_files = self._transcripts
        return ScriptedConnection(settings, self._playback)

    # --- the records ---

    @property
    def calls(self) -> list[ToolCall]:
        """The tool calls so far, in the order in which they ended."""
        return list(self._playback.calls)

    @property
    def prompts(self) -> list[str]:
        """The prompts so far."""
        return list(self._playback.prompts)

    @property
    def remaining(self) -> list[Scene]:
        """The entries of the script that have not been played yet."""
        return list(self._playback.script)

    def assert_called(self, name: str, /, **arguments: Any) -> ToolCall:
        """Return the first call of a tool with at least these arguments. Raises `AssertionError` if there is none.

        The name is bare (`add`) or full (`mcp__calc__add`).
        """
        calls = self._playback.calls
        return calls[find_call([(each.name, each.input) for each in calls], name, arguments)]

    def assert_finished(self) -> None:
        """Raise `AssertionError` unless the script was played exactly to its end and nothing is pending."""
        lines = [f"not played: {step!r}" for step in self._playback.script]
        lines += [f"not expected: {problem}" for problem in self._playback.unexpected]
        lines += [f"pending: {what}" for what in self._playback.pending.values()]
        if lines:
            raise AssertionError(
                "\n".join(["the script was not followed", *lines])
            ) from self._playback.failure

    def assert_no_pending(self) -> None:
        """Raise `AssertionError` if a turn, a tool call or a request to the host has not ended."""
        if self._playback.pending:
            raise AssertionError("\n".join(["still pending:", *self._playback.pending.values()]))

    # --- a transport, for one connection at a time ---

    async def connect(self) -> None:
        """Start the CLI. It can be started again after `close()`."""
        if self._own is not None:
            raise CLIConnectionError(
                "this scripted CLI is already connected; for several connections, "
                "pass it as spawn_claude_code_process instead of transport"
            )
        self._own = self._make(("claude", *self._argv))
        await self._own.connect()

    async def write(self, data: str) -> None:
        """Process lines that the real CLI would read from its standard input."""
        await self._connection.write(data)

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Iterate over the frames until the CLI exits. Raises `ProcessError` if its exit code is not 0."""
        return self._connection.read_messages()

    async def close(self) -> None:
        """Stop the CLI at once."""
        own, self._own = self._own, None
        if own is not None:
            await own.close()

    def is_ready(self) -> bool:
        """Return True if the CLI is running and its input has not ended."""
        return self._own is not None and self._own.is_ready()

    async def end_input(self) -> None:
        """End the input. The CLI finishes the turn, then exits."""
        await self._connection.end_input()

    @property
    def _connection(self) -> "ScriptedConnection":
        if self._own is None:
            raise CLIConnectionError("the scripted CLI is not connected")
        return self._own


_MODES: Final = ("default", "acceptEdits", "plan", "dontAsk", "auto", "bypassPermissions")
_ACCEPTED: Final = frozenset(  # control requests that get an empty response
    {
        *("set_max_thinking_tokens", "mcp_toggle", "apply_flag_settings", "stop_task", "background_tasks"),
        *("set_has_subscribers", "seed_read_state", "reload_plugins", "reload_skills", "rename_session"),
        *("set_prompt_suggestions_paused", "get_context_usage", "get_usage", "get_settings", "list_models"),
        *("get_session_cost", "get_status", "cancel_async_message", "rewind_files", "read_file"),
    }
)


class ScriptedConnection(Transport):
    """A `Transport` with a scripted CLI at the other end. It can be connected once."""

    def __init__(self, settings: Settings, playback: Playback) -> None:
        self._host = HostChannel(settings, playback)
        self._servers = MCPServers(self._host)
        self._agent = Agent(self._host, self._servers)
        self._prompts: Mailbox[dict[str, Any]] = Mailbox()
        self._task: Task | None = None
        self._task_ended = anyio.Event()
        self._exited = False
        self._error: Exception | None = None

    async def connect(self) -> None:
        """Start the CLI."""
        if self._task is not None:
            raise CLIConnectionError(
                "this connection to the scripted CLI was already used; make a new one for each client"
            )
        self._task = spawn(self._run, on_done=self._task_ended.set)

    async def write(self, data: str) -> None:
        """Process lines that the real CLI would read from its standard input."""
        for line in filter(str.strip, data.split("\n")):
            if self._exited or self._host.input_ended:
                return
            try:
                frame = json.loads(line)
            except ValueError:
                # The real CLI exits too. It makes a host that writes garbage fail visibly.
                self._exit(1, "Error parsing streaming input line: SyntaxError")
                return
            if isinstance(frame, dict):
                self._receive(frame)

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the frames until the CLI exits. Raises `ProcessError` if its exit code is not 0."""
        async for frame in self._host.frames:
            yield frame
        if self._error is not None:
            raise self._error

    async def close(self) -> None:
        """Stop the CLI at once."""
        self._exit(0)
        if self._task is not None:
            self._task.cancel()
            with anyio.CancelScope(shield=True):
                await self._task_ended.wait()

    def is_ready(self) -> bool:
        """Return True if the CLI is running and its input has not ended."""
        return self._task is not None and not self._exited and not self._host.input_ended

    async def end_input(self) -> None:
        """End the input. The CLI finishes the turn without responses from the host, then exits."""
        self._host.end_input()
        self._prompts.close()

    async def _run(self) -> None:
        code = 1
        try:
            async with anyio.create_task_group() as group:
                self._host.tasks = group
                self._servers.initialize()
                code = await self._serve()
                group.cancel_scope.cancel()
        finally:
            self._host.tasks = None
            self._exit(code)

    async def _serve(self) -> int:
        is_found = self._agent.resume()
        async for prompt in self._prompts:
            if not is_found:
                self._agent.refuse_resume()
                return 1
            try:
                await self._agent.run_turn(prompt)
            except EarlyExit as early:
                return early.code
        self._agent.end()
        return int(self._agent.failed)

    def _exit(self, code: int, stderr: str | None = None) -> None:
        if not self._exited:
            self._exited = True
            if code:
                self._error = ProcessError("Claude Code failed", exit_code=code, stderr=stderr)
            self._host.frames.close()

    def _receive(self, frame: dict[str, Any]) -> None:
        match frame.get("type"):
            case "control_request":
                body = frame.get("request")
                response = self._respond(body if isinstance(body, dict) else {})
                response = {"request_id": frame.get("request_id"), **response}
                self._host.emit({"type": "control_response", "response": response})
            case "control_response":
                self._host.receive_response(frame.get("response") or {})
            case "user":
                self._prompts.put(frame)

    def _respond(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: C901, PLR0911 - one case for each
        """Execute a control request. Returns the response without its id."""
        settings = self._host.settings
        match body.get("subtype"):
            case "initialize":
                return _success(self._initialize(body))
            case "interrupt":
                self._agent.interrupt()
                return _success({"still_queued": []})
            case "set_model":
                settings.model = body.get("model") or DEFAULT_MODEL
                return _success({"model": settings.model})
            case "set_permission_mode":
                return self._set_mode(body.get("mode"))
            case "mcp_status":
                return _success({"mcpServers": self._servers.describe_status()})
            case "mcp_set_servers":
                servers = body.get("servers") or {}
                wanted = [name for name, each in servers.items() if each.get("type") == "sdk"]
                added, removed = self._servers.replace(wanted)
                return _success({"added": added, "removed": removed, "errors": {}})
            case "mcp_message":
                self._servers.receive(body.get("server_name"), body.get("message"))
                return {"subtype": "success"}
            case "end_session":
                self._host.start_task(self.end_input)
                return _success({})
            case "get_binary_version":
                return _success({"version": TESTED})
            case str(subtype) if subtype in _ACCEPTED:
                return _success({})
            case subtype:
                shown = "undefined" if subtype is None else subtype
                return _error(f"Unsupported control request subtype: {shown}", "unsupported_request")

    def _initialize(self, body: dict[str, Any]) -> dict[str, Any]:
        settings = self._host.settings
        self._host.hooks.update(body.get("hooks") or {})
        if body.get("jsonSchema"):
            settings.schema = body["jsonSchema"]
        self._servers.add(body.get("sdkMcpServers") or [])
        return {
            "commands": [],
            "agents": [],
            "output_style": "default",
            "available_output_styles": ["default"],
            "models": [{"value": "default", "displayName": "Default", "description": "scripted"}],
            "account": {"tokenSource": "none", "apiKeySource": "none", "apiProvider": "firstParty"},
            "claude_code_version": TESTED,
            "current_permission_mode": settings.mode,
            "hook_on_failure_supported": True,
            "hooks_applied": True,
            "session_state": "idle",
            "capabilities": [],
        }

    def _set_mode(self, mode: Any) -> dict[str, Any]:
        settings = self._host.settings
        if mode not in _MODES:
            return _error(f"Invalid permission mode: {mode}", "invalid_mode")
        if mode == "bypassPermissions" and settings.mode != mode:
            return _error(
                "Cannot set permission mode to bypassPermissions: not launched with --dangerously-skip-permissions",
                "bypass_not_launched",
            )
        settings.mode = mode
        self._agent.report_mode()
        return _success({"mode": mode})


def _success(response: dict[str, Any]) -> dict[str, Any]:
    return {"subtype": "success", "response": response}


def _error(text: str, code: str) -> dict[str, Any]:
    return {"subtype": "error", "error": text, "error_code": code}
