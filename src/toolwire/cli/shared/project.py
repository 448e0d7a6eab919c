"""A new project: what it may be called, and its files as text.

Pure: what is on the disk nobody here knows. The files are read by people who have not seen toolwire before, so they
show one good way of each thing and nothing else.
"""

import keyword
import re
import sys
import unicodedata
from collections.abc import Collection
from typing import Final

from toolwire._version import __version__
from toolwire.errors import UsageError

LONGEST: Final = 40
_OURS: Final = frozenset({"agent", "tests", "conftest", "toolwire", "pytest"})

_SETTINGS: Final = """\
[project]
name = "{{project}}"
version = "0.1.0"
description = "Tools for Claude, made with toolwire."
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["anyio>=4.6", "toolwire>={{version}}"]

[dependency-groups]
dev = ["pytest>=8"]

[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["."]
filterwarnings = ["error"]
"""

_SERVER: Final = '''\
"""A small notebook: tools for your own agent, and for any other MCP client."""

import anyio
from toolwire import Context, ToolError, ToolServer

NOTES = {"tea": "Buy green tea.", "bread": "Rye, from the corner shop."}

server = ToolServer(
    "{{package}}",
    instructions="Notes of a small household.",
)


@server.tool(read_only=True)
def find(word: str, limit: int = 10) -> list[str]:
    """Find notes that contain a word.

    Args:
        word: What to look for, in upper or lower case.
        limit: How many titles to give at most.
    """
    titles = [title for title, text in NOTES.items() if word.lower() in text.lower()]
    return titles[:limit]


@server.tool
def write(title: str, text: str) -> str:
    """Write a new note.

    Args:
        title: A short name that no other note has.
        text: The note itself.
    """
    if title in NOTES:
        raise ToolError(f"There is a note {title!r} already: choose another title.")
    NOTES[title] = text
    return f"Wrote {title!r}."


@server.tool(read_only=True)
async def count_words(context: Context) -> dict[str, int]:
    """Count the words of every note."""
    counts: dict[str, int] = {}
    for title, text in list(NOTES.items()):
        await anyio.sleep(0.01)  # a real tool would wait for something else
        counts[title] = len(text.split())
        context.progress(len(counts), len(NOTES), title)
    return counts


@server.resource("notes://{title}")
def note(title: str) -> str:
    """One note, whole."""
    return NOTES[title]
'''

_AGENT: Final = '''\
"""Ask Claude, who may use the tools: `python agent.py "What do I need from the shop?"`.

Runs with your own Claude Code CLI, account and model.
"""

import asyncio
import sys
from typing import Any

from toolwire import AssistantMessage, ClaudeAgentOptions, ClaudeSDKError, query

from {{package}} import server


def options(**more: Any) -> ClaudeAgentOptions:
    """Give Claude the server, and leave to call all of its tools."""
    return ClaudeAgentOptions(
        mcp_servers={"{{package}}": server},
        allowed_tools=["mcp__{{package}}"],
        **more,
    )


async def main(prompt: str) -> None:
    """Ask once and print what Claude says."""
    async for message in query(prompt=prompt, options=options()):
        if isinstance(message, AssistantMessage) and message.text:
            print(message.text)


if __name__ == "__main__":
    try:
        asyncio.run(main(" ".join(sys.argv[1:]) or "Which of my notes mention tea?"))
    except ClaudeSDKError as error:
        sys.exit(f"{error}")
'''

