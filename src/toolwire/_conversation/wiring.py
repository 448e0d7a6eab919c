"""The one place where options, transport, session and handlers meet.

Turns options into a command or takes the user's transport, makes the table of handlers for the CLI's requests,
starts and initializes the CLI, and cleans up after a start that failed. `client`, `reply` and `warm` are built
on it.
"""

import os
import sys
import warnings
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final

import anyio

from toolwire._conversation.session import Session
from toolwire._protocol.control import Handler
from toolwire._protocol.lines import DEFAULT_LIMIT
from toolwire._protocol.run import DEFAULT_CEILING
from toolwire._support.log import logger_for
from toolwire._support.secrets import keep_secret, secret_values
from toolwire._support.tasks import Task, maybe_await, shield, spawn
from toolwire._support.tracing import is_tracing_wanted
from toolwire._support.waiting import Future
from toolwire._transport.base import Pipe
from toolwire._transport.custom import Transport, TransportPipe
from toolwire._transport.find_cli import find_cli, parse_version, version_warning
from toolwire._transport.live_guard import refuse_live_start
from toolwire._transport.process import Command, process_pipe
from toolwire._version import __version__
from toolwire.errors import CanUseToolShadowedWarning, CLIConnectionError, OptionsError
from toolwire.hooks.registry import RegisteredHook, blocks_on_failure, register
from toolwire.options import command_line
from toolwire.options.agent_options import ClaudeAgentOptions, OnElicitation, OnUserDialog, prepare
from toolwire.options.checks import check_paths
from toolwire.options.mcp_servers import check_servers, get_policies, split_servers
from toolwire.permissions import CanUseTool
from toolwire.permissions.types import context_from_wire, result_to_wire

if TYPE_CHECKING:
    from pathlib import Path

    from toolwire._conversation.mcp_router import McpRouter
    from toolwire._conversation.observe import RunInfo, RunObserver, RunObservers
    from toolwire._conversation.reading import Reader
    from toolwire._transport.private_files import PrivateFiles
    from toolwire.messages import AnyMessage
    from toolwire.sessions.mirror import Mirror

logger = logger_for("client")

Prompt = str | AsyncIterable[dict[str, Any]]

_CLEAN_UP: Final = 5.0  # seconds for the user's prompt generator to clean up
_OBSERVE: Final = "toolwire._conversation.observe"
_OWN_SERVERS: Final = "toolwire.tools.server"
_LAST_TURNS: Final = 100  # turns of the event loop to finish writing after a transport's reading has ended
_LAST_REPORTS: Final = 2.0  # seconds to wait for the last transcript reports of a user's transport
_MIN_INITIALIZE: Final = 60.0
_INITIALIZE_VARIABLE: Final = "CLAUDE_CODE_STREAM_CLOSE_TIMEOUT"
_CEILING_VARIABLE: Final = "CLAUDE_CODE_PRINT_BG_WAIT_CEILING_MS"
_VERBATIM_SINCE: Final = (2, 1, 248)
_warned: set[str] = set()  # warnings about CLI versions that were logged; each is logged once


