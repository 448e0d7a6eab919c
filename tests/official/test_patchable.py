"""Internal classes of the official package: a library's patches take effect, and stop when they are undone.

Each test is a program in a process of its own, with a CLI that is a few lines of Python.
"""

import os
import sys

import pytest

from shared.programs import run_python

pytestmark = pytest.mark.process

# Answers `initialize`, asks for a tool of the server `calc` and for a hook, and says "done".
CLI = """#!{python}
import json, os, sys

def write(**frame):
    print(json.dumps(frame), flush=True)

def request(number, **body):
    write(type="control_request", request_id=str(number), request=body)

if "bad" in os.environ.get("CLI_MODE", ""):
    sys.stderr.write("went wrong\\n")
    sys.exit(3)
for line in sys.stdin:
    frame = json.loads(line)
    if frame["type"] == "control_request":
        hooks = (frame["request"].get("hooks") or {{}}).get("PreToolUse")
        response = {{"subtype": "success", "request_id": frame["request_id"], "response": {{}}}}
        write(type="control_response", response=response)
    elif frame["type"] == "user":
        write(type="system", subtype="init", session_id="s", tools=[], env=os.environ.get("ADDED"))
        params = {{"name": "add", "arguments": {{"a": 1, "b": 2}}}}
        message = {{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}}
        request(1, subtype="mcp_message", server_name="calc", message=message)
    elif frame["response"]["request_id"] == "1" and hooks:
        text = frame["response"]["response"]["mcp_response"]["result"]["content"][0]["text"]
        hook_input = {{"hook_event_name": "PreToolUse", "tool_name": text, "tool_input": {{}}}}
        callback = hooks[0]["hookCallbackIds"][0]
        request(2, subtype="hook_callback", callback_id=callback, input=hook_input, tool_use_id="t")
    else:
        usage = {{"input_tokens": 1, "output_tokens": 1}}
        text = {{"type": "text", "text": "done"}}
        write(type="assistant", session_id="s", message={{"role": "assistant", "model": "m", "content": [text]}})
        write(type="result", subtype="success", is_error=False, duration_ms=1, duration_api_ms=1, num_turns=1,
              session_id="s", total_cost_usd=0.0, usage=usage, result="done")
"""

# `ask` and `talk` run a conversation by query() and by a client; both give the names of the messages' classes.
START = """
import toolwire; toolwire.install_as_official()
import anyio, os, sys
import claude_agent_sdk
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, HookMatcher, create_sdk_mcp_server, query, tool

@tool("add", "Add", {"a": float, "b": float})
async def add(args):
    return {"content": [{"type": "text", "text": str(args["a"] + args["b"])}]}

async def hook(hook_input, tool_use_id, context):
    print("hook", hook_input["tool_name"])
    return {}

def options(**more):
    server = create_sdk_mcp_server("calc", tools=[add])
    hooks = {"PreToolUse": [HookMatcher(hooks=[hook])]}
    return ClaudeAgentOptions(mcp_servers={"calc": server}, hooks=hooks, cli_path=os.environ["CLI"], **more)

async def _ask(given=None, transport=None):
    with anyio.fail_after(60):
        return [m async for m in query(prompt="go", options=given or options(), transport=transport)]

async def _talk():
    with anyio.fail_after(60):
        async with ClaudeSDKClient(options()) as client:
            await client.query("go")
            return [m async for m in client.receive_response()]

def names(messages):
    return " ".join(type(each).__name__ for each in messages)

def ask(*given):
    return names(anyio.run(_ask, *given, backend=sys.argv[1]))

def talk():
    return names(anyio.run(_talk, backend=sys.argv[1]))
"""
SEEN = "SystemMessage AssistantMessage ResultMessage"


