"""The command imports the user's files into this process. After each test, their modules are forgotten."""

import sys

import pytest


@pytest.fixture(autouse=True)
def _forget_user_modules(tmp_path, monkeypatch):
    """Restore `sys.path`, and remove the modules that were imported from the test's folder."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", "") or "").startswith(str(tmp_path.resolve())):
            del sys.modules[name]
