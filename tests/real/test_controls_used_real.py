"""Control requests at work in the real CLI: queued prompts, another folder, a second initialize, checkpoints."""

import uuid
from pathlib import Path

import anyio
import pytest

from toolwire import ClaudeSDKClient, ToolServer
from toolwire.testing import call, say

pytestmark = [pytest.mark.anyio, pytest.mark.real, pytest.mark.asyncio_only]  # each test starts a CLI

LIMIT = 60


async def test_waiting_prompts_are_on_the_receipt(scripted):
    """A queued prompt can be cancelled once, and the response to interrupt() names the others it cancelled."""
    server, started = ToolServer("calc"), anyio.Event()

    @server.tool
    async def wait() -> str:
        """Wait for ever."""
        started.set()
        await anyio.sleep_forever()

    def prompt(text, name):
        return {"type": "user", "message": {"role": "user", "content": text}, "uuid": name}

    async def first():
        yield prompt("one", str(uuid.uuid4()))

    waiting = [str(uuid.uuid4()), str(uuid.uuid4())]

    async def later():
        for number, name in enumerate(waiting):
            yield prompt(f"later {number}", name)

    given = {"mcp_servers": {"calc": server}, "allowed_tools": ["mcp__calc"]}
    with anyio.fail_after(LIMIT):
        async with (
            scripted([call("mcp__calc__wait")], **given) as (_, options),
            ClaudeSDKClient(options) as client,
        ):
            await client.query(first())
            await started.wait()
            await client.query(later())
            assert await client.cancel_async_message(waiting[0])
            assert not await client.cancel_async_message(waiting[0])
            receipt = await client.interrupt(cancel_queued=True)
    assert receipt == {"still_queued": [], "cancelled": [waiting[1]]}


async def test_a_move_needs_trust_first(scripted):
    """Moving to an untrusted folder returns "needs_trust"; with trust, the session moves there."""
    with anyio.fail_after(LIMIT):
        async with scripted([]) as (_, options):
            folder = Path(options.cwd) / "sub"
            folder.mkdir()
            async with ClaudeSDKClient(options) as client:
                asked = await client.set_cwd(folder)
                moved = await client.set_cwd(folder, trusted_directory=asked["directory"])
    assert asked == {"status": "needs_trust", "directory": str(folder)}
    assert (moved["status"], moved["cwd"], moved["changed"]) == ("ok", str(folder), True)


async def test_proactivity_after_initializing_again(scripted):
    """A second initialize may request proactivity, although the first did not."""
    with anyio.fail_after(LIMIT):
        async with scripted([]) as (_, options), ClaudeSDKClient(options) as client:
            again = await client.reinitialize(proactivity=True)
            assert again["claude_code_version"] == (await client.get_binary_version())["version"]
            assert (await client.set_proactivity_level("proactive"))["level"] == "proactive"


async def test_files_go_back_after_a_look(scripted):
    """A dry run names the file that changed and leaves it; the real one restores the state before the prompt."""
    name = str(uuid.uuid4())

    async def prompts():
        yield {"type": "user", "message": {"role": "user", "content": "Brew."}, "uuid": name}

    with anyio.fail_after(LIMIT):
        async with scripted(
            [lambda request: call("Write", file_path=str(file), content="tea\n"), say("done")],
            permission_mode="acceptEdits",
            enable_file_checkpointing=True,
        ) as (_, options):
            file = Path(options.cwd) / "pot.txt"
            async with ClaudeSDKClient(options) as client:
                await client.query(prompts())
                async for _message in client.receive_response():
                    pass
                dry = await client.rewind_files(name, dry_run=True)
                assert file.read_text() == "tea\n"
                done = await client.rewind_files(name)
                assert not file.exists()
    assert (dry["canRewind"], dry["filesChanged"]) == (True, [str(file)])
    assert done["canRewind"]
