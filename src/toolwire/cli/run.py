"""`toolwire run`: a conversation on a terminal, in which Claude can use the tools of a target.

Reads the command line, shows messages, asks the user, and handles Ctrl-C. Only the main thread reads from and
writes to the terminal, so that no output is drawn over a prompt. The conversation runs on an event loop in another
thread, and sends messages and requests for the user through one queue, in order.
"""

import importlib.util
import sys
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, TYPE_CHECKING, Annotated, Any, Final

import anyio.lowlevel
import typer

from toolwire.cli.shared.agent_options import AgentOptions, CwdOption, name_targets
from toolwire.cli.shared.failures import DebugOption, shown_failures
from toolwire.cli.shared.printing import FAILURE, INTERRUPTED
from toolwire.cli.shared.target_options import (
    OPENAPI,
    AllowServersOption,
    BaseUrlOption,
    OpenAPIOptions,
    resolve_target,
)
from toolwire.errors import CanUseToolShadowedWarning, ResultError, UsageError

if TYPE_CHECKING:
    from toolwire import ClaudeSDKClient, ResultMessage

_NO_KEY: Final = "No key? --scripted tries your tools without one; --settings uses your own settings."
_WAIT: Final = 0.5  # seconds; Ctrl-C may not interrupt a wait that has just begun, and never does on Windows
_HELP: Final = (
    "Type a prompt, or /tools, /cost, /help, /exit. Ctrl-C interrupts a turn. Other / commands go to the CLI."
)


def run(
    *,
    tools: Annotated[
        list[str],
        typer.Option(
            "--tools",
            "-t",
            metavar="TARGET",
            help="Tools for Claude: app.py, app.py:name, a URL, catalog:... or openapi:... Repeatable.",
        ),
    ],
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT", help="The prompt. Without it, type prompts, or pipe one in."),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Use your own CLI, key and model (the default).")
    ] = False,
    scripted: Annotated[
        bool, typer.Option("--scripted", help="Use a scripted model: no key, no network.")
    ] = False,
    agent: AgentOptions,
    max_turns: Annotated[int | None, typer.Option(min=1, help="Stop after this many turns.")] = None,
    max_budget: Annotated[float | None, typer.Option(metavar="USD", min=0, help="Stop at this cost.")] = None,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Record every frame, for replay in tests.")
    ] = None,
    cwd: CwdOption = None,
    thinking: Annotated[bool, typer.Option("--thinking", help="Show the model's thinking.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print each message as a line of JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the model's text.")] = False,
    base_url: BaseUrlOption = None,
    allow_servers: AllowServersOption = False,
    debug: DebugOption = False,
) -> None:
    """Talk to Claude, who can use your tools, and see every call.

    Claude can use only the tools of the targets (--builtin adds its own), and you are asked before each call
    (unless you use --allow or --yes).

    Examples:

      toolwire run -t app.py "What is 15 + 27?"    # needs an account

      toolwire run -t app.py --scripted "add a=15 b=27"

      echo "What is 15 + 27?" | toolwire run -t app.py --yes    # needs an account
    """
    is_scripted = scripted or agent.script is not None
    if live and is_scripted:
        raise typer.BadParameter(f"--live and {'--scripted' if scripted else '--script'} exclude each other")
    from toolwire.cli.run_scripted import choose_peer, load_script  # noqa: PLC0415

    with _redirect_stdout(json) as file:
        servers = _resolve_servers(tools, vars(OpenAPIOptions(base_url, allow_servers)))
        given = {
            "mcp_servers": servers,
            **agent.for_servers(servers, cwd),
            "max_turns": max_turns,
            "max_budget_usd": max_budget,
            "include_partial_messages": not json,
            "include_all_messages": True,
        }
        if record is not None and not record.absolute().parent.is_dir():
            raise UsageError(f"--record: the folder {record.absolute().parent} does not exist.")
        steps = None if agent.script is None else load_script(agent.script)
        text = _read_prompt(prompt)
        hint = "" if is_scripted else _NO_KEY
        terminal = Terminal(file if json else None, quiet=quiet, thinking=thinking, hint=hint)

        @asynccontextmanager
        async def session() -> AsyncIterator["ClaudeSDKClient"]:
            from toolwire import ClaudeAgentOptions, ClaudeSDKClient  # noqa: PLC0415

            async with AsyncExitStack() as stack:
                peer, description = await choose_peer(
                    stack, servers, scripted=is_scripted, script=steps, record=record
                )
                terminal.note(description)
                callbacks = {"can_use_tool": terminal.permission, "on_elicitation": terminal.elicitation}
                client = ClaudeSDKClient(ClaudeAgentOptions(**{**peer, **given, **callbacks}))
                stack.push_async_callback(client.disconnect)
                yield client

        with shown_failures(terminal.tool_failed, debug=debug):
            code = terminal.run(session, servers, text)
        if code:
            raise typer.Exit(code)


