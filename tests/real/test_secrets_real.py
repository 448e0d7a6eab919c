"""The real CLI with secrets in the options: no command line shows them, and no log, span or error of toolwire."""

import http.server
import logging
import os
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from toolwire import ClaudeSDKClient, ControlRequestError, PermissionResultAllow, ToolServer
from toolwire.testing import call, say

pytestmark = [pytest.mark.anyio, pytest.mark.real]

LIMIT = 90
APP = Path(__file__).parents[1] / "shared" / "served_app.py"
SECRETS = [
    f"very-secret-{what}-1234" for what in ("header", "token", "password", "env", "setting", "tool", "dsn")
]
HEADER, TOKEN, PASSWORD, ENV, SETTING, TOOL, DSN = SECRETS


@contextmanager
def refusing_server():
    """Run a server that refuses all requests; yield its port, and the paths and headers that it got."""
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            seen.append(f"{self.path} {self.headers}")
            self.send_response(403)
            self.end_headers()

        do_GET = do_DELETE = do_POST  # noqa: N815

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port, seen
        finally:
            server.shutdown()


def command_lines():
    """Return the command line of every process below this one."""
    parents, lines = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                lines[int(entry.name)] = (entry / "cmdline").read_bytes().decode(errors="replace")
            except (OSError, IndexError):
                continue

    def below(pid):
        while pid in parents:
            pid = parents[pid]
            if pid == os.getpid():
                return True
        return False

    return [line for pid, line in lines.items() if below(pid)]


@pytest.fixture
def spans(monkeypatch):
    """Return a function that gives all spans of a test as text."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(trace, "get_tracer", lambda *args, **kwargs: provider.get_tracer("test"))
    return lambda: "\n".join(span.to_json() for span in exporter.get_finished_spans())


def shown(text):
    return [secret for secret in SECRETS if secret in text]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_no_process_log_error_or_span_shows_a_secret(scripted, tmp_path, monkeypatch, caplog, spans):
    """Headers, URLs, variables and settings reach the servers, but no command line, log, error or span."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    broken = ToolServer("broken")

    @broken.tool
    def fail() -> str:
        """Fail with a secret."""
        raise RuntimeError(f"cannot log in with {TOOL}")

    async def decide(tool, given, context):
        if tool.startswith("mcp__"):
            return PermissionResultAllow()
        raise ValueError(f"no access to postgres://me:{DSN}@db.example/x")

    script = [
        call("mcp__app__add", a=15, b=27),
        call("mcp__broken__fail"),
        call("Bash", command="touch made"),
        say("done"),
    ]
    with anyio.fail_after(LIMIT), refusing_server() as (port, seen):
        servers = {
            "web": {
                "type": "http",
                "url": f"http://127.0.0.1:{port}/mcp?access_token={TOKEN}",
                "headers": {"X-Custom": HEADER},
            },
            "app": {
                "command": sys.executable,
                "args": ["-m", "toolwire", "serve", str(APP)],
                "env": {"DB_PWD": ENV, "PROXY": f"http://me:{PASSWORD}@proxy.example"},
            },
            "broken": broken,
        }
        async with scripted(
            script,
            mcp_servers=servers,
            settings={"env": {"SMTP_PASS": SETTING}},
            can_use_tool=decide,
            tracing=True,
            extra={"MY_TOKEN": TOOL},
        ) as (_model, options):
            files = sorted(tmp_path.iterdir())
            async with ClaudeSDKClient(options) as client:
                assert list(tmp_path.rglob("mcp-config.json")) == []
                lines = command_lines()
                await client.query("go")
                async for message in client.receive_response():
                    lines += command_lines()
                    logging.getLogger("toolwire.test").debug("%s", type(message).__name__)
                status = {
                    each["name"]: each["status"] for each in (await client.get_mcp_status())["mcpServers"]
                }
                with pytest.raises(ControlRequestError) as caught:
                    await client.reconnect_mcp_server("web")
                lines += command_lines()
            assert sorted(tmp_path.iterdir()) == files
    assert status["app"] == "connected"
    assert any("mcp-config" in line for line in lines)
    assert any("served_app" in line for line in lines)
    assert any(TOKEN in each and HEADER in each for each in seen), "the server got them"
    assert shown("\n".join(lines)) == []
    assert shown(caplog.text) == []
    assert "cannot log in with <redacted>" in caplog.text
    assert "toolwire.permission" in spans()
    assert shown(spans()) == []
    assert shown(f"{caught.value} {caught.value!r} {options!r}") == []
