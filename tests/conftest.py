"""For all tests: their event loops, a cache folder, and `--fast` (`make fast`).

With `--fast`, tests run on asyncio only, Hypothesis tries a few examples, and tests that start processes or take
long are left out. They are marked `process` and `slow`; a test that starts a process without the
mark fails, so that the marks stay right.
"""

import sys
from pathlib import Path

import hypothesis
import pytest

TESTS = Path(__file__).parent
NOT_FAST = {
    *("cli", "clients", "conformance", "differential", "faults", "flows"),
    *("fuzz", "mutants", "project", "real", "tracing", "work"),
}
"""Folders that `--fast` leaves out as a whole: most of their tests start processes or take long."""
FEW_EXAMPLES = 5
STARTS = {"subprocess.Popen", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "os.exec", "os.system"}
"""Audit events of a process that starts another."""

pytest.register_assert_rewrite("shared")
pytest_plugins = ["shared.servers", "shared.stores"]
hypothesis.settings.register_profile(
    "default", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)  # a busy machine must not fail tests
hypothesis.settings.register_profile(
    "fast", hypothesis.settings.get_profile("default"), max_examples=FEW_EXAMPLES
)


def pytest_addoption(parser):
    """Add `--fast`."""
    parser.addoption(
        "--fast",
        action="store_true",
        help="one event loop, few Hypothesis examples, no processes, nothing slow",
    )


def pytest_configure(config):
    """Load the Hypothesis profile, and with `--fast` forbid processes."""
    fast = config.getoption("--fast")
    hypothesis.settings.load_profile("fast" if fast else "default")
    if fast:
        config.pluginmanager.register(_NoProcesses(), "no-processes")


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc):
    """Choose the event loops of a test: those of the anyio plugin, or asyncio only where that is required."""
    test = metafunc.definition
    chosen = any("anyio_backend" in each.args[0] for each in test.iter_markers("parametrize"))
    only = metafunc.config.getoption("--fast") or test.get_closest_marker("asyncio_only")
    if only and not chosen and "anyio_backend" in metafunc.fixturenames:
        test.add_marker(pytest.mark.parametrize("anyio_backend", ["asyncio"], scope="module"))


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory):
    """Keep indexes and other caches of the tests out of the user's own cache folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def pytest_ignore_collect(collection_path, config):
    """With `--fast`, do not even import the suites in NOT_FAST."""
    inside = collection_path.is_relative_to(TESTS) and collection_path.relative_to(TESTS).parts[:1]
    return True if config.getoption("--fast") and inside and inside[0] in NOT_FAST else None


def pytest_collection_modifyitems(config, items):
    """With `--fast`, leave out marked tests, and try fewer examples."""
    if not config.getoption("--fast"):
        return
    left_out = [item for item in items if not _is_fast(item)]
    items[:] = [item for item in items if _is_fast(item)]
    config.hook.pytest_deselected(items=left_out)
    for item in items:
        _try_fewer_examples(item)


def _is_fast(item):
    if any(item.get_closest_marker(name) for name in ("process", "real", "slow")):
        return False
    backend = getattr(item, "callspec", None) and item.callspec.params.get("anyio_backend", "asyncio")
    return backend != "trio"


def _try_fewer_examples(item):
    """Lower the number of examples of a test that sets its own; the profile covers the others."""
    function = getattr(item, "function", None)
    used = getattr(function, "_hypothesis_internal_use_settings", None)
    if used is not None and used.max_examples > FEW_EXAMPLES:
        function._hypothesis_internal_use_settings = hypothesis.settings(used, max_examples=FEW_EXAMPLES)


class _NoProcesses:
    """Raises an error if a process is started while a test runs."""

    def __init__(self):
        self._running = ""
        sys.addaudithook(self._see)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self._running = item.nodeid
        try:
            return (yield)
        finally:
            self._running = ""

    def _see(self, event, _args):
        if self._running and event in STARTS:
            raise RuntimeError(f"{self._running} starts a process: mark it with pytest.mark.process")
