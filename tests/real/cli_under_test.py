"""The CLI that the tests drive: the one of the dev dependency, or the one that `TOOLWIRE_TEST_CLI` names.

`make clis` names others, to run the same tests with an old and a new CLI. Whichever it is, tests start it only in
the scratch environment of `toolwire.testing`.
"""

import os
from pathlib import Path

from toolwire._transport.find_cli import bundled_cli

VARIABLE = "TOOLWIRE_TEST_CLI"


def cli_under_test() -> str | None:
    """Find its path; None if none is named and the package that carries one is not installed."""
    named = os.environ.get(VARIABLE)
    if named and not Path(named).is_file():
        raise FileNotFoundError(f"{VARIABLE} names {named}, and there is no such file")
    return os.path.abspath(named) if named else bundled_cli()  # noqa: PTH100 - links stay as they are
