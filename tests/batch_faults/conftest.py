"""Every test of this suite runs on SQLite and on a real Postgres, with `BATCH_SEEDS` seeds (10 by default)."""

import os
import random

import pytest


def pytest_generate_tests(metafunc):
    """Run each test with both databases, and with all seeds."""
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(int(os.environ.get("BATCH_SEEDS", "10"))))
    if "database" in metafunc.fixturenames:
        metafunc.parametrize("database", ["sqlite", "postgres"])


@pytest.fixture
def at(database, tmp_path, request, monkeypatch):
    """Return where the batch is stored."""
    monkeypatch.setenv("TOOLWIRE_BATCHES", str(tmp_path / "state"))
    return tmp_path / "batch" if database == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def dice(request, seed):
    """Return a random number generator that gives the same numbers in every run."""
    return random.Random(f"{request.node.originalname}-{seed}")  # noqa: S311 - they must be reproducible
