"""For all tests of catalogues."""

import pytest


@pytest.fixture(autouse=True)
def _a_cache_of_its_own(tmp_path, monkeypatch):
    """No test reads or writes the cache of whoever runs it, nor of another test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def ledger_url(postgres_server):
    """Create a database for ledgers, each in a schema of its own: that is faster than one database for each."""
    return postgres_server.create_database()
