"""The CLI's sandbox, switched on by an option as the docs show."""

import anyio
import pytest

from toolwire import ResultError, run
from toolwire.permissions.policies import allow
from toolwire.testing import call, say

pytestmark = [pytest.mark.anyio, pytest.mark.real]

SANDBOX = {
    "enabled": True,
    "failIfUnavailable": True,
    "autoAllowBashIfSandboxed": False,
    "allowUnsandboxedCommands": False,
}


@pytest.mark.parametrize("sandbox", [None, SANDBOX], ids=["without", "with"])
async def test_a_command_cannot_write_outside(scripted, tmp_path, sandbox):
    """With a sandbox the file is not written: the write fails, or the CLI refuses to start without one."""
    outside = tmp_path / "outside"
    script = [call("Bash", command=f"touch {outside}", description="write"), say("done")]
    options = {"can_use_tool": allow("Bash"), **({"sandbox": sandbox} if sandbox else {})}
    said = ""
    async with scripted(script, finished=False, **options) as (_, ready):
        with anyio.fail_after(60):
            try:
                await run("go", options=ready)
            except ResultError as error:
                said = str(error)
    assert not said or (sandbox and "sandbox" in said.lower())
    assert outside.exists() == (sandbox is None)