@contextmanager
def _redirect_stdout(wanted: bool) -> Iterator[IO[str]]:
    """Redirect stdout to stderr, if wanted, and return stdout: tools may print until the process ends.

    Only an error gets it back, to be printed.
    """
    file = sys.stdout
    if wanted:
        sys.stdout = sys.stderr
    try:
        yield file
    except typer.Exit:
        raise
    except BaseException:
        sys.stdout = file
        raise


def _read_prompt(given: str | None) -> str | None:
    """Return the prompt, read from a pipe if needed; None if prompts will be typed."""
    if given is None and sys.stdin.isatty():
        return None
    text = sys.stdin.read() if given is None else given
    if not text.strip():
        raise UsageError("The prompt is empty.")
    return text


def _resolve_servers(targets: list[str], openapi: dict[str, Any]) -> dict[str, Any]:
    """Find the servers of the targets, each under a name of its own. `openapi` is for `openapi:` targets."""
    found = [
        resolve_target(text, None, openapi=openapi if text.startswith(OPENAPI) else None) for text in targets
    ]
    return {name: target.server for name, target in name_targets(found).items()}


async def _describe_tools(servers: Mapping[str, Any]) -> list[str]:
    """Describe each tool in a line."""
    from toolwire.cli.run_screen import join_lines  # noqa: PLC0415
    from toolwire.mcp.direct_client import connect  # noqa: PLC0415 - heavy

    lines = []
    for name, server in servers.items():
        async with connect(server) as client:
            found = await client.list_tools()
        lines += [
            join_lines(f"{name}.{tool.name}: {tool.description.partition(chr(10))[0]}") for tool in found
        ]
    return lines


@dataclass(eq=False)
class _Request:
    """A request for the user, made on the event loop and answered in the main thread."""

    ask: Callable[[], Any]
    if_interrupted: Any  # the answer if Ctrl-C is pressed
    answered: Any
    tool_use_id: str | None = None
    answer: Any = None
    cancelled: bool = False