_TESTS: Final = '''\
"""The tools alone, and a conversation with a scripted Claude: no network, no key."""

import pytest
from toolwire import run
from toolwire.testing import call, connect, say

import {{package}}
from agent import options

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(autouse=True)
def notes(monkeypatch):
    """Fresh notes for every test."""
    notes = {"tea": "Buy green tea.", "cake": "Two eggs, and tea with it."}
    monkeypatch.setattr({{package}}, "NOTES", notes)
    return notes


async def test_find():
    async with connect({{package}}.server) as client:
        assert (await client.call("find", word="TEA")).text == '["tea","cake"]'
        assert (await client.call("find", word="tea", limit=1)).text == '["tea"]'


async def test_a_title_is_used_once(notes):
    async with connect({{package}}.server) as client:
        assert not (await client.call("write", title="milk", text="Oat.")).is_error
        again = await client.call("write", title="milk", text="Soy.")
    assert again.is_error
    assert "choose another title" in again.text
    assert notes["milk"] == "Oat."


async def test_counting_tells_how_far_it_is():
    async with connect({{package}}.server) as client:
        assert not (await client.call("count_words")).is_error
        steps = [note.params["message"] for note in client.notifications]
    assert steps == ["tea", "cake"]


async def test_a_note_can_be_read():
    async with connect({{package}}.server) as client:
        (part,) = await client.read_resource("notes://tea")
    assert part.text == "Buy green tea."


async def test_claude_writes_a_note(scripted_cli, notes):
    write = "mcp__{{package}}__write"
    scripted_cli.script(call(write, title="milk", text="Oat."), say("Noted."))
    reply = await run("Oat milk!", options=options(**scripted_cli.options_kwargs()))
    assert reply.text == "Noted."
    assert notes["milk"] == "Oat."
'''

_README: Final = """\
# {{project}}

Tools for Claude, made with toolwire. They are in `{{package}}.py`.

    pip install toolwire pytest     # or: uv sync
    pytest                          # no network, no key

| to | type |
|---|---|
| see the tools | `toolwire tools {{package}}.py` |
| call one | `toolwire call {{package}}.py find word=tea` |
| look for what Claude would trip over | `toolwire check {{package}}.py` |
| talk to Claude, who uses them | `toolwire run -t {{package}}.py "Which notes mention tea?"` |
| do so from a program | `python agent.py "Which notes mention tea?"` |
| serve them to any MCP client | `toolwire serve {{package}}.py` |
| add them to one | `toolwire config {{package}}.py --for claude-desktop --install` |

`--for` also takes `claude-code`, `cursor` and `vscode`.
"""

_IGNORED: Final = """\
__pycache__/
.pytest_cache/
.venv/
.env
"""

_FILES: Final = {
    "pyproject.toml": _SETTINGS,
    "{{package}}.py": _SERVER,
    "agent.py": _AGENT,
    "tests/test_{{package}}.py": _TESTS,
    "README.md": _README,
    ".gitignore": _IGNORED,
}


def package_name(text: str, installed: Collection[str] = ()) -> str:
    """A legal module name, as near to `text` as can be; `UsageError` if there is none that would work."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    name = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")
    if (problem := _problem(name, installed)) is not None:
        made = f" (as a package: {name!r})" if name != text and name else ""
        raise UsageError(f"a project cannot be called {text!r}{made}: {problem}")
    return name


def _problem(name: str, installed: Collection[str]) -> str | None:
    """The first thing that is wrong with a name, and what to try instead."""
    dashed = name.replace("_", "-")
    rows = (
        (not name, "it has no letter from a to z", "my-tools"),
        (name[:1].isdigit(), "a package's name cannot begin with a digit", f"tools-{dashed}"),
        (
            len(name) > LONGEST,
            f"it has {len(name)} characters, {LONGEST} is the most",
            dashed[:20].strip("-"),
        ),
        (keyword.iskeyword(name), "that is a word of the Python language", f"my-{dashed}"),
        (
            name in sys.stdlib_module_names,
            f"it would hide {name!r} of Python's standard library",
            f"my-{dashed}",
        ),
        (name in _OURS, f"there is another {name!r} in a new project", f"my-{dashed}"),
        (name in installed, f"it would hide the installed package {name!r}", f"my-{dashed}"),
    )
    return next((f"{what}. Try `toolwire new {instead}`" for wrong, what, instead in rows if wrong), None)


def files(package: str) -> dict[str, str]:
    """The files of a new project, by their path in it."""
    words = {"{{package}}": package, "{{project}}": package.replace("_", "-"), "{{version}}": __version__}

    def filled(text: str) -> str:
        for word, value in words.items():
            text = text.replace(word, value)
        return text

    return {filled(path): filled(text) for path, text in _FILES.items()}
