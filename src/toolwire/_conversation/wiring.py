"""The one place where options, transport, session and handlers meet.

Turns options into a command or takes the user's transport, fills the table of handlers, starts and initializes the
CLI, and cleans up after a start that failed. `client`, `reply` and `warm` are built on it.
"""

import os
import warnings
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import anyio

from toolwire._conversation.handlers import make_handlers
from toolwire._conversation.observe import Taps, Tracer, shorten_for, start_tracer
from toolwire._conversation.session import Session
from toolwire._protocol.control import Handler
from toolwire._protocol.lines import DEFAULT_LIMIT
from toolwire._protocol.parse import parse
from toolwire._protocol.run import DEFAULT_CEILING
from toolwire._support.log import keep_secret, logger_for
from toolwire._support.secrets import secret_values
from toolwire._support.tasks import Task, spawn
from toolwire._transport.base import Pipe
from toolwire._transport.custom import Transport, TransportPipe
from toolwire._transport.find_cli import find_cli, parse_version, version_warning
from toolwire._transport.live_guard import refuse_live_start
from toolwire._transport.process import Command, process_pipe
from toolwire._version import __version__
from toolwire.errors import CanUseToolShadowedWarning, CLIConnectionError, OptionsError
from toolwire.hooks.registry import blocks_on_failure, register
from toolwire.messages import EXTRA_MESSAGES, AnyMessage
from toolwire.options import command_line as _argv
from toolwire.options.agent_options import ClaudeAgentOptions
from toolwire.options.checks import check_paths
from toolwire.options.mcp_servers import check_servers, get_policies, split_servers

if TYPE_CHECKING:
    from toolwire._conversation.mcp_router import McpRouter
    from toolwire._transport.private_files import PrivateFiles

logger = logger_for("client")

Prompt = str | AsyncIterable[dict[str, Any]]

_CLEAN_UP: Final = 5.0  # seconds that the user's own generator gets
_MIN_INITIALIZE: Final = 60.0
_INITIALIZE_VARIABLE: Final = "CLAUDE_CODE_STREAM_CLOSE_TIMEOUT"
_CEILING_VARIABLE: Final = "CLAUDE_CODE_PRINT_BG_WAIT_CEILING_MS"
_VERBATIM_SINCE: Final = (2, 1, 248)
_warned: set[str] = set()  # texts about versions of the CLI, each logged once