@pytest.fixture
def run(tmp_path):
    """Run a program and return the lines that it prints."""
    cli = tmp_path / "claude"
    cli.write_text(CLI.format(python=sys.executable))
    cli.chmod(0o755)

    def run(code, backend="asyncio", **variables):
        env = {
            "PATH": os.defpath,
            "HOME": str(tmp_path),
            "CLI": str(cli),
            "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
            **variables,
        }
        done = run_python("-W", "error", "-c", START + code, backend, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_patched_transport_starts_every_cli(run, backend):
    """Options that a library changes at `connect()`, to insert a proxy, reach the CLI."""
    lines = run(
        """
from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport as T
connect, close = T.connect, T.close
async def connecting(self):
    self._options.env["ADDED"] = "by a library"
    await connect(self)
    print("connected", self.is_ready(), os.path.basename(self._cli_path))
async def closing(self):
    await close(self)
    print("closed", self.is_ready())
T.connect, T.close = connecting, closing
print(ask())
print(talk())
async def show():
    async with ClaudeSDKClient(options()) as client:
        print(type(client._transport).__name__)
        await client.query("go")
        print([m async for m in client.receive_response()][0].data["env"])
anyio.run(show, backend=sys.argv[1])
T.connect, T.close = connect, close
print(ask())
""",
        backend,
    )
    started, closed = "connected True claude", "closed False"
    assert lines == [
        *(started, "hook 3", closed, SEEN) * 2,
        *(started, "SubprocessCLITransport", "hook 3", "by a library", closed),
        *("hook 3", SEEN),
    ]


def test_a_transport_can_be_subclassed_wrapped_and_looked_at(run):
    """Programs pass their own subclass, put a transport around it, or read the command line that it would start."""
    assert run(f"""
from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport
class Mine(SubprocessCLITransport):
    async def connect(self):
        await super().connect()
        print("mine")
class Around(claude_agent_sdk.Transport):
    def __init__(self, inner): self.inner = inner
    async def connect(self): await self.inner.connect()
    async def write(self, data): await self.inner.write(data)
    async def read_messages(self):
        async for frame in self.inner.read_messages():
            yield frame
    async def close(self): await self.inner.close()
    def is_ready(self): return self.inner.is_ready()
    async def end_input(self): await self.inner.end_input()
given = options(max_turns=3)
print(ask(given, Mine("go", given)))
print(ask(given, Around(Mine(prompt="go", options=given))) == {SEEN!r})
command = SubprocessCLITransport(prompt="go", options=given)._build_command()
print(os.path.basename(command[0]), command[command.index("--max-turns") + 1])
claude_agent_sdk._internal.transport.subprocess_cli.SubprocessCLITransport = Mine
print(talk())
claude_agent_sdk._internal.client.SubprocessCLITransport = Mine
print(ask())
""") == ["mine", "hook 3", SEEN, "mine", "hook 3", "True", "claude 3", *("mine", "hook 3", SEEN) * 2]


def test_permission_requests_can_be_configured_for_a_transport(run):
    """Programs that make the transport themselves first call the function that prepares `can_use_tool` for it."""
    assert run("""
from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport
from claude_agent_sdk.types import _configure_can_use_tool
async def decide(name, arguments, context): ...
given = _configure_can_use_tool(options(can_use_tool=decide))
print(given.can_use_tool is decide)
command = SubprocessCLITransport(prompt="", options=given)._build_command()
print(command[command.index("--permission-prompt-tool") + 1])
""") == ["True", "stdio"]


def test_a_process_that_fails_is_a_process_error(run):
    """This holds with a patched transport as without one."""
    assert run(
        """
from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport as T
async def fail():
    try:
        await _ask()
    except claude_agent_sdk.ProcessError as error:
        print(error.exit_code, error.stderr)
anyio.run(fail)
connect = T.connect
T.connect = lambda self: connect(self)
anyio.run(fail)
transport = T("go", options())
async def write():
    try:
        await transport.write("{}")
    except claude_agent_sdk.CLIConnectionError as error:
        print(str(error).partition(":")[0])
anyio.run(write)
""",
        CLI_MODE="bad",
    ) == ["3 went wrong", "3 went wrong", "The CLI is not running"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_patched_methods_of_query_are_called(run, backend):
    """Requests of the CLI, calls of in-process servers and frames go through them, until they are unpatched."""
    lines = run(
        """
from claude_agent_sdk._internal.query import Query
handle, call, receive = Query._handle_control_request, Query._handle_sdk_mcp_request, Query.receive_messages
async def handling(self, request):
    print("request", request["request"]["subtype"], self._mark)
    return await handle(self, request)
async def calling(self, server_name, message):
    response = await call(self, server_name, message)
    print("server", server_name, message["method"], response["result"]["content"][0]["text"])
    return response
async def receiving(self):
    self._mark = "marked"
    async for frame in receive(self):
        print("frame", frame["type"])
        yield frame
Query._mark = "new"
Query._handle_control_request, Query._handle_sdk_mcp_request = handling, calling
print(ask())
async def show():
    async with ClaudeSDKClient(options()) as client:
        print(type(client._query) is Query, client._query.transport)
anyio.run(show, backend=sys.argv[1])
Query._handle_control_request, Query._handle_sdk_mcp_request = handle, call
Query.receive_messages = receiving
print(talk())
Query.receive_messages = receive
print(ask())
""",
        backend,
    )
    assert lines[:4] == [
        "request mcp_message new",
        "server calc tools/call 3",
        "request hook_callback new",
        "hook 3",
    ]
    assert lines[4:6] == [SEEN, "True None"]
    assert [line for line in lines[6:] if line != "hook 3"] == [
        *("frame system", "frame assistant", "frame result", SEEN),
        SEEN,
    ]
