"""Calls of tools: what the page shows of one, and those that the user makes on the page, without Claude.

Owns the connection to the server under work, its list of tools, and the calls with their progress, logs and
questions. Knows nothing of pages: they look at `version`, which grows with every change.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from toolwire._protocol.lines import encode
from toolwire._support.user_code import format_traceback
from toolwire._support.words import plain
from toolwire.errors import McpError
from toolwire.mcp.direct_client import DirectClient, ListedTool, Notified, connect
from toolwire.studio.questions import Question, Questions
from toolwire.studio.timeline import finite_number, read_text
from toolwire.tools.elicitation import ElicitationRequest

MOST_LOGS: Final = 1_000
_MOST_CALLS: Final = 200
_CLOSE_TIMEOUT: Final = 5.0

CallState: TypeAlias = Literal["running", "done", "failed", "cancelled"]


@dataclass(frozen=True)
class LogLine:
    """A message that a tool logged."""

    level: str
    text: str


@dataclass(eq=False)
class ToolCall:
    """One call, made by the user or by Claude: its arguments, how far it is, what came of it."""

    tool: str
    arguments: Any
    started: float = 0.0
    state: CallState = "running"
    seconds: float | None = None
    """How long it took; None while it runs."""
    progress: float | None = None
    total: float | None = None
    progress_text: str = ""
    logs: list[LogLine] = field(default_factory=list)
    logs_left_out: int = 0
    questions: list[Question] = field(default_factory=list)
    content: str | list[dict[str, Any]] = ""
    """The result: blocks as MCP has them, or as the model gets them."""
    structured: Any = None
    error: str = ""
    """Why there is no result: the server refused the request, or it ended."""
    traceback: str = ""
    """Where the tool's own code failed, for its author."""
    version: int = 0
    on_failure: Callable[[str], None] | None = field(default=None, repr=False)
    """Called with the text of the error, if the call fails."""
    task: "asyncio.Task[None] | None" = field(default=None, repr=False)

    def note_progress(self, progress: Any, total: Any, message: Any) -> None:
        """Keep the progress that a tool reported last; a server may send anything."""
        self.progress, self.total, self.progress_text = (
            finite_number(progress),
            finite_number(total),
            str(message or ""),
        )

    def add_log(self, level: str, data: Any) -> None:
        """Add a log message; only the first thousand are kept."""
        if len(self.logs) >= MOST_LOGS:
            self.logs_left_out += 1
        else:
            text = data if isinstance(data, str) else encode(data).decode(errors="replace").rstrip()
            self.logs.append(LogLine(level, text))


