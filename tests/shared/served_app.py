"""The server that real clients use in tests: a tool for everything that a client can see.

Its tools `count` and `cancelled` tell a client what happened in the server's process.
"""

import dataclasses
import os
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import anyio
from pydantic import BaseModel

from toolwire import Context, ToolError, ToolServer, tool

print("printed at import")  # noqa: T201 - over stdio this must not get on the wire

server = ToolServer("everyday", version="1.2.3", instructions="For tests with real clients.")

calls: Counter[str] = Counter()
cancellations: dict[str, threading.Event] = {}


class Name(BaseModel):
    name: str


class Age(BaseModel):
    age: int


# Plain calls.


@server.tool(read_only=True)
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@server.tool(structured=True)
def stock(item: str) -> dict[str, int]:
    """Tell how many there are."""
    return {item: 3}


@server.tool
def fail(reason: str = "out of tea") -> str:
    """Fail, always."""
    raise ToolError(reason)


@server.tool
def count(of: str) -> int:
    """Tell how often a tool has run."""
    return calls[of]


@server.tool
def noisy() -> str:
    """Write to stdout in every way there is."""
    print("printed in a tool")  # noqa: T201
    os.write(1, b"written to descriptor 1\n")
    subprocess.run(["/bin/echo", "said by a child"], check=True)
    return "quiet"


# Changes.


@server.tool
async def grow(name: str) -> str:
    """Add a tool of that name."""
    server.add(tool(name=name)(_grown))
    return name


def _grown() -> str:
    """Tell that it is new."""
    return "I am new"


@server.tool
async def shrink(name: str) -> str:
    """Take a tool away."""
    server.remove(name)
    return name


@server.tool
async def crowd(size: int) -> int:
    """Add that many tools, or take all of them away again."""
    one = tool(name="one")(_grown)
    for number in range(size):
        server.add(dataclasses.replace(one, name=f"one_of_many_{number}"))
    if not size:
        for name in [each for each in server.tools if each.startswith("one_of_many_")]:
            server.remove(name)
    return len(server.tools)


@server.tool
async def touch(uri: str) -> str:
    """Say that a resource has changed."""
    server.resource_updated(uri)
    return uri


@server.tool
async def prompt_change() -> str:
    """Add a prompt, or take it away again."""
    if "passing" in server.prompts:
        server.remove_prompt("passing")
        return "removed"
    server.add_prompt(_grown, name="passing")
    return "added"


@server.tool
async def resource_change() -> str:
    """Add a resource, or take it away again."""
    if "passing://by" in server.resources:
        server.remove_resource("passing://by")
        return "removed"
    server.add_resource("passing://by", _grown)
    return "added"


# Progress and logs.


@server.tool
def steps(upto: int, context: Context, pause: float = 0) -> str:
    """Say how far it is, from a thread, with pauses of that many seconds."""
    for done in range(1, upto + 1):
        context.progress(done, upto, f"step {done}")
        time.sleep(pause)
    return "there"


@server.tool
async def chat(context: Context) -> str:
    """Log one line at each of three levels."""
    context.log("small", "debug")
    context.log({"size": "middle"}, "info", logger="talk")
    context.log("big", "error")
    return "said"


# Cancellation.


@server.tool
async def hang(mark: str, context: Context, started: str = "") -> str:
    """Wait for ever, on the event loop; `started` is a file to make first."""
    seen = _starting(mark, started)
    context.progress(0, 1, "hanging")
    try:
        await anyio.sleep_forever()
    finally:
        seen.set()
    return "never"


@server.tool
def busy(mark: str, context: Context, started: str = "") -> str:
    """Work until somebody cancels, in a thread; `started` is a file to make first."""
    seen = _starting(mark, started)
    context.progress(0, 1, "busy")
    end = time.monotonic() + 30
    while not context.cancelled and time.monotonic() < end:
        time.sleep(0.001)
    if context.cancelled:
        seen.set()
    return "done"


def _starting(mark: str, started: str) -> threading.Event:
    if started:
        Path(started).touch()
    return cancellations.setdefault(mark, threading.Event())


@server.tool
def cancelled(mark: str) -> bool:
    """Tell whether the call with that mark was cancelled, and wait for it a while."""
    return cancellations.setdefault(mark, threading.Event()).wait(10)


# Requests to the client.


@server.tool
async def greet(context: Context) -> str:
    """Ask for a name."""
    answer = await context.elicit("Your name?", Name)
    return f"Hello {answer.content.name}" if answer.content else f"You {answer.action}."


@server.tool
def greet_in_a_thread(context: Context) -> str:
    """Ask for a name, from a thread."""
    answer = context.wait(context.elicit("Your name?", Name))
    return f"Hello {answer.content.name}" if answer.content else f"You {answer.action}."


@server.tool
async def ask_twice(context: Context) -> str:
    """Ask for a name, and then for an age."""
    calls["ask_twice"] += 1
    name = (await context.elicit("Your name?", Name)).content
    age = (await context.elicit("Your age?", Age)).content
    return f"{name and name.name} is {age and age.age}"


@server.tool
async def ask_together(context: Context) -> str:
    """Ask for a name and an age at once."""
    calls["ask_together"] += 1
    answers: dict[str, str] = {}

    async def ask(message: str, kind: type[BaseModel]) -> None:
        answers[message] = str((await context.elicit(message, kind, key=message)).content)

    async with anyio.create_task_group() as questions:
        questions.start_soon(ask, "Your name?", Name)
        questions.start_soon(ask, "Your age?", Age)
    return " ".join(answers[each] for each in sorted(answers))


@server.tool(repeatable=False)
async def pay(context: Context) -> str:
    """Do what must not be done twice, and ask."""
    calls["pay"] += 1
    answer = await context.elicit("Your name?", Name)
    return f"paid by {answer.content and answer.content.name}"


@server.tool
async def consult(context: Context) -> str:
    """Ask the client's model, and where the client works."""
    said = await context.sample("hm?")
    return f"{said.text} {[root.uri for root in await context.roots()]}"


# Resources and prompts.


@server.resource("config://app", mime_type="application/json")
def config() -> dict[str, str]:
    """The settings."""
    return {"theme": "dark"}


@server.resource("users://{name}/notes", complete={"name": ["ada", "alan", "grace"]})
def notes(name: str) -> str:
    """What somebody wrote down."""
    return f"{name} was here"


@server.resource("picture://dot", mime_type="image/png")
def picture() -> bytes:
    """Some bytes."""
    return b"\x89PNG"


@server.prompt(complete={"language": ["English", "Esperanto", "Finnish"]})
def review(code: str, language: str = "English") -> str:
    """Ask for a review."""
    return f"Review in {language}: {code}"
