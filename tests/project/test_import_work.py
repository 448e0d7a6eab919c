"""How much is loaded for a first step, counted in modules: time would depend on the machine."""

import subprocess
import sys

import pytest

BARE = "import toolwire"
ASKING = """
from toolwire import ClaudeAgentOptions, query
query(prompt="hello", options=ClaudeAgentOptions(allowed_tools=["Read"]))
"""
CLIENT = "from toolwire import ClaudeSDKClient; ClaudeSDKClient()"
TOOL = '''
from toolwire import ToolServer
server = ToolServer("calc")

@server.tool
async def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b
'''
SECTIONS = TOOL.replace(
    "two numbers.", "two numbers.\n\n    Args:\n        a: One.\n        b: Another.\n    "
)

# What no first step needs, however it comes in. That nothing heavy is loaded at all, see test_imports.
NEVER = {
    *(
        "mcp",
        "mcp_types",
        "httpx",
        "httpx2",
        "httpcore",
        "h11",
        "starlette",
        "uvicorn",
        "http.client",
        "http.server",
    ),
    *(
        "typer",
        "rich",
        "click",
        "jsonschema",
        "jsonschema_rs",
        "opentelemetry",
        "stamina",
        "prometheus_client",
    ),
    *("trio", "uvloop", "multiprocessing", "unittest", "sqlite3", "claude_agent_sdk", "toolwire.testing"),
    *("toolwire.catalog", "toolwire.mcp", "toolwire.cli", "pytest", "difflib", "docstring_parser"),
}
# Only what runs on an event loop, or has a type in it, needs these.
NOT_YET = {
    BARE: {"asyncio", "anyio", "typing", "re", "json", "logging", "inspect", "pydantic", "email"},
    ASKING: {
        "pydantic",
        "email",
        "importlib.metadata",
        "tempfile",
        "anyio._backends",
        "toolwire.client.controls",
    },
    CLIENT: {"pydantic", "email", "importlib.metadata", "tempfile", "anyio._backends", "toolwire.tools.tool"},
    TOOL: {"anyio._backends", "toolwire.options", "toolwire.messages", "toolwire.tools.dispatch.connection"},
}
# All modules and our own among them. A little above what it is: a new module here wants a reason.
COUNTED_ON = (3, 11)
CEILINGS = {BARE: (12, 1), ASKING: (200, 64), CLIENT: (206, 69), TOOL: (281, 41)}


def loaded(code):
    """The modules that a fresh interpreter loads for `code`, beside those that it has anyway."""
    show = "import sys; print(*sys.modules)"
    ran = [
        subprocess.run(
            [sys.executable, "-c", each], capture_output=True, text=True, check=True
        ).stdout.split()
        for each in (show, f"{code}\n{show}")
    ]
    return set(ran[1]) - set(ran[0])


@pytest.mark.parametrize("code", CEILINGS, ids=["bare", "asking", "client", "tool"])
def test_a_first_step_loads_little(code):
    """Each first step loads no more modules than it did, and none of what other steps need."""
    found = loaded(code)
    assert found & (NEVER | NOT_YET[code]) == set()
    most, most_own = CEILINGS[code]
    if sys.version_info[:2] != COUNTED_ON:
        most += most // 3  # the standard library of another version is cut otherwise
    own = {name for name in found if name.partition(".")[0] == "toolwire"}
    assert (len(found) <= most, len(own) <= most_own) == (True, True), (len(found), len(own), sorted(own))


def test_only_a_docstring_with_sections_is_parsed():
    """The parser of docstrings is loaded for those that can have sections."""
    assert "docstring_parser" in loaded(SECTIONS)


QUERY = """
import asyncio, sys
import toolwire
from toolwire import ClaudeAgentOptions

def watch(event, arguments):
    if event == "subprocess.Popen":
        print("started", *sys.modules)

async def main():
    async for _ in toolwire.query(prompt="hello", options=ClaudeAgentOptions(cli_path=sys.executable, {more})):
        pass

sys.addaudithook(watch)
try:
    asyncio.run(main())
except Exception as error:
    print(type(error).__name__)
"""


def ask(more):
    """What a fresh interpreter prints about a query to a CLI that ends at once: each start of it, and the error."""
    code = QUERY.replace("{more}", more)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines()]


def test_the_cli_is_started_before_what_only_talking_to_it_needs():
    """Messages, their parser and anyio's event loop are loaded while the CLI starts, not before."""
    started, error = ask("")
    assert error[0] in {"ProcessError", "CLIConnectionError"}
    late = {
        "toolwire.messages.conversation",
        "toolwire._protocol.parse",
        "anyio._core",
        "anyio._backends._asyncio",
    }
    assert late & set(started) == set()
    assert "toolwire._conversation.session" in started


@pytest.mark.parametrize(
    "more",
    [
        "mcp_servers={'a': object()}",
        "agents={'a': 3}",
        "can_use_tool=3",
        "hooks={'PreToolUse': [3]}",
        "cwd='/nowhere/at/all'",
    ],
)
def test_what_is_wrong_with_the_users_objects_is_raised_before_the_cli_is_started(more):
    """Nothing is moved behind the start but what cannot be the user's mistake."""
    assert [len(line) for line in ask(more)] == [1]
