"""Runs a case: options that start the hostile CLI, the two ways to talk to it, and the checks at the end."""

import asyncio
import gc
import logging
import os
import sys
import tempfile
import uuid
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

import anyio

from faults.hostile_cli import LIMIT, RIGHT
from faults.leftovers import MARK, Watch, settled_tasks, tasks
from toolwire import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ClaudeSDKError,
    HookMatcher,
    PermissionResultAllow,
    ResultMessage,
    ToolServer,
    query,
)

DEADLINE = 60.0
"""Seconds for a case, closing included: many times what the slowest needs."""
WAIT = 0.3
"""Seconds that a case waits for a CLI that says nothing, before it is given up."""
BACKENDS = ("asyncio", "trio")


@dataclass
class Outcome:
    """The outcome of a conversation."""

    messages: list = field(default_factory=list)
    error: BaseException | None = None
    given_up: bool = False
    """Whether the caller's own time limit ended it."""

    @property
    def texts(self):
        """The texts of the assistant messages."""
        return [each.text for each in self.messages if isinstance(each, AssistantMessage)]

    @property
    def results(self):
        """The texts of the result messages."""
        return [each.result for each in self.messages if isinstance(each, ResultMessage)]

    @property
    def right(self):
        """True if everything was said in order, and every response arrived."""
        said = [each for each in self.texts if each in ("one: äöü €", "two")]
        return (
            self.error is None
            and not self.given_up
            and list(dict.fromkeys(said)) == ["one: äöü €", "two"]
            and set(self.results) == {RIGHT}
        )


class Stage:
    """Runs cases, and checks what each leaves behind."""

    def __init__(self, program, folder):
        self._program = program
        self.folder = folder
        self.mark = uuid.uuid4().hex
        self.complaints = []

    def options(self, step="start", fault="none", **more):
        """Return options that start the hostile CLI, with handlers that answer correctly."""
        server = ToolServer("calc")

        @server.tool
        def add(a: int, b: int) -> int:
            """Add."""
            return a + b

        async def allow(_name, given, _context):
            return PermissionResultAllow(updated_input=given)

        async def go_on(_given, _tool_use_id, _context):
            return {}

        env = {"STEP": step, "FAULT": fault, "PATH": os.defpath, MARK: self.mark, **more.pop("env", {})}
        settings = {
            "cli_path": self._program,
            "env": env,
            "inherit_env": False,
            "max_buffer_size": LIMIT,
            "include_partial_messages": True,
            "mcp_servers": {"calc": server},
            "can_use_tool": allow,
            "hooks": {"Stop": [HookMatcher(hooks=[go_on])]},
            "initialize_timeout": 20.0,
            "control_timeout": 20.0,
            **more,
        }
        return ClaudeAgentOptions(**settings)

    def play(self, backend, talk, *args, allowed=(), **settings):
        """Run one case on an event loop of its own, check that nothing is left of it, and return its outcome."""
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        self._watch = Watch(self.mark, temporary)
        with _temporary_folder(temporary), self._listening(allowed):
            outcome = anyio.run(partial(self._run, talk, *args, **settings), backend=backend)
        self.check()
        return outcome

    def check(self):
        """Check that nothing is left, and that no error was only logged. `play` does this, unless it raises."""
        gc.collect()
        _freeze()
        assert self._watch.left() == {}
        assert self.complaints == []

    async def _run(self, talk, *args, **settings):
        before = tasks()
        with suppress(RuntimeError):  # on trio
            asyncio.get_running_loop().set_exception_handler(self._complain)
        with anyio.fail_after(DEADLINE):
            outcome = await talk(*args, **settings)
        left = await settled_tasks(before)
        assert left == set(), f"tasks are left: {left}"
        return outcome

    def _complain(self, _loop, context):
        self.complaints.append(f"{context.get('message')}: {context.get('exception')!r}")

    @contextmanager
    def _listening(self, allowed):
        """Record errors that are only logged, because no caller is left who could get them."""
        ear = _Ear(self.complaints, allowed)
        logger = logging.getLogger("toolwire")
        logger.addHandler(ear)
        logger.propagate = (
            False  # pytest would keep every record, and cannot pass lone surrogates on to another process
        )
        try:
            yield
        finally:
            logger.removeHandler(ear)
            logger.propagate = True


@cache
def _freeze():
    """Freeze what was imported for the first case, so that the collector skips it after each case."""
    gc.freeze()


_FORMATTER = logging.Formatter()


class _Ear(logging.Handler):
    """Records failures of our own: tasks that broke, handlers that were missing."""

    def __init__(self, complaints, allowed):
        super().__init__(logging.ERROR)
        self._complaints = complaints
        self._allowed = allowed

    def emit(self, record):
        text = record.getMessage()
        if not any(part in text for part in ("the limit (max_buffer_size)", *self._allowed)):
            self._complaints.append(_FORMATTER.format(record))


@contextmanager
def _temporary_folder(folder):
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before


# --- the ways to talk to the CLI ---


async def ask_once(options, *, until=None):
    """Use `query()` to its end; with `until`, give up soon after that file exists."""
    outcome = Outcome()
    async with giving_up(until) as scope:
        try:
            async for message in query(prompt="hello", options=options):
                outcome.messages.append(message)
        except ClaudeSDKError as error:
            outcome.error = error
    outcome.given_up = scope.cancelled_caught
    return outcome


async def converse(options, *, until=None):
    """Use a client that sends control requests before, within and after a turn; `until` as above."""
    outcome = Outcome()
    client = ClaudeSDKClient(options)
    try:
        async with giving_up(until) as scope:
            try:
                await client.connect()
                await client.set_model("m")
                await client.query("hello")
                async for message in client.receive_response():
                    outcome.messages.append(message)
                    if len(outcome.messages) == 1:
                        await client.get_mcp_status()
                await client.interrupt()
            except ClaudeSDKError as error:
                outcome.error = error
    finally:
        await client.disconnect()
    outcome.given_up = scope.cancelled_caught
    return outcome


@asynccontextmanager
async def giving_up(until):
    """Cancel the block soon after that file exists; never, if it is None."""

    async def wait():
        while not until.exists():
            await anyio.sleep(0.01)
        await anyio.sleep(WAIT)
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        if until is not None:
            tasks.start_soon(wait)
        with anyio.CancelScope() as scope:
            yield scope
        tasks.cancel_scope.cancel()


WAYS = {"query": ask_once, "client": converse}
PAIRS = (
    (("query", "asyncio"), ("client", "trio")),
    (("query", "trio"), ("client", "asyncio")),
)


def in_turns(cases):
    """Give each case two of the four pairs of way and backend, in turns, so that each step and fault meets all."""
    return [(*case, *way) for number, case in enumerate(cases) for way in PAIRS[number % 2]]


def one_by_one(faults, steps):
    """Return every step with every fault, each with one way and backend, so that each step and fault meets all."""
    ways = [(*PAIRS[0], *PAIRS[1])[place] for place in (0, 2, 1, 3)]
    return [
        (step, fault, *ways[(number + place) % 4])
        for number, fault in enumerate(faults)
        for place, step in enumerate(steps)
    ]


def name_of(value):
    """Return a parameter as a part of a test's id."""
    return str(value).replace(" ", "_")


def make_program(folder):
    """Write the hostile CLI as a program that starts as quickly as Python can."""
    program = folder / "claude"
    source = Path(__file__).with_name("hostile_cli.py").read_text(encoding="utf-8")
    program.write_text(f"#!{sys.executable} -ISE\n{source}", encoding="utf-8")
    program.chmod(0o755)
    return program
