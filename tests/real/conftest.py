"""The real CLI, always from the dev dependency, always aimed at a scripted model on loopback."""

from contextlib import asynccontextmanager

import pytest

from toolwire import ClaudeAgentOptions
from toolwire._find import bundled_cli
from toolwire.testing import ClaudeEnvironment, ScriptedModel


@pytest.fixture
def scripted():
    """`async with scripted([...]) as (model, options)`: a script, and options that make the CLI follow it."""

    @asynccontextmanager
    async def start(script, *, extra=None, finished=True, **options):
        async with ScriptedModel(script) as model, ClaudeEnvironment(model, extra=extra) as env:
            given = {"setting_sources": [], "strict_mcp_config": True, "cli_path": bundled_cli(), **options}
            yield model, ClaudeAgentOptions(**env.options_kwargs(), **given)
            if finished:
                model.assert_finished()

    return start
