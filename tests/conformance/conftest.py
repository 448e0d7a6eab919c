"""The suites need npm and a minute: only run when this folder is named (`make conformance`), not in `make test`."""

from pathlib import Path

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path, config):
    """Leave the suites out unless a path inside this folder was named."""
    if collection_path.name != "test_conformance.py":
        return None
    asked = [Path(config.invocation_params.dir, arg.partition("::")[0]).resolve() for arg in config.args]
    return None if any(path == HERE or HERE in path.parents for path in asked) else True