class Conversation:
    """One session with a CLI, from start to end."""

    def __init__(self, options: ClaudeAgentOptions, transport: Transport | None = None) -> None:
        self.options = options
        self.info: dict[str, Any] | None = None
        """The CLI's response to `initialize`; None before that."""
        self._transport = transport
        self._files: PrivateFiles | None = None
        self._session: Session | None = None
        self._handlers: dict[str, Handler] = {}
        self._servers: McpRouter | None = None
        self._feeder: Task | None = None
        self._fed: anyio.Event  # set when the feeder has ended
        self._input_error: Exception | None = None
        self._mcp_servers: Any = options.mcp_servers
        self._tracer: Tracer | None = None

    @property
    def session(self) -> Session:
        """The session; `CLIConnectionError` before `open()`."""
        if self._session is None:
            raise CLIConnectionError("Not connected. Call connect() first.")
        return self._session

    @property
    def servers(self) -> "McpRouter":
        """The router to the in-process servers. Tools are loaded when the first one is needed."""
        if self._servers is None:
            from toolwire._conversation.mcp_router import McpRouter  # noqa: PLC0415 - not needed without tools
            from toolwire.tools.elicitation import ClientCallbacks  # noqa: PLC0415 - as above

            options = self.options
            self._servers = McpRouter(
                ClientCallbacks(options.on_elicitation, options.on_sampling, options.roots)
            )
            handle: Handler = self._servers.handle
            self._handlers["mcp_message"] = (
                handle if self._tracer is None else self._tracer.trace("mcp_message", handle)
            )
            if self._session is not None:
                self._servers.attach(self._session)
        return self._servers

    async def open(self) -> None:
        """Start the CLI and initialize it. After an exception nothing is left behind."""
        options = self.options
        options.check()
        if (warning := _argv.explain_shadowing(options)) is not None:
            warnings.warn(warning, CanUseToolShadowedWarning, stacklevel=3)
        hooks_config, hooks = register(options.hooks or {})
        self._handlers = make_handlers(options, hooks)
        self._tracer = start_tracer()
        if self._tracer is not None:
            trace = self._tracer.trace
            self._handlers = {name: trace(name, handler) for name, handler in self._handlers.items()}
        instances, configs = split_servers(options.mcp_servers)
        keep_secret(secret_values([configs or options.mcp_servers, *_more_secrets(options)]))
        try:
            for name, instance in instances.items():
                self.servers.add(name, instance)
            self._session = Session(
                self._pipe(),
                self._handlers,
                limit=options.max_buffer_size or DEFAULT_LIMIT,
                ceiling=_ceiling(options.env),
                on_stderr=options.stderr,
                close_timeout=options.close_timeout,
                taps=Taps(
                    None if options.on_frame is None else shorten_for(options.on_frame),
                    None if self._tracer is None else self._tracer.frame,
                ),
            )
            if self._servers is not None:
                self._servers.attach(self._session)
            await self._session.open()
            request = _argv.build_initialize_request(options, hooks_config)
            self.info = await self._session.request(request, _initialize_timeout(options))
            if self._files is not None:
                self._files.remove(_argv.MCP_CONFIG)  # it is read once, before the CLI answers anything
            _check_initialized(options, hooks_config, self.info)
        except BaseException:
            await self.aclose()
            raise

    def say(self, prompt: str, session_id: str) -> None:
        """Send one prompt without waiting."""
        self.session.prompt(_argv.build_user_message(prompt, session_id, self.options.verbatim_prompts))

    async def say_all(self, prompts: AsyncIterable[dict[str, Any]], session_id: str | None = None) -> None:
        """Send prompts as they come. A message without a session id gets `session_id`."""
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

    def feed(self, prompt: Prompt | None, session_id: str, *, end: bool) -> None:
        """Start sending a prompt; with `end`, or after a stream, end the input once the run is over."""
        if isinstance(prompt, str):
            self.say(prompt, session_id)
        if end or not (prompt is None or isinstance(prompt, str)):
            self._fed = anyio.Event()
            stream = None if isinstance(prompt, str) else prompt
            self._feeder = spawn(self._feed, stream, on_done=self._fed.set)

    async def _feed(self, prompts: AsyncIterable[dict[str, Any]] | None) -> None:
        try:
            if prompts is not None:
                await self.say_all(prompts)
        except Exception as error:  # noqa: BLE001 - the user's generator: raised again where the messages are read
            self._input_error = error
        await self.session.end_input_when_over()
        await self.session.wait_for_exit()

    async def set_servers(self, servers: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the MCP servers of the running session. In-process ones that stay keep their connection."""
        check_servers(servers)
        old, _ = split_servers(self._mcp_servers)
        new, configs = split_servers(servers)
        keep_secret(secret_values(configs))
        for name in (name for name, server in old.items() if name in new and new[name] is not server):
            self.servers.remove(name)
        added = [name for name, server in new.items() if old.get(name) is not server]
        for name in added:
            self.servers.add(name, new[name])
        for name, server in new.items():
            if tools := get_policies(server):
                configs[name]["tools"] = tools
        try:
            body = {"subtype": "mcp_set_servers", "servers": configs}
            answer = await self.session.request(body, self.options.control_timeout)
        except BaseException:
            for name in added:
                self.servers.remove(name)
            raise
        for name in old.keys() - new.keys():
            self.servers.remove(name)
        self._mcp_servers = dict(servers)
        return answer

    @property
    def mcp_servers(self) -> dict[str, Any]:
        """The present servers by name; `OptionsError` if they were given as a file or JSON text."""
        if not isinstance(self._mcp_servers, Mapping):
            raise OptionsError(
                "mcp_servers was given as a file or JSON text: use set_mcp_servers to replace it",
                "mcp_servers",
            )
        return dict(self._mcp_servers)

    async def next_message(self, *, everything: bool = False, of_response: bool = False) -> AnyMessage | None:
        """Return the next message that the user wants to see, None at the end.

        With `of_response`, raises `CLIConnectionError` when no result is due, instead of waiting for ever.
        """
        everything = everything or self.options.include_all_messages
        session = self.session
        while True:
            frame = session.take()
            if frame is None and (frame := await session.next_frame(of_response=of_response)) is None:
                break
            message: AnyMessage = parse(frame) if isinstance(frame, dict) else frame
            if everything or not isinstance(message, EXTRA_MESSAGES):
                return message
        if self._input_error is not None:
            error, self._input_error = self._input_error, None
            raise error
        return None

    async def aclose(self) -> None:
        """End everything in bounded time. Each step is taken even if the one before is cancelled."""
        try:
            if self._feeder is not None:
                self._feeder.cancel()
                with anyio.move_on_after(_CLEAN_UP, shield=True):
                    await self._fed.wait()
        finally:
            try:
                if self._session is not None:
                    await self._session.aclose()
            finally:
                if self._files is not None:
                    self._files.remove()
                if self._tracer is not None:
                    self._tracer.end()
                if self._servers is not None:
                    await self._servers.aclose()

    def _to_file(self, name: str, text: str) -> str:
        if self._files is None:
            from toolwire._transport.private_files import PrivateFiles  # noqa: PLC0415 - few sessions need a file

            self._files = PrivateFiles(self.options.user)
        return self._files.add(name, text)

    def _pipe(self) -> Pipe:
        if self._transport is not None:
            return TransportPipe(self._transport)
        options = self.options
        spawner = options.spawn_claude_code_process
        if spawner is None:
            check_paths(options)
        env = _argv.build_environment(options, os.environ, __version__)
        if spawner is None:
            refuse_live_start(env)
        keep_secret(secret_values(env))
        if self._tracer is not None:
            _add_trace_context(env, options.env, self._tracer.context)
        # A spawner may start it elsewhere, with no CLI on this machine.
        cli = find_cli(options.cli_path) if spawner is None else os.fspath(options.cli_path or "claude")
        argv = _argv.build_command(options, cli, self._to_file)
        cwd = os.fspath(options.cwd) if options.cwd else None
        command = Command(argv, env, cwd, options.user, options.close_timeout)
        if spawner is None:
            return process_pipe(command)
        transport = spawner(command)
        if not all(
            hasattr(transport, verb) for verb in ("connect", "write", "read_messages", "close", "end_input")
        ):
            raise TypeError(
                f"spawn_claude_code_process must return a Transport, got {type(transport).__name__}"
            )
        return TransportPipe(transport)


def _more_secrets(options: ClaudeAgentOptions) -> list[Any]:
    """List the options besides `env` and `mcp_servers` that can hold secrets."""
    agents = [agent.mcpServers for agent in (options.agents or {}).values()]
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
    """Refuse a CLI that would silently ignore a guard; warn of one that would merely do less."""
    guards = blocks_on_failure(hooks)
    if guards and not info.get("hook_on_failure_supported"):
        raise CLIConnectionError(
            'This Claude Code does not support on_failure for hooks, so a hook with on_failure="block" that fails '
            "would block nothing. Update Claude Code, or remove on_failure."
        )
    if guards and info.get("hooks_applied") is False:
        raise CLIConnectionError(
            'This session was already running and did not take the hooks, so one with on_failure="block" would '
            "never run. Start a new session, or remove on_failure."
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


def _add_trace_context(env: dict[str, str], own: Mapping[str, str], context: Any) -> None:
    """Pass the span of the run on to the CLI."""
    from opentelemetry import propagate  # noqa: PLC0415 - optional, and only when already in use

    carrier: dict[str, str] = {}
    propagate.inject(carrier, context)
    if "traceparent" in carrier:
        fresh = {name: carrier.get(name.lower()) for name in ("TRACEPARENT", "TRACESTATE")}
        for name, value in fresh.items():
            if name not in own:
                env.pop(name, None)
                if value is not None:
                    env[name] = value


def _initialize_timeout(options: ClaudeAgentOptions) -> float:
    if options.initialize_timeout is not None:
        return options.initialize_timeout
    milliseconds = os.environ.get(_INITIALIZE_VARIABLE, "")
    return max(_MIN_INITIALIZE, int(milliseconds) / 1000) if milliseconds.isdigit() else _MIN_INITIALIZE


def _ceiling(own: Mapping[str, str]) -> float | None:
    """Return how long a finished turn may wait for background work; 0 in the variable means for ever."""
    text = own.get(_CEILING_VARIABLE, os.environ.get(_CEILING_VARIABLE, ""))
    return (int(text) / 1000 or None) if text.isdigit() else DEFAULT_CEILING
