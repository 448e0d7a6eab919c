"""The fault suite. It only runs when this folder is named (`make faults`), not in `make test`. At its end it prints
how many cases there were, and how often something was cancelled."""

import gc
from collections import Counter
from pathlib import Path

import pytest

from faults.stage import Stage, make_program
from toolwire._transport import process as _process

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path, config):
    """Leave the suite out unless a path inside this folder was named."""
    asked = [Path(config.invocation_params.dir, arg.partition("::")[0]).resolve() for arg in config.args]
    return None if any(path == HERE or HERE in path.parents for path in asked) else True


def pytest_sessionfinish():
    """Unfreeze what `Stage` has frozen: other plugins may look for objects through the collector now."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """Write the hostile CLI to a file, once for all tests."""
    return make_program(tmp_path_factory.mktemp("cli"))


@pytest.fixture
def stage(program, tmp_path, record_property):
    """Return a stage, which runs one case and checks what it leaves behind."""
    record_property("cases", 1)
    return Stage(program, tmp_path)


@pytest.fixture
def quick_end(monkeypatch):
    """Wait less for a CLI that does not exit by itself; tests/transport/test_process.py tests those limits."""
    monkeypatch.setattr(_process, "CLOSE_TIMEOUT", 0.2)
    monkeypatch.setattr(_process, "TERMINATE_TIMEOUT", 0.2)


def pytest_terminal_summary(terminalreporter):
    """Print how many cases there were, and how many passed."""
    counts = {kind: Counter() for kind in ("passed", "failed", "error")}
    for kind, counted in counts.items():
        for report in terminalreporter.stats.get(kind, []):
            for name, number in getattr(report, "user_properties", []):
                counted[name] += number
    passed, failed = counts["passed"], counts["failed"] + counts["error"]
    total = passed["cases"] + failed["cases"]
    if total:
        terminalreporter.write_sep("=", "faults")
        terminalreporter.write_line(
            f"{total} cases, {passed['cases']} passed; nothing left of these: no task, process, thread, "
            "descriptor or temporary file"
        )
        terminalreporter.write_line(f"{passed['points']} places cancelled at")
