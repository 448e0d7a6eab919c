"""One connection to a scripted CLI: frames both ways, questions and their answers, the end.

Owns what a process and its pipes are to the real CLI, plus the correlation of control requests. What is said in
a turn is `_agent`'s, what a control request gets is `_controls`', the MCP side of it `_links`'.
"""

import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import anyio

from toolwire._support.tasks import Task, spawn
from toolwire._transport.custom import Transport
from toolwire.errors import CLIConnectionError, ProcessError
from toolwire.testing.scripted_cli.agent import Agent, Exited
from toolwire.testing.scripted_cli.book import Book
from toolwire.testing.scripted_cli.controls import answer
from toolwire.testing.scripted_cli.host import Refused
from toolwire.testing.scripted_cli.links import Links
from toolwire.testing.scripted_cli.setup import Setup
from toolwire.testing.scripted_cli.tool_results import LOST


class _Question:
    def __init__(self) -> None:
        self.settled = anyio.Event()
        self.response: dict[str, Any] = {}
        self.error: str | None = None

    def settle(self, response: Any = None, error: str | None = None) -> None:
        self.response = response if isinstance(response, dict) else {}
        self.error = error
        self.settled.set()


class Peer(Transport):
    """A `Transport` with a scripted CLI at its other end."""

    def __init__(self, setup: Setup, book: Book) -> None:
        self.setup = setup
        self.book = book
        self.hooks: dict[str, Any] = {}
        self.links = Links(self, setup.servers)
        self.agent = Agent(self)
        self.silent = False
        self.input_ended = False
        self._out: deque[Any] = deque()
        self._news = anyio.Event()
        self._prompts: deque[dict[str, Any]] = deque()
        self._prompted = anyio.Event()
        self._questions: dict[str, _Question] = {}
        self._task: Task | None = None
        self._task_ended = anyio.Event()
        self._over = False
        self._error: Exception | None = None
        self._start: Callable[..., object] | None = None

    # The transport, as the host sees it.

    async def connect(self) -> None:
        """Start the CLI; a connection serves once."""
        if self._task is not None:
            raise CLIConnectionError("this connection to the scripted CLI was already used")
        self._task = spawn(self._run, on_done=self._task_ended.set)

    async def write(self, data: str) -> None:
        """Take lines, as the CLI takes them from its input."""
        for line in filter(str.strip, data.split("\n")):
            if self._over or self.input_ended:
                return
            try:
                frame = json.loads(line)
            except ValueError:
                # The real one ends too, so that a host that writes garbage does not go unnoticed.
                self.finish(1, "Error parsing streaming input line: SyntaxError")
                return
            if isinstance(frame, dict):
                self._receive(frame)

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """The frames, until the CLI ends; `ProcessError` when it ends badly."""
        while True:
            while self._out:
                yield self._out.popleft()
            if self._over:
                break
            self._news = anyio.Event()
            await self._news.wait()
        if self._error is not None:
            raise self._error

    async def close(self) -> None:
        """End it at once, whatever goes on."""
        self.finish(0)
        if self._task is not None:
            self._task.cancel()
            with anyio.CancelScope(shield=True):
                await self._task_ended.wait()

    def is_ready(self) -> bool:
        """Whether it takes input."""
        return self._task is not None and not self._over and not self.input_ended

    async def end_input(self) -> None:
        """The host says no more: the turn is finished without it, then the CLI leaves."""
        self.input_ended = True
        for question in self._questions.values():
            question.settle(error=LOST)
        self._prompted.set()

    # What the agent, the links and the controls do with it.

    def emit(self, frame: Any) -> None:
        """Say something to the host."""
        if not self._over and not self.silent:
            self._out.append(frame)
            self._news.set()

    def tell(self, body: dict[str, Any]) -> str:
        """Ask the host something without waiting; the id of the question."""
        request_id = str(uuid4())
        self.emit({"type": "control_request", "request_id": request_id, "request": body})
        return request_id

    async def ask(self, body: dict[str, Any], on_id: Callable[[str], None] | None = None) -> dict[str, Any]:
        """Ask the host and wait for its answer; `Refused` if that is an error."""
        if self.input_ended:
            raise Refused(LOST)
        question = _Question()
        request_id = self.tell(body)
        self._questions[request_id] = question
        self.book.open[request_id] = f"{body['subtype']} not answered by the host"
        if on_id is not None:
            on_id(request_id)
        try:
            await question.settled.wait()
        finally:
            del self._questions[request_id]
            self.book.open.pop(request_id, None)
        if question.error is not None:
            raise Refused(question.error or "Command failed with no output")
        return question.response

    def start(self, work: Callable[..., Any], *args: Any) -> None:
        """Do something beside the conversation."""
        if self._start is not None:
            self._start(work, *args)

    def finish(self, code: int, stderr: str | None = None) -> None:
        """The CLI has ended."""
        if not self._over:
            self._over = True
            if code:
                self._error = ProcessError("Claude Code failed", exit_code=code, stderr=stderr)
            self._news.set()

    # Inside.

    async def _run(self) -> None:
        code = 1
        try:
            async with anyio.create_task_group() as group:
                self._start = group.start_soon
                self.links.handshake()
                code = await self._serve()
                group.cancel_scope.cancel()
        finally:
            self._start = None
            self.finish(code)

    async def _serve(self) -> int:
        while True:
            while self._prompts:
                try:
                    await self.agent.turn(self._prompts.popleft())
                except Exited as early:
                    return early.code
            if self.input_ended:
                return int(self.agent.failed)
            self._prompted = anyio.Event()
            await self._prompted.wait()

    def _receive(self, frame: dict[str, Any]) -> None:
        match frame.get("type"):
            case "control_request":
                body = frame.get("request")
                response = answer(self, body if isinstance(body, dict) else {})
                wire = {"subtype": response.pop("subtype"), "request_id": frame.get("request_id"), **response}
                self.emit({"type": "control_response", "response": wire})
            case "control_response":
                response = frame.get("response") or {}
                question = self._questions.get(str(response.get("request_id")))
                if question is not None:
                    error = response.get("error") if response.get("subtype") == "error" else None
                    question.settle(response.get("response"), error)
            case "user":
                self._prompts.append(frame)
                self._prompted.set()
