"""The real CLI with `toolwire serve` as an external server, over stdio and over HTTP."""

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from shared.waiting import eventually
from toolwire import ClaudeSDKClient, ElicitationRequest, ElicitationResult, McpProgressMessage
from toolwire.testing import call, say, turn

pytestmark = [pytest.mark.anyio, pytest.mark.real]

APP = Path(__file__).parents[1] / "shared" / "served_app.py"
LIMIT = 60
SERVE = ["-m", "toolwire", "serve", str(APP)]


@contextmanager
def served(transport, log):
    """Serve the app as an external server; yield its configuration."""
    if transport == "stdio":
        yield {"command": sys.executable, "args": SERVE}
        return
    with log.open("wb") as stdout:
        server = subprocess.Popen(
            [sys.executable, *SERVE, "--http", "--port", "0"],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )
    with server:
        try:
            line = next(line for line in server.stderr if " at http://" in line)
            yield {"type": "http", "url": line.split(" at ")[1].strip()}
        finally:
            server.terminate()
            said = server.communicate(timeout=LIMIT)[1]
    assert (server.returncode, said) == (0, "")


async def answered(client, prompt):
    await client.query(prompt)
    return [message async for message in client.receive_response()]


def accept(request: ElicitationRequest) -> ElicitationResult:
    """Answer the elicitations of the app."""
    return ElicitationResult(
        "accept", {"Your name?": {"name": "Ada"}, "Your age?": {"age": 36}}[request.message]
    )


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_conversation(scripted, transport, tmp_path, anyio_backend):
    """Tools are offered and called; errors, elicitations, new tools and resources reach the CLI."""
    played = [
        (call("mcp__app__add", a=15, b=27), "42.0"),
        (call("mcp__app__fail", reason="no tea"), "no tea"),
        (call("mcp__app__add", a="x"), "Validation failed: a: Input should be a valid number"),
        (call("mcp__app__ask_twice"), "Ada is 36"),
        (call("mcp__app__grow", name="grown"), "grown"),
        # Meanwhile the CLI is notified of the new tool and lists again.
        (turn(call("mcp__app__steps", upto=3), delay=0.5), "there"),
        (call("mcp__app__grown"), "I am new"),
        (call("ListMcpResourcesTool", server="app"), '[{"name":"config","uri":"config://app"'),
        (call("ReadMcpResourceTool", server="app", uri="config://app"), r"{\"theme\":\"dark\"}"),
    ]
    with served(transport, tmp_path / "stdout") as config:
        async with scripted(
            [*(step for step, _ in played), say("done")],
            mcp_servers={"app": config},
            allowed_tools=["mcp__app"],
            include_all_messages=True,
            on_elicitation=accept,
        ) as (model, options):
            with anyio.fail_after(LIMIT):
                async with ClaudeSDKClient(options) as client:
                    messages = await answered(client, "go")
                    (status,) = (await client.get_mcp_status())["mcpServers"]
            requests = model.requests
    results = [request.tool_results[0] for request in requests[1:]]
    for result, (_, text) in zip(results, played, strict=True):
        assert text in result.text
    assert [number for number, result in enumerate(results) if result.is_error] == [1, 2]
    offered = {each["name"]: each for each in requests[0].body["tools"]}
    assert offered["mcp__app__add"]["description"] == "Add two numbers."
    assert offered["mcp__app__add"]["input_schema"]["required"] == ["a", "b"]
    assert "mcp__app__grown" not in requests[4].tools
    assert "mcp__app__grown" in requests[6].tools
    assert (status["status"], status["serverInfo"]["name"]) == ("connected", "everyday")
    # The CLI requests progress from external servers and does not pass it on.
    assert not [message for message in messages if isinstance(message, McpProgressMessage)]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_an_interrupt(scripted, transport, tmp_path, anyio_backend):
    """An interrupt in mid-call cancels the tool in the other process, be it a coroutine or a thread."""
    script = []
    for tool in ("hang", "busy"):
        script += [
            call(f"mcp__app__{tool}", mark=tool, started=str(tmp_path / tool)),
            call("mcp__app__cancelled", mark=tool),
            say("done"),
        ]
    with served(transport, tmp_path / "stdout") as config:
        async with scripted(script, mcp_servers={"app": config}, allowed_tools=["mcp__app"]) as (
            model,
            options,
        ):
            with anyio.fail_after(LIMIT):
                async with ClaudeSDKClient(options) as client:
                    for tool in ("hang", "busy"):
                        await client.query("take your time")
                        await eventually((tmp_path / tool).exists)
                        await client.interrupt()
                        ended = [message async for message in client.receive_response()]
                        assert ended[-1].terminal_reason == "aborted_tools"
                        await answered(client, "was it cancelled?")
                        assert model.requests[-1].tool_results[0].text == "true"
