"""One attempt of a run: which conversation it continues."""

import pytest

from shared.transcripts import SESSION, Writer
from toolwire import ClaudeAgentOptions
from toolwire.batch.execution import has_transcript

pytestmark = pytest.mark.anyio


async def test_a_transcript_is_looked_for_where_the_cli_keeps_it(tmp_path, monkeypatch):
    """The CLAUDE_CONFIG_DIR of the process comes before the HOME of the options, as it does for the CLI."""
    writer = Writer(SESSION)
    writer.answer(writer.ask(None, "Begin."), "Begun.")
    writer.write(tmp_path / "config", "-work")
    options = ClaudeAgentOptions(env={"HOME": str(tmp_path / "home")})
    assert not await has_transcript(options, SESSION)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    assert await has_transcript(options, SESSION)
