"""How many modules are loaded for common first steps: counted, because time would depend on the machine."""

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

# Modules that no first step needs, however they are imported. test_imports checks for heavy packages.
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
# Modules that these steps do not need yet: they are for what runs on an event loop, or has types.
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
# Limits for all modules, and for our own among them: a little above the numbers, so a new module needs a reason.
COUNTED_ON = (3, 11)
CEILINGS = {BARE: (12, 1), ASKING: (183, 53), CLIENT: (188, 58), TOOL: (280, 39)}


def loaded(code):
    """Return the modules that a fresh interpreter loads for `code`, without those that it loads anyway."""
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
    """Each first step loads no more modules than its limit, and none that only other steps need."""
    found = loaded(code)
    assert found & (NEVER | NOT_YET[code]) == set()
    most, most_own = CEILINGS[code]
    if sys.version_info[:2] != COUNTED_ON:
        most += most // 3  # other versions divide the standard library differently
    own = {name for name in found if name.partition(".")[0] == "toolwire"}
    assert (len(found) <= most, len(own) <= most_own) == (True, True), (len(found), len(own), sorted(own))


def test_only_a_docstring_with_sections_is_parsed():
    """The docstring parser is only loaded for docstrings that may have sections."""
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
    """Return what a fresh interpreter prints about a query to a CLI that ends at once: starts and error."""
    code = QUERY.replace("{more}", more)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines()]


# Modules of anyio's event loop, which is the slowest to load, and of features that few runs use.
UNUSED = {"anyio._backends._asyncio", "toolwire._conversation.observe", "toolwire.tools.search", "shutil"}


def test_the_cli_is_started_before_what_only_talking_to_it_needs():
    """Messages and their parser are loaded while the CLI starts, not before."""
    started, error = ask("")
    assert error[0] in {"ProcessError", "CLIConnectionError"}
    late = {"toolwire.messages.conversation", "toolwire._protocol.parse", "anyio._core", *UNUSED}
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
    """Wrong options raise before the CLI is started: only work that cannot fail by a user's mistake comes later."""
    assert [len(line) for line in ask(more)] == [1]


PEER = """#!{python} -IS
import json, sys

def send(**frame):
    print(json.dumps(frame), flush=True)

def receive():
    return json.loads(sys.stdin.readline())

asked = receive()["request_id"]
send(type="control_response", response={"subtype": "success", "request_id": asked, "response": {}})
receive()
params = {"name": "add", "arguments": {"a": 40, "b": 2}}
message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
request = {"subtype": "mcp_message", "server_name": "calc", "message": message}
send(type="control_request", request_id="1", request=request)
send(type="assistant", message={"content": [], "model": "none"})
answer = receive()
if answer["type"] == "control_response":
    text = answer["response"]["response"]["mcp_response"]["result"]["content"][0]["text"]
    send(type="result", subtype="success", is_error=False, session_id="s", result=text)
sys.stdin.read()
"""
CALLED = """
import asyncio, sys
import toolwire
from toolwire import ClaudeAgentOptions, ToolServer

calc = ToolServer("calc")

@calc.tool
{tool}

async def main():
    options = ClaudeAgentOptions(cli_path=sys.argv[1], mcp_servers={"calc": calc}, close_timeout=30)
    messages = toolwire.query(prompt="hello", options=options)
    async for message in messages:
        print(type(message).__name__, *([message.result] if hasattr(message, "result") else []))
        {each}
    await messages.aclose()

asyncio.run(main())
print(*sys.modules)
"""
ADD = """
{kind} add(a: int, b: int) -> int:
    return a + b
"""
HANG = """
async def add(a: int, b: int) -> int:
    running.set()
    try:
        await asyncio.sleep(3600)
    finally:
        print("cancelled", asyncio.current_task().cancelling())

running = asyncio.Event()
"""


def converse(tmp_path, tool, each="pass"):
    """Run a query that calls the tool; return what a fresh interpreter prints, and the modules that it has then."""
    peer = tmp_path / "peer"
    peer.write_text(PEER.replace("{python}", sys.executable))
    peer.chmod(0o755)
    code = CALLED.replace("{tool}", tool).replace("{each}", each)
    done = subprocess.run(
        [sys.executable, "-c", code, str(peer)], capture_output=True, text=True, check=True, timeout=60
    )
    *lines, modules = done.stdout.splitlines()
    return lines, set(modules.split())


@pytest.mark.parametrize("kind", ["async def", "def"])
def test_a_query_with_a_tool_loads_no_event_loop_of_anyio(tmp_path, kind):
    """On asyncio, a whole query with a tool call needs nothing of anyio's event loop."""
    lines, modules = converse(tmp_path, ADD.replace("{kind}", kind))
    assert lines == ["AssistantMessage", "ResultMessage 42"]
    assert modules & ((NEVER - {"toolwire.mcp"}) | UNUSED) == {"shutil"}  # loaded by Pydantic


def test_leaving_a_query_cancels_a_call_that_runs_without_anyio(tmp_path):
    """The call is cancelled once, before the loop is closed, as it is when anyio is loaded."""
    lines, modules = converse(tmp_path, HANG, "await running.wait(); break")
    assert lines == ["AssistantMessage", "cancelled 1"]
    assert modules & UNUSED == {"shutil"}


def test_a_time_limit_is_ready_before_the_first_call(tmp_path):
    """If a tool has a timeout, anyio's event loop is loaded while the CLI starts."""
    tools = ADD.replace("{kind}", "async def") + "\ncalc.tool(name='slow', timeout=60)(add)"
    lines, _ = converse(tmp_path, tools, "print('anyio._backends._asyncio' in sys.modules)")
    assert lines[:2] == ["AssistantMessage", "True"]