class Terminal:
    """The terminal of one conversation. `permission` and `elicitation` run on the event loop, the rest does not."""

    def __init__(self, json: IO[str] | None, *, quiet: bool, thinking: bool, hint: str) -> None:
        from rich.console import Console  # noqa: PLC0415 - heavy, as are the next ones

        from toolwire.cli.run_screen import JsonLines, Screen  # noqa: PLC0415
        from toolwire.cli.shared.terminal_dialogs import Asker, line_reader  # noqa: PLC0415

        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr] # a text file, as Python opens it
        self._notes = Console(stderr=True, highlight=False)
        self._out = self._notes if json else Console(highlight=False)
        self._view = JsonLines(json) if json else Screen(self._out, thinking=thinking, quiet=quiet)
        self._quiet = quiet
        self._hint = hint
        ask = self._out if self._out.file.isatty() else self._notes  # stdout may go into a pipe
        self._read_line = line_reader(ask)
        self._asker = Asker(ask, self._notes, self._read_line)
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._client: Any = None
        self._last: ResultMessage | None = None
        self._presses = 0

    def note(self, text: str, style: str = "dim") -> None:
        """Print a line on stderr, unless quiet."""
        if text and not self._quiet:
            self._notes.print(text, style=style, markup=False, soft_wrap=True)

    def tool_failed(self, place: str) -> None:
        """Show where a tool failed, after what has been shown so far. Any thread may call it."""
        self._queue.put(place)

    # On the event loop.

    async def permission(self, name: str, given: dict[str, Any], context: Any) -> Any:
        """Ask whether a tool may run, for `can_use_tool`."""
        from toolwire.permissions import PermissionResultDeny  # noqa: PLC0415

        stop = PermissionResultDeny(message="The user interrupted.", interrupt=True)
        ask = partial(self._asker.permission, name, given, context)
        return await self._request(ask, stop, context.tool_use_id)

    async def elicitation(self, request: Any) -> Any:
        """Ask for the input that a server requests, for `on_elicitation`."""
        return await self._request(partial(self._asker.elicitation, request), {"action": "cancel"})

    async def _request(
        self, ask: Callable[[], Any], if_interrupted: Any, tool_use_id: str | None = None
    ) -> Any:
        while self._client.connected and self._client.unread:  # show first what led to the request
            await anyio.lowlevel.checkpoint()
        request = _Request(ask, if_interrupted, anyio.Event(), tool_use_id)
        self._queue.put(request)
        try:
            await request.answered.wait()
        finally:
            request.cancelled = True
        return request.answer

    async def _prompt(self, text: str) -> None:
        await self._client.query(text)
        async for message in self._client.receive_response():
            self._queue.put((time.monotonic(), message))

    async def _prompt_once(self, text: str) -> None:
        """Send one prompt as `query()` does: the input ends with it, and the CLI exits by itself."""

        async def prompts() -> AsyncIterator[dict[str, Any]]:
            message = {"role": "user", "content": text}
            yield {"type": "user", "message": message, "parent_tool_use_id": None, "session_id": ""}

        await self._client.connect(prompts())
        with suppress(ResultError):  # the failed result has been shown
            async for message in self._client.receive_messages():
                self._queue.put((time.monotonic(), message))

    # In the main thread.

    def run(self, session: Callable[[], Any], servers: Mapping[str, Any], prompt: str | None) -> int:
        """Run the conversation to its end. Returns the exit code."""
        from anyio.from_thread import start_blocking_portal  # noqa: PLC0415

        warnings.simplefilter("ignore", CanUseToolShadowedWarning)  # --allow is meant to do that
        uvloop = importlib.util.find_spec("uvloop") is not None
        with (
            start_blocking_portal("asyncio", {"use_uvloop": uvloop}) as self._portal,
            self._portal.wrap_async_context_manager(session()) as self._client,
        ):
            return self._read_prompts(servers) if prompt is None else self._turn(self._prompt_once, prompt)

    def _read_prompts(self, servers: Mapping[str, Any]) -> int:
        """Read and send prompts until the user leaves."""
        if self._read_line is None:
            raise UsageError(
                "There is no terminal to type prompts on: give a prompt as an argument, or pipe one in."
            )
        self._run(self._client.connect)
        self.note(_HELP)
        while True:
            try:
                text = self._read_line("> ", remember=True).strip()
            except EOFError:
                return 0
            except KeyboardInterrupt:
                self._count_press("Press Ctrl-C again to leave.")
                continue
            if text in ("/exit", "/quit"):
                return 0
            self._presses = 0
            if text in ("/tools", "/cost", "/help"):
                self._inform(text, servers)
            elif text:
                self._turn(self._prompt, text)

    def _inform(self, command: str, servers: Mapping[str, Any]) -> None:
        from toolwire.cli.run_screen import summarize  # noqa: PLC0415

        if command == "/tools":
            lines = self._run(_describe_tools, servers)
        else:
            cost = "No turn yet." if self._last is None else summarize(self._last)
            lines = [cost if command == "/cost" else _HELP]
        for line in lines:
            self.note(line)

    def _turn(self, send: Callable[[str], Any], prompt: str) -> int:
        """Send a prompt and show the turn. Returns the exit code."""
        from toolwire.cli.run_screen import describe_failure  # noqa: PLC0415

        self._run(send, prompt)
        if self._presses:
            self.note("Interrupted.", "yellow")
            return INTERRUPTED
        result = self._last
        problem = None if result is None else describe_failure(result)
        if result is None or problem is None:
            return 0
        login = result.api_error_status in (401, 403) or "/login" in problem
        self._notes.print("[red]Error:[/]", end=" ")
        self._notes.print(f"{problem} {self._hint if login else ''}".strip(), markup=False, soft_wrap=True)
        return FAILURE

    def _run(self, work: Callable[..., Any], *args: Any) -> Any:
        """Run `work` on the event loop, and show messages and ask the user until it ends."""
        from toolwire import ResultMessage  # noqa: PLC0415
        from toolwire.cli.shared.terminal_dialogs import on_ctrl_c  # noqa: PLC0415

        pressed, over = object(), object()  # new ones for each run: a late one of the last run is ignored
        future = self._portal.start_task_soon(work, *args)
        future.add_done_callback(lambda _: self._queue.put(over))
        try:
            with on_ctrl_c(lambda *_: self._queue.put(pressed)):
                while (item := self._next()) is not over:
                    if item is pressed:
                        self._interrupt()
                    elif isinstance(item, _Request):
                        self._answer(item)
                    elif isinstance(item, str):
                        self._view.settle()
                        self.note(item, "red")
                    elif isinstance(item, tuple):
                        now, message = item
                        self._view.show(message, now)
                        self._last = message if isinstance(message, ResultMessage) else self._last
        finally:
            self._view.settle()  # removes progress bars and shows the cursor again
        return future.result()

    def _next(self) -> Any:
        while True:
            with suppress(Empty):
                return self._queue.get(timeout=_WAIT)

    def _answer(self, request: _Request) -> None:
        if request.cancelled:
            return
        self._view.settle()
        request.answer = request.if_interrupted
        try:
            request.answer = request.ask()
        except KeyboardInterrupt:
            self._interrupt()
        self._view.resume(request.tool_use_id, time.monotonic())
        self._portal.start_task_soon(request.answered.set)

    def _interrupt(self) -> None:
        self._view.settle()
        if not self._client.connected:  # no turn has begun
            raise KeyboardInterrupt
        self._count_press("Interrupting; press Ctrl-C again to leave.")
        self._portal.start_task_soon(self._client.interrupt)  # fails only if the turn is over

    def _count_press(self, text: str) -> None:
        self._presses += 1
        if self._presses > 1:
            raise KeyboardInterrupt
        self.note(text)
