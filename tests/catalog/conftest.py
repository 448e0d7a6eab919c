"""Fixtures of all tests of catalogues."""

import pytest


@pytest.fixture(autouse=True)
def _a_cache_of_its_own(tmp_path, monkeypatch):
    """Give each test its own cache folder, so that none uses that of the user or of another test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def ledger_url(postgres_server):
    """Create one database for all ledgers, each in its own schema: that is faster than a database for each."""
    return postgres_server.create_database()
