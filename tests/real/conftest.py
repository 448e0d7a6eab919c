"""The real CLI, always aimed at a scripted model on loopback."""

from contextlib import asynccontextmanager

import pytest

from real.cli_under_test import cli_under_test
from toolwire import ClaudeAgentOptions
from toolwire.testing import ClaudeEnvironment, ScriptedModel


@pytest.fixture
def scripted():
    """`async with scripted([...]) as (model, options)`: a script, and options that make the CLI follow it."""

    @asynccontextmanager
    async def start(script, *, extra=None, finished=True, **options):
        async with ScriptedModel(script) as model, ClaudeEnvironment(model, extra=extra) as env:
            given = {
                "setting_sources": [],
                "strict_mcp_config": True,
                "cli_path": cli_under_test(),
                **options,
            }
            yield model, ClaudeAgentOptions(**env.options_kwargs(), **given)
            if finished:
                model.assert_finished()

    return start
