"""A conversation that is kept in a store, found again by a search, and continued in another folder."""

import tempfile
import time
from dataclasses import replace
from pathlib import Path

from offline import claude, main, show

from toolwire import SQLiteSessionStore, query, run
from toolwire.testing import say

SCRIPT = [say("I will remember."), say("You said that the key is under the mat.")]


async def remember(folder: Path) -> None:
    """Talk, search, and continue the session that was found."""
    store = SQLiteSessionStore(folder / "sessions.db")
    async with claude(SCRIPT, session_store=store) as options:
        print("You: The key is under the mat.")
        print(f"Claude: {await run('The key is under the mat.', options=options)}\n")
        [hit] = await store.search("mat")
        print(f"Found in session {hit.session_id[:8]}: {hit.snippet}\n")
        again = replace(options, resume=hit.session_id, cwd=folder)
        print("You: Where is the key?")
        since = time.monotonic()
        async for message in query(prompt="Where is the key?", options=again):
            show(message, since)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(remember(Path(made)))
