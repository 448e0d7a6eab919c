"""`ScriptedCLI`: the CLI's side of the protocol in memory, for tests in milliseconds.

Owns what a test does with it: giving it to the options, reading what happened, asserting. It speaks to the host
through `Peer`, one for each connection; the script is shared by them.

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
from toolwire.testing.scripted_cli.book import Book, Scene, ToolCall, exit_early, garbage, silence
from toolwire.testing.scripted_cli.peer import Peer
from toolwire.testing.scripted_cli.setup import Setup

__all__ = ["Scene", "ScriptedCLI", "ToolCall", "exit_early", "garbage", "silence"]


class _Command(Protocol):
    @property
    def argv(self) -> Sequence[str]: ...
    @property
    def cwd(self) -> str | None: ...


class ScriptedCLI(Transport):
    """A Claude Code CLI without a process, a model or a network, that plays a script.

    Give it as `ClaudeAgentOptions(spawn_claude_code_process=cli)`: it then follows the options as the real one
    does (servers, permissions, structured output, ...). It can be used for any number of connections. It is also
    a `Transport` for one connection; no command line reaches a transport, so `argv` says there what is to be known.

    - `allow`: run every tool without asking, whatever the options say.
    - `tools`: functions that stand in for built-in tools, by name (`{"Bash": lambda command: "ok"}`); others that
      the script calls do not exist.
    """

    def __init__(
        self,
        script: Iterable[Scene] = (),
        *,
        allow: bool = False,
        tools: Mapping[str, Callable[..., Any]] | None = None,
        argv: Sequence[str] = (),
    ) -> None:
        self._book = Book(script, allow=allow, tools=dict(tools or {}))
        self._argv = argv
        self._own: Peer | None = None

    def __call__(self, command: _Command) -> Transport:
        """A connection, for `spawn_claude_code_process`."""
        return Peer(Setup.of(command.argv, command.cwd), self._book)

    # The records.

    @property
    def calls(self) -> list[ToolCall]:
        """The tool calls so far, in the order in which they ended."""
        return list(self._book.calls)

    @property
    def prompts(self) -> list[str]:
        """What the user said so far."""
        return list(self._book.prompts)

    @property
    def remaining(self) -> list[Scene]:
        """The entries of the script not yet taken."""
        return list(self._book.script)

    def assert_called(self, name: str, /, **arguments: Any) -> ToolCall:
        """The first call of a tool, by its bare or full name, that has these arguments (and perhaps others)."""
        named = [call for call in self._book.calls if name in (call.name, call.bare_name)]
        for call in named:
            if all(key in call.input and call.input[key] == value for key, value in arguments.items()):
                return call
        wanted = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        lines = [f"{name}({wanted}) was not called"]
        if not named:
            names = {each for call in self._book.calls for each in (call.name, call.bare_name)}
            near = closest(name, names)
            lines += [f"did you mean {near!r}?"] if near else []
        lines += [f"called: {call!r}" for call in named or self._book.calls] or ["no tool was called"]
        raise AssertionError("\n".join(lines))

    def assert_finished(self) -> None:
        """Raise `AssertionError` unless the whole script was played, nothing else was asked, nothing is open."""
        lines = [f"turn not taken: {step!r}" for step in self._book.script]
        lines += [f"not expected: {surprise}" for surprise in self._book.unexpected]
        lines += [f"pending: {what}" for what in self._book.open.values()]
        if lines:
            raise AssertionError("\n".join(["the script was not followed", *lines])) from self._book.failure

    def assert_no_pending(self) -> None:
        """Raise `AssertionError` if a turn, a tool call or a question to the host has begun and not ended."""
        if self._book.open:
            raise AssertionError("\n".join(["not everything has ended", *self._book.open.values()]))

    # As a transport, for one connection at a time.

    async def connect(self) -> None:
        """Start; after a close it may start again."""
        if self._own is not None:
            raise CLIConnectionError(
                "this scripted CLI is connected; for several, use spawn_claude_code_process"
            )
        self._own = Peer(Setup.of(("claude", *self._argv)), self._book)
        await self._own.connect()

    async def write(self, data: str) -> None:
        """Take lines, as the CLI takes them from its input."""
        await self._peer.write(data)

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """The frames, until the CLI ends; `ProcessError` when it ends badly."""
        return self._peer.read_messages()

    async def close(self) -> None:
        """End it at once, whatever goes on."""
        own, self._own = self._own, None
        if own is not None:
            await own.close()

    def is_ready(self) -> bool:
        """Whether it takes input."""
        return self._own is not None and self._own.is_ready()

    async def end_input(self) -> None:
        """The host says no more: the turn is finished, then the CLI leaves."""
        await self._peer.end_input()

    @property
    def _peer(self) -> Peer:
        if self._own is None:
            raise CLIConnectionError("the scripted CLI is not connected")
        return self._own