class Conversation:
    """One session with a CLI, from start to end."""

    replacement: ClassVar["type[Conversation] | None"] = None
    """A subclass to use instead. Alias mode sets it for libraries that patch internals of the official package."""

    def __new__(cls, *_: Any) -> "Conversation":  # noqa: PYI034 - it may be a subclass
        return object.__new__(cls.replacement or cls)

    def __init__(self, options: ClaudeAgentOptions, transport: Transport | None = None) -> None:
        self.options = options
        self.info: dict[str, Any] | None = None
        """The CLI's response to `initialize`; None before that."""
        self._transport = transport
        self._files: PrivateFiles | None = None
        self._session: Session | None = None
        self._reader: Reader  # from `open()` on
        self._handlers: dict[str, Handler] = {}
        self._servers: McpRouter | None = None
        self._feeder: Task | None = None
        self._fed: Future[None] = Future()  # set when the feeder has ended
        self._input_error: Exception | None = None
        self._mcp_servers = _copy_servers(options.mcp_servers)
        self._observers: RunObservers | None = None
        self._mirror: Mirror | None = None
        self._mirroring: Task | None = None
        self._resumed_from: Path | None = None

    @property
    def session(self) -> Session:
        """The session; `CLIConnectionError` before `open()`."""
        if self._session is None:
            raise CLIConnectionError("Not connected. Call connect() first.")
        return self._session

    @property
    def servers(self) -> "McpRouter":
        """The router to the in-process servers. Its modules are loaded with the first server."""
        if self._servers is None:
            from toolwire._conversation.mcp_router import McpRouter  # noqa: PLC0415 - not needed without tools
            from toolwire.tools.elicitation import ClientCallbacks  # noqa: PLC0415 - as above

            options = self.options
            self._servers = McpRouter(
                ClientCallbacks(options.on_elicitation, options.on_sampling, options.roots)
            )
            self._add_handler("mcp_message", self._servers.handle)
            if self._session is not None:
                self._servers.attach(self._session)
        return self._servers

    async def open(self) -> None:
        """Start the CLI and initialize it. After an exception nothing is left behind."""
        options = self.options = prepare(self.options)
        self._mcp_servers = _copy_servers(options.mcp_servers)
        if (warning := command_line.explain_shadowing(options)) is not None:
            warnings.warn(warning, CanUseToolShadowedWarning, stacklevel=3)
        hooks_config, hooks = register(options.hooks or {})
        instances, configs = split_servers(options.mcp_servers)
        keep_secret(secret_values([configs or options.mcp_servers, *_more_secrets(options)]))
        env: dict[str, str] = {}
        if self._transport is None:
            env = command_line.build_environment(options, os.environ, __version__)
        env = self._start_observers(env)
        for name, handler in make_handlers(options, hooks).items():
            self._add_handler(name, handler)
        try:
            self._connect(instances, own=False)  # their errors are raised before the CLI starts
            if options.session_store is not None:
                options = self.options = await self._use_store(options, env)
            self._session = Session(
                self._pipe(env),
                self._handlers,
                limit=options.max_buffer_size or DEFAULT_LIMIT,
                ceiling=_ceiling(options.env),
                on_stderr=options.stderr,
                close_timeout=options.close_timeout,
                tap=None if self._observers is None else self._observers.tap,
                on_transcript=None if self._mirror is None else self._mirror.add,
            )
            if self._servers is not None:
                self._servers.attach(self._session)
            await self._session.open()
            self._connect(instances, own=True)  # loads many modules: done while the CLI starts
            from toolwire._conversation.reading import Reader  # noqa: PLC0415 - slow to load: done while the CLI starts

            if hooks or (self._servers is not None and self._servers.limits_time):
                anyio.CancelScope()  # loads anyio's event loop now, not while the CLI waits for the first call
            self._reader = Reader(
                self._session,
                everything=options.include_all_messages,
                before_result=None if self._mirror is None else self._mirror.flush,
            )
            request = command_line.build_initialize_request(options, hooks_config)
            self.info = await self._session.request(request, _initialize_timeout(options))
            if self._files is not None:  # the CLI reads the configuration once, before its first response
                self._files.remove(command_line.MCP_CONFIG)
            _check_initialized(options, hooks_config, self.info)
        except BaseException as error:
            if self._observers is not None:
                self._observers.error = error
            await self.aclose()
            raise

    def _connect(self, instances: Mapping[str, Any], *, own: bool) -> None:
        """Connect the servers that are plain `ToolServer`s (`own`), or all others."""
        for name, instance in instances.items():
            if (type(instance).__module__ == _OWN_SERVERS) is own:
                self.servers.add(name, instance)

    def _start_observers(self, env: dict[str, str]) -> dict[str, str]:
        """Start the observers of this run. Returns the environment for the CLI, which they may have changed."""
        traced = is_tracing_wanted(self.options.tracing)
        if not traced and self.options.on_frame is None and _OBSERVE not in sys.modules:
            return env  # the module is not loaded, so no observer was added
        from toolwire._conversation.observe import RunInfo, observe_run  # noqa: PLC0415 - few runs are observed

        run = RunInfo(self.options, env)
        self._observers = observe_run(run, *([_start_spans] if traced else []))
        return run.env

    async def _use_store(self, options: ClaudeAgentOptions, env: Mapping[str, str]) -> ClaudeAgentOptions:
        """Fetch the conversation to resume from the session store, and start mirroring this one to it."""
        from toolwire.sessions import mirror, resume, spool  # noqa: PLC0415 - not needed without a store

        starts_cli = self._transport is None
        is_local = starts_cli and options.spawn_claude_code_process is None
        fetched = resume.Fetched(options)
        if starts_cli:
            fetched = await resume.fetch_session(options, env, is_local=is_local)
        self._resumed_from = fetched.folder
        self._mirror = mirror.Mirror(
            options.session_store,
            eager=options.session_store_flush == "eager",
            timeout=options.session_store_timeout_ms / 1000,
            close_timeout=options.session_store_close_timeout_ms / 1000,
            report=self._report,
            project_keys=fetched.project_keys,
            spool=spool.Spool(options.session_store_spool),
            is_local=is_local,
        )
        self._mirroring = spawn(self._mirror.run)
        return fetched.options

    def _add_handler(self, subtype: str, handler: Handler) -> None:
        observers = self._observers
        self._handlers[subtype] = handler if observers is None else observers.wrap(subtype, handler)

    def send_prompt(self, prompt: str, session_id: str) -> None:
        """Send one prompt without waiting."""
        verbatim = self.options.verbatim_prompts
        self.session.prompt(command_line.build_user_message(prompt, session_id, verbatim))

    async def send_stream(
        self, prompts: AsyncIterable[dict[str, Any]], session_id: str | None = None
    ) -> None:
        """Send prompts as they are yielded. A message without a session id gets `session_id`."""
        verbatim = {"client_composed": True} if self.options.verbatim_prompts else {}
        try:
            with self.session.prompt_stream():
                async for message in prompts:
                    if not isinstance(message, dict):
                        raise TypeError(
                            f"a streamed prompt must yield message dicts, got {type(message).__name__}"
                        )
                    frame = message if session_id is None else {"session_id": session_id, **message}
                    self.session.prompt({**frame, **verbatim})
                    await self.session.drain()
        finally:
            if isinstance(prompts, AsyncGenerator):  # its clean-up must not wait for the garbage collector
                with anyio.move_on_after(_CLEAN_UP, shield=True):
                    await prompts.aclose()

    async def feed(self, prompt: Prompt | None, session_id: str, *, end: bool) -> None:
        """Send a prompt, or start sending a stream. With `end`, or with a stream, the input ends after the run."""
        if isinstance(prompt, str):
            self.send_prompt(prompt, session_id)
        if end or not (prompt is None or isinstance(prompt, str)):
            fed = self._fed = Future()
            stream = None if isinstance(prompt, str) else prompt
            self._feeder = spawn(self._feed, stream, on_done=lambda: fed.set(None))
        if isinstance(prompt, str):
            await self.session.flush()

    async def _feed(self, prompts: AsyncIterable[dict[str, Any]] | None) -> None:
        try:
            if prompts is not None:
                await self.send_stream(prompts)
        except Exception as error:  # noqa: BLE001 - the user's generator: raised again where the messages are read
            self._input_error = error
            if self._observers is not None:
                self._observers.error = error
        await self.session.end_input_when_over()
        await self.session.wait_for_exit()

    async def set_servers(self, servers: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the MCP servers of the running session. In-process ones that stay keep their connection."""
        check_servers(servers)
        old, _ = split_servers(self._mcp_servers)
        new, configs = split_servers(servers)
        keep_secret(secret_values(configs))
        replaced = [name for name, server in old.items() if name in new and new[name] is not server]
        for name in replaced:
            self.servers.remove(name)
        added = [name for name, server in new.items() if old.get(name) is not server]
        for name in added:
            self.servers.add(name, new[name])
        for name, server in new.items():
            if tools := get_policies(server):
                configs[name]["tools"] = tools
        try:
            if replaced:
                # The CLI does the MCP handshake only for names that are new to it: remove the old servers first.
                rest = {name: config for name, config in configs.items() if name not in replaced}
                await self._request_servers(rest)
            response = await self._request_servers(configs)
        except BaseException:
            for name in added:
                self.servers.remove(name)
            raise
        for name in old.keys() - new.keys():
            self.servers.remove(name)
        self._mcp_servers = dict(servers)
        return response

    async def _request_servers(self, configs: Mapping[str, Any]) -> dict[str, Any]:
        body = {"subtype": "mcp_set_servers", "servers": configs}
        return await self.session.request(body, self.options.control_timeout)

    @property
    def mcp_servers(self) -> dict[str, Any]:
        """The current servers by name; raises `OptionsError` if they were given as a file or JSON text."""
        if not isinstance(self._mcp_servers, Mapping):
            raise OptionsError(
                "mcp_servers was given as a file or JSON text: use set_mcp_servers() to replace them all",
                "mcp_servers",
            )
        return dict(self._mcp_servers)

    def include_all(self) -> None:
        """From now on, return all messages, as with `include_all_messages`."""
        self._reader.everything = True

    @property
    def take_message(self) -> "Callable[[], AnyMessage | None]":
        """A function that returns the next message if that needs no waiting, else None. Saves an `await` each."""
        return self._reader.take

    async def next_message(self, *, of_response: bool = False) -> "AnyMessage | None":
        """Wait for the next message and return it; None at the end.

        With `of_response`, raises `CLIConnectionError` when no result is due, instead of waiting forever.
        """
        message = await self._reader.wait(of_response=of_response)
        if message is None and self._input_error is not None:
            error, self._input_error = self._input_error, None
            raise error
        return message

    async def _finish_writing(self) -> None:
        """Let pending prompts and responses be written to a transport whose reading has ended."""
        with anyio.CancelScope(shield=True):
            for _ in range(_LAST_TURNS):
                if not self.session.handling and (self._feeder is None or self._fed.is_set):
                    break
                await anyio.sleep(0)  # noqa: ASYNC115 - anyio.lowlevel would be loaded before the CLI starts

    async def aclose(self) -> bool:
        """End everything in bounded time. Returns True when it has ended.

        Called from a tool, hook or callback of this conversation, it returns False at once, because closing waits
        for that call: it is cancelled with the others at its next `await`.
        """
        if self._session is not None and self._session.called_by_handler():
            with suppress(RuntimeError):  # trio is shutting down and takes no new tasks: close in this one
                spawn(self._close)
                if self._feeder is not None:
                    self._feeder.cancel()
                await self._session.begin_closing()  # before the handler can return a result
                return False
        await self._close()
        return True

    async def _close(self) -> None:
        """Run every step, even if an earlier one is cancelled."""
        try:
            if self._session is not None and self._session.still_writable:
                await self._finish_writing()
        finally:
            await self._close_all()

    async def _close_all(self) -> None:
        try:
            if self._feeder is not None:
                self._feeder.cancel()
                with shield():
                    await self._fed.wait(_CLEAN_UP)
        finally:
            try:
                if self._session is not None:
                    await self._session.aclose()
            finally:
                if self._files is not None:
                    self._files.remove()
                try:
                    await self._finish_mirror()
                finally:
                    if self._observers is not None:
                        self._observers.end(None if self._session is None else self._session.error)
                    if self._servers is not None:
                        await self._servers.aclose()

    def _report(self, frame: dict[str, Any]) -> None:
        """Add an error message of the session store before a result that may be waiting for it."""
        self.session.inject(frame, first=True)

    async def _finish_mirror(self) -> None:
        """Store the CLI's last transcript reports, in bounded time. Only `Task.cancel()` interrupts it."""
        mirror, self._mirror = self._mirror, None
        if mirror is not None and self._mirroring is not None:
            try:
                with shield():
                    is_stored = await mirror.finish()
            finally:
                self._mirroring.cancel()
            if is_stored and self._resumed_from is not None:
                from toolwire.sessions.resume import remove_folder  # noqa: PLC0415 - as above

                remove_folder(self._resumed_from)

    def _to_file(self, name: str, text: str) -> str:
        if self._files is None:
            from toolwire._transport.private_files import PrivateFiles  # noqa: PLC0415 - few sessions need a file

            self._files = PrivateFiles(self.options.user)
        return self._files.add(name, text)

    def _pipe(self, env: dict[str, str]) -> Pipe:
        # Only a session store needs the last reports of the CLI.
        patience = 0.0 if self._mirror is None else self.options.close_timeout
        if self._transport is not None:
            return TransportPipe(self._transport, patience=min(patience, _LAST_REPORTS))
        command = make_command(self.options, env, self._to_file)
        spawner = self.options.spawn_claude_code_process
        if spawner is None:
            return process_pipe(command)
        transport = spawner(command)
        if not all(
            hasattr(transport, verb) for verb in ("connect", "write", "read_messages", "close", "end_input")
        ):
            raise TypeError(
                f"spawn_claude_code_process must return a Transport, got {type(transport).__name__}"
            )
        return TransportPipe(transport, exits=True, patience=patience)


def make_command(
    options: ClaudeAgentOptions, env: dict[str, str], to_file: Callable[[str, str], str]
) -> Command:
    """Return the command that starts the CLI. Checks paths and environment first, unless a spawner starts it."""
    here = options.spawn_claude_code_process is None
    if here:
        check_paths(options)
        refuse_live_start(env)
    keep_secret(secret_values(env))
    # A spawner may start it elsewhere, with no CLI on this machine.
    cli = find_cli(options.cli_path) if here else os.fspath(options.cli_path or "claude")
    argv = command_line.build_command(options, cli, to_file)
    cwd = os.fspath(options.cwd) if options.cwd else None
    return Command(argv, env, cwd, options.user, options.close_timeout)


def _start_spans(run: "RunInfo") -> "RunObserver | None":
    from toolwire._conversation.spans import start_spans  # noqa: PLC0415 - loads OpenTelemetry

    return start_spans(run)


def _more_secrets(options: ClaudeAgentOptions) -> list[Any]:
    """List the options besides `env` and `mcp_servers` that can hold secrets."""
    agents = [getattr(agent, "mcpServers", None) for agent in (options.agents or {}).values()]
    given = [options.settings, options.managed_settings, options.extra_args, options.sandbox, agents]
    return [each if isinstance(each, Mapping | list) else os.fspath(each) for each in given if each]


def check_prompt(prompt: object) -> None:
    """Raise TypeError, before anything is started, unless a prompt is text or an async iterable."""
    if not isinstance(prompt, str) and not isinstance(prompt, AsyncIterable):
        raise TypeError(
            f"prompt must be a string or an async iterable of message dicts, got {type(prompt).__name__}"
        )


def _check_initialized(
    options: ClaudeAgentOptions, hooks: dict[str, Any] | None, info: dict[str, Any]
) -> None:
    """Raise if the CLI would silently ignore a blocking hook; log a warning if it lacks something else."""
    has_guards = blocks_on_failure(hooks)
    if has_guards and not info.get("hook_on_failure_supported"):
        raise CLIConnectionError(
            'This Claude Code does not support on_failure for hooks, so a hook with on_failure="block" that fails '
            "would block nothing. Update Claude Code, or remove on_failure."
        )
    if has_guards and info.get("hooks_applied") is False:
        raise CLIConnectionError(
            'This session was already running and did not register the hooks, so one with on_failure="block" '
            "would never run. Start a new session, or remove on_failure."
        )
    version = info.get("claude_code_version")
    if (text := version_warning(version)) and text not in _warned:
        _warned.add(text)
        logger.warning("%s", text)
    numbers = parse_version(version)
    if options.verbatim_prompts and (numbers is None or numbers < _VERBATIM_SINCE):
        logger.warning(
            "verbatim_prompts has no effect with Claude Code %s: it needs %s",
            version or "of unknown version",
            ".".join(map(str, _VERBATIM_SINCE)),
        )


def _initialize_timeout(options: ClaudeAgentOptions) -> float:
    if options.initialize_timeout is not None:
        return options.initialize_timeout
    milliseconds = os.environ.get(_INITIALIZE_VARIABLE, "")
    return max(_MIN_INITIALIZE, int(milliseconds) / 1000) if milliseconds.isdigit() else _MIN_INITIALIZE


def _ceiling(own: Mapping[str, str]) -> float | None:
    """Return how many seconds a finished turn may wait for background work; None (0 in the variable): forever."""
    text = own.get(_CEILING_VARIABLE, os.environ.get(_CEILING_VARIABLE, ""))
    return (int(text) / 1000 or None) if text.isdigit() else DEFAULT_CEILING


def make_handlers(options: ClaudeAgentOptions, hooks: Mapping[str, RegisteredHook]) -> dict[str, Handler]:
    """Make the table of handlers for the CLI's requests, for a session with these options and registered hooks.

    Each handler turns the body of a request into the arguments of a user's callback, and the callback's return
    value into the response.
    """
    table: dict[str, Handler] = {"elicitation": _elicitation(options.on_elicitation)}
    if options.can_use_tool is not None:
        table["can_use_tool"] = _permission(options.can_use_tool)
    if hooks:
        from toolwire.hooks import calling  # noqa: PLC0415 - not needed without hooks

        table["hook_callback"] = calling.make_handler(hooks)
    if options.on_user_dialog is not None:
        table["request_user_dialog"] = _dialog(options.on_user_dialog)
    return table


def _permission(decide: CanUseTool) -> Handler:
    async def handle(body: dict[str, Any]) -> dict[str, Any]:
        given = body.get("input")
        tool_input: dict[str, Any] = given if isinstance(given, dict) else {}
        decision = await maybe_await(
            decide(str(body.get("tool_name", "")), tool_input, context_from_wire(body))
        )
        return result_to_wire(decision, tool_input)

    return handle


def _elicitation(callback: OnElicitation | None) -> Handler:
    async def handle(body: dict[str, Any]) -> dict[str, Any]:
        from toolwire.tools.elicitation import ElicitationRequest, answer_elicitation  # noqa: PLC0415 - rare

        request = ElicitationRequest(
            server=str(body.get("mcp_server_name", "")),
            message=str(body.get("message", "")),
            mode=body.get("mode", "form"),
            schema=body.get("requested_schema"),
            url=body.get("url"),
            elicitation_id=body.get("elicitation_id"),
            raw=body,
        )
        return await answer_elicitation(callback, request)

    return handle


def _dialog(show: OnUserDialog) -> Handler:
    async def handle(body: dict[str, Any]) -> dict[str, Any]:
        response = await maybe_await(show(body))
        if not isinstance(response, dict):
            raise TypeError(f"on_user_dialog must return a dict, got {type(response).__name__}")
        return response

    return handle


def _copy_servers(servers: Any) -> Any:
    """Copy a mapping of servers, so that `set_servers` notices later changes in the user's own dict."""
    return dict(servers) if isinstance(servers, Mapping) else servers
