"""Waiting for what no event tells: the state of files, processes and other programs."""

import time

import anyio


async def eventually(holds, within=30.0):
    """Wait until `holds()` is true; raises TimeoutError after `within` seconds."""
    with anyio.fail_after(within):
        while not holds():
            await anyio.sleep(0.005)


def wait_until(holds, within=30.0):
    """Wait until `holds()` is true, without an event loop; raises TimeoutError after `within` seconds."""
    end = time.monotonic() + within
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"not so after {within} s")
        time.sleep(0.005)
