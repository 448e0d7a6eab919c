"""The clients need npm and a minute: only run when this folder is named (`make clients`), not in `make test`."""

from pathlib import Path

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path, config):
    """Leave this folder out unless a path inside it was named."""
    if HERE not in collection_path.parents:
        return None
    asked = [Path(config.invocation_params.dir, arg.partition("::")[0]).resolve() for arg in config.args]
    return None if any(path == HERE or HERE in path.parents for path in asked) else True
