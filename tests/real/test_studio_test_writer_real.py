"""A run of the real CLI, turned into a pytest file: it passes as written, and fails when the server changes."""

import sys

import anyio
import pytest

from shared.programs import run_python
from toolwire import ClaudeSDKClient, PermissionResultAllow, PermissionResultDeny
from toolwire.studio.test_writer import write_test
from toolwire.studio.timeline import read_recording
from toolwire.testing import call, say, turn
from toolwire.testing.recording import Recorder

pytestmark = [pytest.mark.anyio, pytest.mark.real, pytest.mark.asyncio_only]

SERVER = '''
from dataclasses import dataclass
from prices import PRICES
from toolwire import ToolServer

shop = ToolServer("shop")


@dataclass
class Order:
    item: str
    total: float


@shop.tool
def order(item: str, number: int = 1) -> Order:
    """Order something."""
    return Order(item, PRICES[item] * number)


@shop.tool
async def quote(item: str) -> str:
    """Tell the price."""
    return f"{item!r} costs\\n\\t{PRICES[item]}"


@shop.tool
def nothing() -> None:
    """Do nothing."""
'''


async def decide(_tool, given, _context):
    """Deny gold, allow everything else."""
    return (
        PermissionResultDeny(message="too 'dear'\n")
        if given.get("item") == "gold"
        else PermissionResultAllow()
    )


def run_pytest(folder):
    """Run the tests of a folder, as its user would."""
    return run_python("-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", ".", cwd=folder)


def load_server(folder):
    """Return the server of the folder, for the run that is recorded."""
    names = {"__name__": "shop_app", "PRICES": {}}
    sys.path.insert(0, str(folder))
    try:
        exec(compile(SERVER, "app.py", "exec"), names)  # noqa: S102 - our own text
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("prices", None)
    return names["shop"]


async def test_a_recorded_run_becomes_a_test(scripted, tmp_path):
    """The test covers failures, denials, structured results and two prompts, and fails when the server changes."""
    folder = tmp_path / "project"
    (folder / "tests").mkdir(parents=True)
    (folder / "app.py").write_text(SERVER)
    (folder / "prices.py").write_text('PRICES = {"tea": 4.0, "it\'s": 1.0, "gold": 900.0}\n')
    path = tmp_path / "run.jsonl"
    script = [
        turn(say("I ask.\n"), call("mcp__shop__quote", item="tea"), call("mcp__shop__quote", item="it's")),
        call("mcp__shop__quote", item="gold"),
        call("mcp__shop__order", item="tea", number=3),
        call("mcp__shop__order", item="unicorn"),
        call("mcp__shop__order", {"number": "many"}),
        call("Bash", command="echo hi"),
        call("mcp__shop__nothing"),
        say('Done, "dear".'),
        call("mcp__shop__order", item="tea"),
        say("Again."),
    ]
    given = {
        "mcp_servers": {"shop": load_server(folder)},
        "can_use_tool": decide,
        "spawn_claude_code_process": Recorder(path),
    }
    async with scripted(script, **given) as (_, options):
        with anyio.fail_after(90):
            async with ClaudeSDKClient(options) as client:
                for prompt in ("Order 'tea'", "And again,\nplease"):
                    await client.query(prompt)
                    async for _ in client.receive_response():
                        pass
    (timeline,) = read_recording(path)
    source = write_test(timeline, str(folder / "app.py:shop"), folder=folder / "tests")
    (folder / "tests" / "test_recorded.py").write_text(source)
    assert '# Left out: a call of "Bash", a built-in tool of Claude Code.' in source
    assert '"../app.py"' in source
    passed = await anyio.to_thread.run_sync(run_pytest, folder)
    assert passed.returncode == 0, passed.stdout + source
    assert "1 passed" in passed.stdout

    for file, old, new in (
        ("app.py", "Order(item,", "Order(item.upper(),"),
        ("prices.py", '"gold"', '"unicorn": 1.0, "gold"'),
    ):
        was = (folder / file).read_text()
        assert old in was
        (folder / file).write_text(was.replace(old, new))
        failed = await anyio.to_thread.run_sync(run_pytest, folder)
        (folder / file).write_text(was)
        assert failed.returncode == 1, failed.stdout
        assert "1 failed" in failed.stdout
        assert "assert calls ==" in failed.stdout
