"""For the tests of batches: asyncio only, and a folder for state of their own."""

import pytest


@pytest.fixture
def anyio_backend():
    """DBOS, the engine of a batch, runs on asyncio only."""
    return "asyncio"


@pytest.fixture(autouse=True)
def state_folder(tmp_path, monkeypatch):
    """Keep what batches write out of the user's folders."""
    monkeypatch.setenv("TOOLWIRE_BATCHES", str(tmp_path / "state"))
    return tmp_path / "state"
