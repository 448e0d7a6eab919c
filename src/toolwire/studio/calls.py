"""Tool calls as the page shows them, and the calls that the user makes on the page, without Claude.

Owns the connection to the user's server, its list of tools, and the calls with their progress, logs and questions.
Knows nothing about pages: they compare `version`, which grows with every change.
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
    """One call, made by the user or by Claude: its arguments, its progress and its result."""

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
    """The result: MCP content blocks, or the content that the model received."""
    structured: Any = None
    error: str = ""
    """Why there is no result: the server rejected the request, or the connection ended."""
    traceback: str = ""
    """The traceback of the exception in the tool's own code, for its author."""
    version: int = 0
    on_failure: Callable[[str], None] | None = field(default=None, repr=False)
    """Called with the text of the error, if the call fails."""
    task: "asyncio.Task[None] | None" = field(default=None, repr=False)

    def note_progress(self, progress: Any, total: Any, message: Any) -> None:
        """Store the latest reported progress. A server may send any values, so they are checked here."""
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
    """The tools of one server, and calls to them. Each call has its own connection, as a client would."""

    def __init__(self, server: Any, name: str) -> None:
        self.server = server
        self.name = name
        self.tools: list[ListedTool] = []
        self.listings = 0
        """How many times the tools were listed."""
        self.problem = ""
        """Why the tools could not be listed or reloaded."""
        self.calls: list[ToolCall] = []
        self.version = 0
        self._stack = AsyncExitStack()
        self._client: DirectClient | None = None
        self._listing = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def open(self) -> None:
        """Connect and list the tools. If the server is unreachable, sets `problem` instead of raising."""
        try:
            self._client = await self._stack.enter_async_context(
                connect(self.server, name=self.name, on_notification=self._server_notified)
            )
            loaded = getattr(self.server, "loaded", None)
            if loaded is not None:
                status = await loaded()
                self.problem = "" if status.state == "live" else (status.error or "it did not load in time")
        except Exception as error:  # noqa: BLE001 - the user's server may raise anything
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
        """Switch to a new server: the same file, loaded again. Running calls continue with the old one."""
        old, self._stack, self._client = self._stack, AsyncExitStack(), None
        self.server, self.problem = server, ""
        await self.open()
        await old.aclose()

    def fail_to_reload(self, text: str) -> None:
        """Show on the page that a changed file could not be loaded."""
        self.problem = text
        self.version += 1

    def find(self, name: str) -> ListedTool | None:
        """Return a tool by its name."""
        return next((each for each in self.tools if each.name == name), None)

    def call(self, tool: str, arguments: dict[str, Any]) -> ToolCall:
        """Start a call in the background."""
        call = ToolCall(tool, arguments, time.monotonic())
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

        try:
            with note_failures(call):
                async with connect(
                    self.server,
                    name=self.name,
                    on_elicitation=questions.ask_elicitation,
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
            call.seconds = time.monotonic() - call.started
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
    """Describe an exception in one line: its class and text."""
    if isinstance(error, McpError):
        return error.message
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


# --- tracebacks of the user's code: servers log them, the model gets only the text of the exception ---

_current: ContextVar[Any] = ContextVar("toolwire_studio_call", default=None)


class _FailureHandler(logging.Handler):
    """Stores the traceback of a failed tool in the call in whose context it was logged."""

    def emit(self, record: logging.LogRecord) -> None:
        call = _current.get()
        error = record.exc_info[1] if record.exc_info else None
        if call is not None and (error is not None or record.exc_text):
            # Prefer `exc_text`: secrets were already removed from it.
            call.traceback = plain(record.exc_text or format_traceback(error))


_handler: Final = _FailureHandler(logging.WARNING)


@contextmanager
def note_failures(call: Any) -> Iterator[None]:
    """Set `call.traceback` if a tool fails in this context while the block runs."""
    logger = logging.getLogger("toolwire.server")
    if _handler not in logger.handlers:
        logger.addHandler(_handler)
    token = _current.set(call)
    try:
        yield
    finally:
        _current.reset(token)
