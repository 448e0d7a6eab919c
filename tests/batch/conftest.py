"""For the tests of batches: asyncio only, and state folders of their own."""

import pytest


@pytest.fixture
def anyio_backend():
    """DBOS, the engine of a batch, runs on asyncio only."""
    return "asyncio"


@pytest.fixture(autouse=True)
def state_folder(tmp_path, monkeypatch):
    """Keep files of batches out of the user's folders."""
    monkeypatch.setenv("TOOLWIRE_BATCHES", str(tmp_path / "state"))
    return tmp_path / "state"
