"""`ScriptedCLI`: the CLI's side of the protocol in memory, for tests in milliseconds.

Owns what a test does with it: pass it to the options, read the records, assert. Each connection is a
`ScriptedConnection`; they share the script.

    cli = ScriptedCLI([call("mcp__calc__add", a=15, b=27), say("42")])
    options = ClaudeAgentOptions(mcp_servers={"calc": calc}, spawn_claude_code_process=cli)
    reply = await run("What is 15 + 27?", options=options)
    cli.assert_called("add", a=15)
    cli.assert_finished()
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from toolwire._support.words import closest
from toolwire._transport.custom import Transport
from toolwire.errors import CLIConnectionError
from toolwire.testing.script import Scene
from toolwire.testing.scripted_cli.connection import ScriptedConnection
from toolwire.testing.scripted_cli.host_channel import Settings
from toolwire.testing.scripted_cli.playback import Playback, ToolCall


class _Command(Protocol):
    @property
    def argv(self) -> Sequence[str]: ...
    @property
    def cwd(self) -> str | None: ...


class ScriptedCLI(Transport):
    """Plays a script as the Claude Code CLI would, without a process, a model or a network.

    Pass it as `ClaudeAgentOptions(spawn_claude_code_process=cli)`: it then follows the options as the real CLI
    does (servers, permissions, structured output, ...), for any number of connections. It is also a `Transport`
    for one connection; a transport gets no command line, so `argv` has the flags that it is to follow.

    - `allow`: run every tool without asking for permission, whatever the options say.
    - `tools`: functions in place of built-in tools, by name (`{"Bash": lambda command: "ok"}`); no other built-in
      tool exists.
    """

    def __init__(
        self,
        script: Iterable[Scene] = (),
        *,
        allow: bool = False,
        tools: Mapping[str, Callable[..., Any]] | None = None,
        argv: Sequence[str] = (),
    ) -> None:
        self._playback = Playback(script, allow=allow, tools=dict(tools or {}))
        self._argv = argv
        self._own: ScriptedConnection | None = None

    def __call__(self, command: _Command) -> Transport:
        """Make a connection, for `spawn_claude_code_process`."""
        return ScriptedConnection(Settings.parse(command.argv, command.cwd), self._playback)

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
        """The entries of the script that are not played yet."""
        return list(self._playback.script)

    def assert_called(self, name: str, /, **arguments: Any) -> ToolCall:
        """Return the first call of a tool with these arguments (it may have others); `AssertionError` if none.

        The name is bare (`add`) or full (`mcp__calc__add`).
        """
        named = [call for call in self._playback.calls if name in (call.name, call.bare_name)]
        for call in named:
            if all(key in call.input and call.input[key] == value for key, value in arguments.items()):
                return call
        wanted = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        lines = [f"{name}({wanted}) was not called"]
        if not named:
            names = {each for call in self._playback.calls for each in (call.name, call.bare_name)}
            near = closest(name, names)
            lines += [f"did you mean {near!r}?"] if near else []
        lines += [f"called: {call!r}" for call in named or self._playback.calls] or ["no tool was called"]
        raise AssertionError("\n".join(lines))

    def assert_finished(self) -> None:
        """Raise `AssertionError` unless the whole script was played, no more was needed and nothing is pending."""
        lines = [f"not played: {step!r}" for step in self._playback.script]
        lines += [f"not expected: {problem}" for problem in self._playback.unexpected]
        lines += [f"pending: {what}" for what in self._playback.pending.values()]
        if lines:
            raise AssertionError(
                "\n".join(["the script was not followed", *lines])
            ) from self._playback.failure

    def assert_no_pending(self) -> None:
        """Raise `AssertionError` if a turn, a tool call or a request to the host has begun and not ended."""
        if self._playback.pending:
            raise AssertionError("\n".join(["still pending:", *self._playback.pending.values()]))

    # --- a transport, for one connection at a time ---

    async def connect(self) -> None:
        """Start. It can be started again after `close()`."""
        if self._own is not None:
            raise CLIConnectionError(
                "this scripted CLI is already connected; for several connections, "
                "pass it as spawn_claude_code_process instead of transport"
            )
        self._own = ScriptedConnection(Settings.parse(("claude", *self._argv)), self._playback)
        await self._own.connect()

    async def write(self, data: str) -> None:
        """Receive lines, as the CLI does on its standard input."""
        await self._connection.write(data)

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Iterate over the frames until the CLI exits; `ProcessError` if its exit code is not 0."""
        return self._connection.read_messages()

    async def close(self) -> None:
        """Stop it at once."""
        own, self._own = self._own, None
        if own is not None:
            await own.close()

    def is_ready(self) -> bool:
        """Return True if it can be written to."""
        return self._own is not None and self._own.is_ready()

    async def end_input(self) -> None:
        """End the input: the CLI finishes the turn, then exits."""
        await self._connection.end_input()

    @property
    def _connection(self) -> ScriptedConnection:
        if self._own is None:
            raise CLIConnectionError("the scripted CLI is not connected")
        return self._own
