"""`toolwire serve`, as a process."""

import json
import os
import signal
import socket
import sys
import time

import pytest
from typer.testing import CliRunner

from shared.programs import run_program
from shared.served import MODERN, Http, Served, Stdio
from toolwire.cli.main import app as command

APP = '''
import os, subprocess, sys, time
from toolwire import Context, ToolServer

app = ToolServer("app")
print("noise at import")


@app.tool
def add(a: float, b: float) -> float:
    """Add two numbers."""
    print("noise of a print")
    os.write(1, b"noise of a descriptor\\n")
    subprocess.run([sys.executable, "-c", "print('noise of a child')"], check=True)
    return a + b


@app.tool
async def wait(seconds: float, context: Context) -> str:
    """Wait."""
    import anyio

    print(f"waiting {seconds}", file=sys.stderr, flush=True)
    await anyio.sleep(seconds)
    return "waited"


@app.tool
def hang() -> str:
    """Never end."""
    print("hanging", file=sys.stderr, flush=True)
    while True:
        time.sleep(1)


@app.tool
async def greet(context: Context) -> str:
    """Ask for a name, and greet."""
    answer = await context.elicit("Name?", {"type": "object", "properties": {"name": {"type": "string"}}})
    return f"Hello {answer.content['name']} from {os.getpid()}"


@app.tool
def pid() -> int:
    """The process."""
    return os.getpid()
'''


