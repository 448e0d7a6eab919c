"""One connection to a scripted CLI: frames both ways, questions and their answers, the end.

Owns what a process and its pipes are to the real CLI, plus the correlation of control requests. What is said in
a turn is `_agent`'s, what a control request gets is `_controls`', the MCP side of it `_links`'.
"""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import anyio

from toolwire._support.tasks import Task, spawn
from toolwire._support.waiting import Future, Mailbox
from toolwire._transport.custom import Transport
from toolwire.errors import CLIConnectionError, ProcessError
from toolwire.testing.scripted_cli.agent import Agent, Exited
from toolwire.testing.scripted_cli.book import Book
from toolwire.testing.scripted_cli.controls import answer
from toolwire.testing.scripted_cli.host import Refused
from toolwire.testing.scripted_cli.links import Links
from toolwire.testing.scripted_cli.setup import Setup
from toolwire.testing.scripted_cli.tool_results import LOST


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
        self._out: Mailbox[Any] = Mailbox()
        self._prompts: Mailbox[dict[str, Any]] = Mailbox()
        self._pending: dict[str, Future[dict[str, Any]]] = {}  # the host's responses, by request id
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
        async for frame in self._out:
            yield frame
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
        for response in self._pending.values():
            response.set({"subtype": "error", "error": LOST})
        self._prompts.close()

    # What the agent, the links and the controls do with it.

    def emit(self, frame: Any) -> None:
        """Say something to the host."""
        if not self._over and not self.silent:
            self._out.put(frame)

    def tell(self, body: dict[str, Any]) -> str:
        """Ask the host something without waiting; the id of the question."""
        request_id = str(uuid4())
        self.emit({"type": "control_request", "request_id": request_id, "request": body})
        return request_id

    async def ask(self, body: dict[str, Any], on_id: Callable[[str], None] | None = None) -> dict[str, Any]:
        """Ask the host and wait for its answer; `Refused` if that is an error."""
        if self.input_ended:
            raise Refused(LOST)
        response: Future[dict[str, Any]] = Future()
        request_id = self.tell(body)
        self._pending[request_id] = response
        self.book.open[request_id] = f"{body['subtype']} not answered by the host"
        if on_id is not None:
            on_id(request_id)
        try:
            answered = await response.wait()
        finally:
            del self._pending[request_id]
            self.book.open.pop(request_id, None)
        if answered.get("subtype") == "error" and answered.get("error") is not None:
            raise Refused(answered["error"] or "Command failed with no output")
        given = answered.get("response")
        return given if isinstance(given, dict) else {}

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
            self._out.close()

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
        async for prompt in self._prompts:
            try:
                await self.agent.turn(prompt)
            except Exited as early:
                return early.code
        return int(self.agent.failed)

    def _receive(self, frame: dict[str, Any]) -> None:
        match frame.get("type"):
            case "control_request":
                body = frame.get("request")
                response = answer(self, body if isinstance(body, dict) else {})
                wire = {"subtype": response.pop("subtype"), "request_id": frame.get("request_id"), **response}
                self.emit({"type": "control_response", "response": wire})
            case "control_response":
                response = frame.get("response") or {}
                pending = self._pending.get(str(response.get("request_id")))
                if pending is not None:
                    pending.set(response)
            case "user":
                self._prompts.put(frame)
