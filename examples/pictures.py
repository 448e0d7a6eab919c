"""Pictures both ways: one in the prompt, one from a tool."""

import base64
import time
from collections.abc import AsyncIterator
from typing import Any

from offline import claude, main, show

from toolwire import Image, ToolServer, query
from toolwire.testing import call, say

DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
camera = ToolServer("camera")


@camera.tool(read_only=True)
def photo() -> Image:
    """Take a photo."""
    return Image(data=base64.b64decode(DOT), mime_type="image/png")


async def prompt() -> AsyncIterator[dict[str, Any]]:
    """Ask with a picture, in the form of the API."""
    source = {"type": "base64", "media_type": "image/png", "data": DOT}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "Do you see this outside too?"}]
    yield {"type": "user", "message": {"role": "user", "content": content}}


SCRIPT = [call("mcp__camera__photo"), say("Yes, the same dot.")]


async def look() -> None:
    """Send a picture, and get one from a tool."""
    async with claude(SCRIPT, mcp_servers={"camera": camera}, allowed_tools=["mcp__camera"]) as options:
        print("You: <a picture> Do you see this outside too?")
        since = time.monotonic()
        async for message in query(prompt=prompt(), options=options):
            show(message, since)


if __name__ == "__main__":
    main(look())
