"""Reloading while a server runs: a changed file is loaded again; a broken one leaves the old server in place."""

import os
import signal
import textwrap
from contextlib import asynccontextmanager

import anyio
import pytest

from toolwire import ClaudeSDKError
from toolwire.cli.shared.target import reload, reload_on_change, resolve
from toolwire.errors import UsageError
from toolwire.mcp.serve.host import ServerHost

pytestmark = pytest.mark.anyio

GOOD = """
    from contextlib import asynccontextmanager
    from toolwire import ToolServer

    @asynccontextmanager
    async def life(_server):
        {opening}
        yield

    server = ToolServer("live", lifespan=life)

    @server.tool
    async def {name}() -> str:
        return "ok"
"""


@pytest.fixture
def app(tmp_path, monkeypatch):
    """Return a file in a working directory."""
    monkeypatch.chdir(tmp_path)
    handler = signal.signal(signal.SIGINT, lambda *_: None)  # while a server runs, SIGINT has a handler too
    yield Edited(tmp_path / "live_app.py")
    signal.signal(signal.SIGINT, handler)


class Edited:
    """A source file; each version that is written has a newer modification time than the last."""

    def __init__(self, path):
        self.path = path
        self._versions = 0

    def write(self, text):
        self._versions += 1
        self.path.write_text(textwrap.dedent(text))
        os.utime(self.path, (self._versions, self._versions))


@asynccontextmanager
async def followed(serving, target):
    """Serve the target and reload it on changes; yields a stream of the reports."""
    send, said = anyio.create_memory_object_stream(10)
    with anyio.fail_after(20), send, said:
        async with serving.open(), anyio.create_task_group() as tasks:
            tasks.start_soon(reload_on_change, target, serving.replace, send.send_nowait)
            await anyio.wait_all_tasks_blocked()
            yield said
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("kind", ["KeyboardInterrupt", "SystemExit", "ValueError"])
def test_a_file_that_ends_the_program_is_refused(app, kind):
    """Whatever the file raises while it is loaded again, the old server still works."""
    app.write(GOOD.format(opening="pass", name="old"))
    target = resolve("live_app.py")
    app.write(f"raise {kind}")
    with pytest.raises(UsageError, match="live_app"):
        reload(target)
    assert list(target.server.tools) == ["old"]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise SystemExit", "exited while"),
        (GOOD.format(opening="raise RuntimeError('no database')", name="new"), "no database"),
        (GOOD.format(opening="raise KeyboardInterrupt", name="new"), "KeyboardInterrupt"),
    ],
)
async def test_a_bad_version_leaves_the_old_one_until_a_good_one_comes(app, bad, words):
    """A file that does not load, or whose server does not start, is reported; the next good one is used."""
    app.write(GOOD.format(opening="pass", name="old"))
    target = resolve("live_app.py")
    serving = ServerHost(target.server, name="live")
    async with followed(serving, target) as said:
        app.write(bad)
        report = await said.receive()
        assert report.startswith("not reloaded")
        assert words in report
        assert list(serving.server.tools) == ["old"]
        app.write(GOOD.format(opening="pass", name="newest"))
        assert (await said.receive()).startswith("reloaded")
        assert list(serving.server.tools) == ["newest"]


async def test_whatever_goes_wrong_the_file_is_still_watched(app):
    """An unexpected error is reported like an expected one."""
    app.write(GOOD.format(opening="pass", name="old"))
    target = resolve("live_app.py")
    errors = [LookupError("odd"), ClaudeSDKError("known")]
    send, said = anyio.create_memory_object_stream(10)

    async def replace(_server):
        raise errors.pop(0)

    with anyio.fail_after(20), send, said:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reload_on_change, target, replace, send.send_nowait)
            await anyio.wait_all_tasks_blocked()
            app.write(GOOD.format(opening="pass", name="one"))
            assert await said.receive() == "not reloaded: LookupError: odd"
            app.write(GOOD.format(opening="pass", name="two"))
            assert await said.receive() == "not reloaded: known"
            tasks.cancel_scope.cancel()