class ToolBench:
    """The tools of one server, and calls of them. Each call has a connection of its own, like a client."""

    def __init__(self, server: Any, name: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.server = server
        self.name = name
        self.tools: list[ListedTool] = []
        self.listings = 0
        """How many times the tools were listed."""
        self.problem = ""
        """Why the tools cannot be listed, or were not loaded again."""
        self.calls: list[ToolCall] = []
        self.version = 0
        self._clock = clock
        self._stack = AsyncExitStack()
        self._client: DirectClient | None = None
        self._listing = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def open(self) -> None:
        """Connect and list the tools. A server that cannot be reached is a `problem`, not an exception."""
        try:
            self._client = await self._stack.enter_async_context(
                connect(self.server, name=self.name, on_notification=self._server_notified)
            )
            loaded = getattr(self.server, "loaded", None)
            if loaded is not None:
                status = await loaded()
                self.problem = "" if status.state == "live" else (status.error or "it did not load in time")
        except Exception as error:  # noqa: BLE001 - the boundary to a user's server: anything may come
            self.problem = describe(error)
        await self.list_tools()

    async def list_tools(self) -> None:
        """Read the list of tools again."""
        if self._client is None:
            self.version += 1
            return
        async with self._listing:
            try:
                self.tools = await self._client.list_tools()
                self.listings += 1
            except Exception as error:  # noqa: BLE001 - as above
                self.problem = describe(error)
        self.version += 1

    async def replace(self, server: Any) -> None:
        """Use another server from now on: the same file, loaded again. Running calls go on with the old one."""
        old, self._stack, self._client = self._stack, AsyncExitStack(), None
        self.server, self.problem = server, ""
        await self.open()
        await old.aclose()

    def fail_to_reload(self, text: str) -> None:
        """Say on the page that a changed file could not be loaded."""
        self.problem = text
        self.version += 1

    def find(self, name: str) -> ListedTool | None:
        """Return a tool by its name."""
        return next((each for each in self.tools if each.name == name), None)

    def call(self, tool: str, arguments: dict[str, Any]) -> ToolCall:
        """Start a call; it goes on by itself."""
        call = ToolCall(tool, arguments, self._clock())
        ended = [each for each in self.calls if each.state != "running"]
        for each in ended[: max(0, len(self.calls) - _MOST_CALLS + 1)]:
            self.calls.remove(each)
        self.calls.append(call)
        call.task = asyncio.get_running_loop().create_task(self._run(call))
        self._keep(call.task)
        self._touch(call)
        return call

    def cancel(self, call: ToolCall) -> None:
        """Cancel a running call; the tool gets MCP's `notifications/cancelled`."""
        if call.task is not None and call.state == "running":
            call.task.cancel()

    async def aclose(self) -> None:
        """Cancel all calls and disconnect."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_TIMEOUT)
        await self._stack.aclose()

    async def _run(self, call: ToolCall) -> None:
        questions = Questions(lambda: self._touch(call))
        call.questions = questions.all

        async def ask(request: ElicitationRequest) -> Any:
            return await questions.ask_elicitation(request)

        try:
            with note_failures(call):
                async with connect(
                    self.server,
                    name=self.name,
                    on_elicitation=ask,
                    on_notification=lambda each: self._call_notified(call, each),
                ) as client:
                    result = await client.call(call.tool, call.arguments)
            call.content, call.structured = result.content, result.structured
            call.state = "failed" if result.is_error else "done"
        except asyncio.CancelledError:
            call.state = "cancelled"
            raise
        except McpError as error:
            call.state, call.error = "failed", error.message
        except Exception as error:  # noqa: BLE001 - as above
            call.state, call.error = "failed", describe(error)
        finally:
            call.seconds = self._clock() - call.started
            self._touch(call)
        if call.state == "failed" and call.on_failure is not None:
            call.on_failure(call.error or read_text(call.content))

    def _call_notified(self, call: ToolCall, notified: Notified) -> None:
        params = notified.params
        if notified.method == "notifications/progress":
            call.note_progress(params.get("progress"), params.get("total"), params.get("message"))
        elif notified.method == "notifications/message":
            call.add_log(str(params.get("level", "info")), params.get("data"))
        elif notified.method == "notifications/tools/list_changed":
            self._server_notified(notified)
        self._touch(call)

    def _server_notified(self, notified: Notified) -> None:
        if notified.method == "notifications/tools/list_changed":
            self._keep(asyncio.get_running_loop().create_task(self.list_tools()))

    def _keep(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _touch(self, call: ToolCall) -> None:
        call.version += 1
        self.version += 1


def describe(error: BaseException) -> str:
    """Describe an exception in a line: its text, or its class if it has none."""
    if isinstance(error, McpError):
        return error.message
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


# --- where the user's code failed: servers log it, the model is told only the exception's text ----------------

_current: ContextVar[Any] = ContextVar("toolwire_studio_call", default=None)


class _FailureHandler(logging.Handler):
    """Keeps the traceback of a failed tool with the call in whose context it was logged."""

    def emit(self, record: logging.LogRecord) -> None:
        call = _current.get()
        error = record.exc_info[1] if record.exc_info else None
        if call is not None and (error is not None or record.exc_text):
            call.traceback = plain(
                record.exc_text or format_traceback(error)
            )  # the text: a secret was taken out


_handler: Final = _FailureHandler(logging.WARNING)


@contextmanager
def note_failures(call: Any) -> Iterator[None]:
    """While the block runs, tracebacks of tools that fail in this context are set as `call.traceback`."""
    logger = logging.getLogger("toolwire.server")
    if _handler not in logger.handlers:
        logger.addHandler(_handler)
    token = _current.set(call)
    try:
        yield
    finally:
        _current.reset(token)