@pytest.fixture
def folder(tmp_path):
    """A folder with an app in it."""
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def refused(*args, cwd, env=None):
    """Return the exit code and the lines on stderr of a server that does not start."""
    with Served(*args, cwd=cwd, env=env) as served:
        code = served.wait()
        return code, served.lines


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["gone.py"], "gone.py"),
        (["app.py:ap"], "did you mean app"),
        (["app.py", "--http", "--host", "0.0.0.0"], "TOOLWIRE_TOKEN"),  # noqa: S104
        (["app.py", "--http", "--path", "mcp"], "'mcp' cannot be used"),
        (["app.py", "--http", "--port", "70000"], "out of range"),
        (["app.py", "--http", "--token-file", "gone.txt"], "gone.txt"),
        (["app.py", "--http", "--token", ""], "empty"),
        (["broken.py"], "broken.py, line 1"),
        (["http://127.0.0.1:1/mcp", "--reload"], "--reload only applies to files"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use_is_a_one_line_error(folder, args, said):
    """With exit code 2."""
    (folder / "broken.py").write_text("def (")
    code, lines = refused(*args, cwd=folder)
    assert code == 2
    assert [line for line in lines if not line.startswith("noise")] == [lines[-1]]
    assert said in lines[-1]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--workers", "3"], "--workers only applies with --http: add --http"),
        (["--port", "9000"], "--port only applies with --http"),
        (["--host", "127.0.0.1"], "--host only applies with --http"),
        (["--path", "/mcp"], "--path only applies with --http"),
        (["--token-file", "token.txt"], "--token-file only applies with --http"),
        (["--allow-origin", "https://example.com"], "--allow-origin only applies with --http"),
        (["--stateless"], "--stateless only applies with --http"),
        (["--http", "--allow-host", "*"], "'*' is not a host name"),
        (["--http", "--allow-origin", "example.com"], "'example.com' is not an origin"),
        (["--http", "--token-file", "token.bin"], "token.bin is not UTF-8 text"),
        (["--http", "--token", "gehéim"], "a header cannot carry"),
        (["--http", "--host", "", "--token", "x"], "the host is empty"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_that_make_no_sense_are_refused(folder, monkeypatch, args, said):
    """The error names the option."""
    monkeypatch.chdir(folder)
    (folder / "token.bin").write_bytes(b"\xff\xfe")
    outcome = CliRunner().invoke(command, ["serve", "app.py", *args])
    assert outcome.exit_code == 2
    assert said in outcome.stderr.replace("\n", " ")


def test_a_secret_that_is_too_short_is_refused(folder, monkeypatch):
    """A short secret could be guessed."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TOOLWIRE_STATE_SECRET", "abc")
    outcome = CliRunner().invoke(command, ["serve", "app.py", "--http"])
    assert outcome.exit_code == 2
    assert "TOOLWIRE_STATE_SECRET is too short: it needs at least 32 random bytes" in outcome.stderr


@pytest.mark.parametrize(
    ("closed", "code", "said", "answered"),
    [
        ("<&-", 2, ["Error: stdin is closed: a server over stdio needs it for its client"], False),
        (">&-", 2, ["Error: stdout is closed: a server over stdio needs it for its client"], False),
        ("2>&-", 0, [], True),
    ],
)
def test_launchers_may_close_standard_streams(folder, closed, code, said, answered):
    """Without stderr the server runs; without stdin or stdout it fails with a one-line error."""
    argv = ["/bin/sh", "-c", f'"$0" -m toolwire serve app.py {closed}', sys.executable]
    ran = run_program(argv, stdin='{"jsonrpc":"2.0","id":1,"method":"ping"}\n', cwd=folder)
    assert (ran.returncode, ran.stderr.splitlines()) == (code, said)
    assert ('"id":1' in ran.stdout) is answered


def test_a_port_in_use_is_a_one_line_error(folder):
    """The error names the address, and says what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, lines = refused("app.py", "--http", "--port", port, cwd=folder)
    assert code == 2
    assert lines[-1] == (
        f"Error: cannot listen on 127.0.0.1:{port}: Address already in use; choose another with --port, "
        "or 0 for any free one"
    )


def test_only_messages_are_written_to_stdout(folder):
    """Whatever a file and its tools print, stdout carries only JSON-RPC."""
    with Stdio("app.py", cwd=folder) as served:
        assert served.shake_hands()["serverInfo"] == {"name": "app", "version": "1.0.0"}
        served.send("tools/call", {"name": "add", "arguments": {"a": 15, "b": 27}}, 1)
        assert served.receive() == {
            "jsonrpc": "2.0",
            "id": 1,
            "result": {"content": [{"type": "text", "text": "42.0"}]},
        }
        served.process.stdin.close()
        assert served.process.stdout.read() == ""
        assert served.wait() == 0
    noise = [line for line in served.lines if line.startswith("noise")]
    assert noise == ["noise at import", "noise of a print", "noise of a descriptor", "noise of a child"]
    assert "app: 5 tools over stdio" in served.lines


def test_verbose_logs_each_request(folder):
    """Over both transports it has tool, outcome and time. Without the option no request is logged."""
    with Http("app.py", "-v", cwd=folder) as served:
        served.ask("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
        served.expect(r"INFO: tools/call add: ok in [\d.]+ ms")
    with Stdio("app.py", "--verbose", cwd=folder) as served:
        served.shake_hands()
        served.send("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, 2)
        served.answer(2)
        served.expect(r"INFO: tools/call add: ok in [\d.]+ ms")
        served.send("tools/call", {"name": "no\nsuch", "arguments": {}}, 3)
        served.answer(3)
        served.expect(r"INFO: tools/call no.+such: \w+ in [\d.]+ ms")
    with Http("app.py", cwd=folder) as served:
        served.ask("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
    assert not any("tools/call" in line for line in served.lines)


def test_invalid_lines_get_an_error_response(folder):
    """Broken JSON and wrong requests get their codes, and the server keeps running."""
    with Stdio("app.py", cwd=folder) as served:
        served.shake_hands()
        served.write("{broken")
        assert served.receive()["error"]["code"] == -32700
        served.write('{"jsonrpc":"2.0","id":7,"method":5}')
        assert (reply := served.receive())["id"] == 7
        assert reply["error"]["code"] == -32600
        served.write("[]")
        assert served.receive()["error"]["code"] == -32600
        served.write("")
        served.send("ping", request_id=8)
        assert served.receive() == {"jsonrpc": "2.0", "id": 8, "result": {}}


def test_calls_finish_after_the_end_of_input(folder):
    """A client that writes its requests and closes stdin still gets the responses."""
    with Stdio("app.py", cwd=folder) as served:
        served.shake_hands()
        served.send("tools/call", {"name": "wait", "arguments": {"seconds": 0.3}}, 1)
        served.process.stdin.close()
        assert served.answer(1)["result"]["content"][0]["text"] == "waited"
        assert served.wait() == 0


def test_listening_ends_with_its_result(folder):
    """`subscriptions/listen` of 2026-07-28 over stdio gets a result at the end of input, not an error."""
    with Stdio("app.py", cwd=folder) as served:
        served.send(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}, "_meta": MODERN}, "L"
        )
        assert served.receive()["method"] == "notifications/subscriptions/acknowledged"
        served.process.stdin.close()
        assert served.answer("L")["result"]["resultType"] == "complete"
        assert served.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_calls_finish(folder, number):
    """Over stdio: the running call gets its response, then the process exits with 0."""
    with Stdio("app.py", cwd=folder) as served:
        served.shake_hands()
        served.send("tools/call", {"name": "wait", "arguments": {"seconds": 0.5}}, 1)
        served.expect("waiting")
        served.signal(number)
        assert served.answer(1)["result"]["content"][0]["text"] == "waited"
        assert served.wait() == 0


def test_a_call_that_hangs_does_not_delay_the_shutdown(folder):
    """The server exits after the time of --drain, and reports that a call did not finish."""
    with Stdio("app.py", "--drain", "0.3", cwd=folder) as served:
        served.shake_hands()
        served.send("tools/call", {"name": "hang"}, 1)
        served.expect("hanging")
        served.signal()
        assert served.wait() == 0
    assert any("did not finish within 0.3 s" in line for line in served.lines)


def test_a_second_signal_ends_the_wait(folder):
    """So a user need not wait for running calls."""
    with Stdio("app.py", "--drain", "600", cwd=folder) as served:
        served.shake_hands()
        served.send("tools/call", {"name": "hang"}, 1)
        served.expect("hanging")
        served.signal()
        served.signal(signal.SIGINT)
        assert served.wait(20) == 0


def test_http_ends_in_bounded_time_with_streams_open(folder):
    """A running call gets its response after SIGTERM, while another client only listens."""
    with Http("app.py", "--drain", "2", cwd=folder) as served:
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

        with ThreadPoolExecutor(3) as pool:
            listening = pool.submit(
                served.ask, "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
            )
            waiting = pool.submit(served.ask, "tools/call", {"name": "wait", "arguments": {"seconds": 0.5}})
            served.expect("waiting")
            served.signal()
            assert waiting.result(20)["content"][0]["text"] == "waited"
            assert listening.result(20)["resultType"] == "complete"
        assert served.wait(20) == 0


def test_access_over_http(folder):
    """A configured token is required, other hosts and origins are refused, and the health check needs no token."""
    with Http("app.py", cwd=folder, env={"TOOLWIRE_TOKEN": "s3cret"}) as served:
        good = {"Authorization": "Bearer s3cret"}
        assert served.ask("tools/call", {"name": "pid"}, **good)["content"][0]["text"] == str(
            served.process.pid
        )
        body = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {}}
        status, headers, _ = served.request(body=body)
        assert (status, headers["WWW-Authenticate"]) == (401, 'Bearer realm="toolwire"')
        assert served.request(body=body, Authorization="Bearer wrong")[0] == 401
        assert served.request(body=body, Host="evil.example.com", **good)[0] == 421
        assert served.request(body=body, Origin="http://evil.example.com", **good)[0] == 403
        status, _, text = served.request("/healthz")
        assert (status, json.loads(text)) == (200, {"status": "ok", "server": "app", "running": 0})
        assert served.request("/healthz", Host="evil.example.com")[0] == 421
        assert served.request("/metrics")[0] == 401
        metrics = served.request("/metrics", **good)[2]
        assert 'toolwire_tool_calls_total{outcome="ok",tool="pid"} 1.0' in metrics
        assert "s3cret" not in metrics + "".join(served.lines)
        status, headers, _ = served.request(
            method="OPTIONS",
            Origin="http://localhost:6274",
            Access_Control_Request_Method="POST",
            Access_Control_Request_Headers="authorization,mcp-protocol-version",
        )
        assert (status, headers["Access-Control-Allow-Origin"]) == (200, "http://localhost:6274")


def test_several_processes_serve_with_no_affinity(folder):
    """Requests of one call may reach any process; one that dies is replaced; metrics cover all; all end."""
    with Http("app.py", "--workers", "2", cwd=folder) as served:
        seen = set()
        deadline = time.monotonic() + 30
        while len(seen) < 2 and time.monotonic() < deadline:
            result = served.ask("tools/call", {"name": "greet"})
            retry = {
                "name": "greet",
                "requestState": result["requestState"],
                "inputResponses": {
                    next(iter(result["inputRequests"])): {"action": "accept", "content": {"name": "Bo"}}
                },
            }
            greeting = served.ask("tools/call", retry)["content"][0]["text"]
            assert greeting.startswith("Hello Bo from ")
            seen.add(int(greeting.rsplit(" ", 1)[1]))
        assert len(seen) == 2, "both processes should have answered"
        counted = served.request("/metrics")[2]
        assert 'toolwire_tool_calls_total{outcome="ok",tool="greet"}' in counted
        os.kill(min(seen), signal.SIGKILL)
        served.expect(f"worker {min(seen)} exited")
        assert served.ask("tools/call", {"name": "pid"})["content"][0]["text"] != str(min(seen))
        served.signal()
        assert served.wait(20) == 0
        for each in seen:
            assert not os.path.exists(f"/proc/{each}")  # noqa: PTH110


def test_reload_announces_what_changed_and_survives_a_broken_file(folder):
    """A session survives an edit and a syntax error, and keeps the old tools meanwhile."""
    source = folder / "app.py"
    with Stdio("app.py", "--reload", cwd=folder) as served:
        served.shake_hands()
        source.write_text(APP + "\n\n@app.tool\ndef fresh() -> str:\n    'New.'\n    return 'new'\n")
        while served.receive().get("method") != "notifications/tools/list_changed":
            pass
        served.send("tools/call", {"name": "fresh"}, 1)
        assert served.answer(1)["result"]["content"][0]["text"] == "new"
        source.write_text("def (")
        served.expect("not reloaded: app.py, line 1")
        served.send("tools/call", {"name": "fresh"}, 2)
        assert served.answer(2)["result"]["content"][0]["text"] == "new"


FOREIGN = '''
from mcp.server import MCPServer

server = MCPServer("theirs")


@server.tool()
def twice(n: int) -> int:
    """Double it."""
    return 2 * n
'''


def test_servers_of_other_libraries_and_wrapped_ones_are_served_too(folder):
    """Anything that `mcp_servers` accepts can be served, in the newest version of the protocol too."""
    (folder / "theirs.py").write_text(FOREIGN)
    (folder / "wrapped.py").write_text(
        "from app import app\nfrom toolwire.wrap import prefix\nshown = prefix(app, 'x_')\n"
    )
    with Http("theirs.py", cwd=folder) as served:
        assert served.ask("tools/call", {"name": "twice", "arguments": {"n": 21}})["structuredContent"] == {
            "result": 42
        }
    with Http("wrapped.py:shown", cwd=folder) as served:
        tools = served.ask("tools/list")["tools"]
        assert [tool["name"] for tool in tools] == ["x_add", "x_wait", "x_hang", "x_greet", "x_pid"]
        assert served.ask("tools/call", {"name": "x_add", "arguments": {"a": 1}})["isError"] is True
        asked = served.ask("tools/call", {"name": "x_greet"})
        assert asked["resultType"] == "input_required"


def test_a_url_is_served_over_stdio(folder):
    """A server that is reached over HTTP is served over stdio."""
    with Http("app.py", cwd=folder) as behind, Stdio(behind.url, cwd=folder) as served:
        served.shake_hands()
        served.send("tools/call", {"name": "pid"}, 1)
        assert served.answer(1)["result"]["content"][0]["text"] == str(behind.process.pid)
