"""The terminal of `toolwire run`.

It belongs to the main thread, which alone reads and writes there, so that no question is drawn over by what happens
meanwhile, and Ctrl-C means what the moment makes of it. The conversation runs on an event loop in another thread;
messages and questions come from there through one queue, in order.
"""

import importlib.util
import sys
import time
import warnings
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import IO, TYPE_CHECKING, Any, Final

from toolwire.cli.shared.exit_codes import FAILURE, INTERRUPTED
from toolwire.errors import CanUseToolShadowedWarning, ResultError, UsageError

if TYPE_CHECKING:
    from toolwire import ResultMessage

_WAIT: Final = 0.5 if sys.platform == "win32" else None  # there, Ctrl-C does not end a wait
_HELP: Final = (
    "Type a prompt, or /tools, /cost, /help, /exit. Ctrl-C interrupts a turn. Other / commands go to the CLI."
)


@dataclass(eq=False)
class _Question:
    work: Callable[[], Any]
    otherwise: Any  # the answer if Ctrl-C is pressed instead
    settled: Any
    tool_use_id: str | None = None
    answer: Any = None
    withdrawn: bool = False


class Terminal:
    """Shows what comes, asks what is asked, heeds Ctrl-C. `permission` and `elicitation` are for the event loop."""

    def __init__(self, json: IO[str] | None, *, quiet: bool, thinking: bool, hint: str) -> None:
        from rich.console import Console  # noqa: PLC0415 - heavy, as is what follows

        from toolwire.cli.run_screen import JsonLines, Screen  # noqa: PLC0415
        from toolwire.cli.shared.questions import Asker, line_reader  # noqa: PLC0415

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
        """A line beside the conversation."""
        if text and not self._quiet:
            self._notes.print(text, style=style, markup=False, soft_wrap=True)

    # On the event loop.

    async def permission(self, name: str, given: dict[str, Any], context: Any) -> Any:
        """May a tool run? See `can_use_tool`."""
        from toolwire.permissions import PermissionResultDeny  # noqa: PLC0415

        stop = PermissionResultDeny(message="The user interrupted.", interrupt=True)
        ask = partial(self._asker.permission, name, given, context)
        return await self._asked(ask, stop, context.tool_use_id)

    async def elicitation(self, request: Any) -> Any:
        """What a server wants to know. See `on_elicitation`."""
        return await self._asked(partial(self._asker.elicitation, request), {"action": "cancel"})

    async def _asked(self, work: Callable[[], Any], otherwise: Any, tool_use_id: str | None = None) -> Any:
        import anyio  # noqa: PLC0415
        from anyio.lowlevel import checkpoint  # noqa: PLC0415

        while self._client.connected and self._client.unread:  # what led to the question is shown before it
            await checkpoint()
        question = _Question(work, otherwise, anyio.Event(), tool_use_id)
        self._queue.put(question)
        try:
            await question.settled.wait()
        finally:
            question.withdrawn = True
        return question.answer

    async def _listen(self, text: str) -> None:
        await self._client.query(text)
        async for message in self._client.receive_response():
            self._queue.put((time.monotonic(), message))

    async def _listen_once(self, text: str) -> None:
        """As `query()` does: the input ends with the run, and the CLI leaves by itself."""

        async def prompts() -> AsyncIterator[dict[str, Any]]:
            message = {"role": "user", "content": text}
            yield {"type": "user", "message": message, "parent_tool_use_id": None, "session_id": ""}

        await self._client.connect(prompts())
        with suppress(ResultError):  # after a failed result, which is shown
            async for message in self._client.receive_messages():
                self._queue.put((time.monotonic(), message))

    # In the main thread.

    def hold(self, session: Callable[[], Any], servers: Mapping[str, Any], prompt: str | None) -> int:
        """The conversation from start to end; the exit code."""
        from anyio.from_thread import start_blocking_portal  # noqa: PLC0415

        warnings.simplefilter("ignore", CanUseToolShadowedWarning)  # --allow is meant to
        uvloop = importlib.util.find_spec("uvloop") is not None
        with (
            start_blocking_portal("asyncio", {"use_uvloop": uvloop}) as self._portal,
            self._portal.wrap_async_context_manager(session()) as self._client,
        ):
            return self._prompts(servers) if prompt is None else self._turn(self._listen_once, prompt)

    def _prompts(self, servers: Mapping[str, Any]) -> int:
        """Prompts as they are typed, until there are no more."""
        if self._read_line is None:
            raise UsageError("There is no terminal to type prompts on: give one, or pipe it in.")
        self._do(self._client.connect)
        self.note(_HELP)
        while True:
            try:
                text = self._read_line("> ", remember=True).strip()
            except EOFError:
                return 0
            except KeyboardInterrupt:
                self._press("Ctrl-C again leaves.")
                continue
            if text in ("/exit", "/quit"):
                return 0
            self._presses = 0
            if text in ("/tools", "/cost", "/help"):
                self._inform(text, servers)
            elif text:
                self._turn(self._listen, text)

    def _inform(self, command: str, servers: Mapping[str, Any]) -> None:
        from toolwire.cli.run_screen import summary  # noqa: PLC0415
        from toolwire.cli.run_scripted import list_tools  # noqa: PLC0415

        if command == "/tools":
            lines = self._do(list_tools, servers)
        else:
            cost = "Nothing yet." if self._last is None else summary(self._last)
            lines = [cost if command == "/cost" else _HELP]
        for line in lines:
            self.note(line)

    def _turn(self, listen: Callable[[str], Any], prompt: str) -> int:
        """One turn, and what came of it as an exit code."""
        from toolwire.cli.run_screen import failure  # noqa: PLC0415

        self._do(listen, prompt)
        if self._presses:
            self.note("Interrupted.", "yellow")
            return INTERRUPTED
        result = self._last
        problem = None if result is None else failure(result)
        if result is None or problem is None:
            return 0
        login = result.api_error_status in (401, 403) or "/login" in problem
        self._notes.print("[red]Error:[/]", end=" ")
        self._notes.print(f"{problem} {self._hint if login else ''}".strip(), markup=False, soft_wrap=True)
        return FAILURE

    def _do(self, work: Callable[..., Any], *args: Any) -> Any:
        """Run something on the event loop, and be there for what it says and asks until it is over."""
        from toolwire import ResultMessage  # noqa: PLC0415
        from toolwire.cli.shared.questions import on_ctrl_c  # noqa: PLC0415

        pressed, over = (
            object(),
            object(),
        )  # of this time only: one that came too late last time is nothing now
        future = self._portal.start_task_soon(work, *args)
        future.add_done_callback(lambda _: self._queue.put(over))
        try:
            with on_ctrl_c(lambda *_: self._queue.put(pressed)):
                while (item := self._next()) is not over:
                    if item is pressed:
                        self._stop()
                    elif isinstance(item, _Question):
                        self._answer(item)
                    elif isinstance(item, tuple):
                        now, message = item
                        self._view.show(message, now)
                        self._last = message if isinstance(message, ResultMessage) else self._last
        finally:
            self._view.settle()  # whatever happens, no bar is left and the cursor is seen
        return future.result()

    def _next(self) -> Any:
        while True:
            with suppress(Empty):
                return self._queue.get(timeout=_WAIT)

    def _answer(self, question: _Question) -> None:
        if question.withdrawn:
            return
        self._view.settle()
        question.answer = question.otherwise
        try:
            question.answer = question.work()
        except KeyboardInterrupt:
            self._stop()
        self._view.resume(question.tool_use_id, time.monotonic())
        self._portal.start_task_soon(question.settled.set)

    def _stop(self) -> None:
        self._view.settle()
        self._press("Interrupting; Ctrl-C again leaves.")
        self._portal.start_task_soon(self._client.interrupt)  # if it fails, the turn is over already

    def _press(self, text: str) -> None:
        self._presses += 1
        if self._presses > 1:
            raise KeyboardInterrupt
        self.note(text)
